"""From a process's effects to rows: the one place where both drivers' traces are made."""

from __future__ import annotations

from antiphon.core.effects import AnyEffect, Deliver, Record, Send
from antiphon.core.model import ProcessId, user_name
from antiphon.trace.schema import Row


def row_of(process: ProcessId, effect: AnyEffect, time_ns: int, step: int | None = None) -> Row | None:
    """The row of an effect released at ``time_ns``; None for effects that are no events."""
    if isinstance(effect, Send):
        name = None if effect.subject is None else user_name(effect.subject)
        size = len(effect.frame)
        return Row(process, effect.seq, time_ns, "send", name, None, effect.to, effect.layer, size, step)
    if isinstance(effect, Record):
        name = None if effect.message is None else user_name(effect.message)
        time = time_ns if effect.time_ns is None else effect.time_ns
        return Row(
            process,
            effect.seq,
            time,
            effect.kind,
            name,
            effect.destinations,
            effect.peer,
            effect.layer,
            effect.bytes,
            step,
        )
    if isinstance(effect, Deliver):
        m = effect.message
        return Row(
            process,
            effect.seq,
            time_ns,
            "deliver",
            user_name(m.id),
            m.destinations,
            step=step,
            order_key=effect.order_key,
        )
    return None
