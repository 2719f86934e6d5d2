"""From what came of an input to rows: the one place where both drivers' traces are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial

from antiphon.core.effects import AnyEffect, Log, Record, Reply, Send
from antiphon.core.events import Delivered, Gap, View
from antiphon.core.host import Turn
from antiphon.core.inputs import Receive
from antiphon.core.model import MessageId
from antiphon.core.process import Process
from antiphon.core.requests import Request
from antiphon.trace.schema import RequestCell, Row

StepOf = Callable[[AnyEffect], "int | None"]


def rows_of(
    process: Process,
    turn: Turn,
    time_ns: int,
    step_of: StepOf | None = None,
    *,
    after: int = 0,
    receives: bool = True,
) -> list[Row]:
    """The rows of an input whose effects were released at ``time_ns``; only those with a seq beyond ``after``.

    ``receives``: whether a frame that came is a row, too. The row of its send says what it is about, and to whom.
    """
    rows: list[Row] = []
    add_rows(rows, process, turn, time_ns, step_of, after, receives)
    return rows


def add_rows(
    rows: list[Row], process: Process, turn: Turn, time_ns: int, step_of: StepOf | None, after: int, receives: bool
) -> None:
    """The same, put behind others."""
    me, happened = process.me, turn.happened
    if receives and type(happened) is Receive and turn.seq > after:
        layer = process.parts[happened.frame.joined()[0]].layer
        peers, size = (happened.sender,), happened.frame.size
        cells = (me, turn.seq, time_ns, "receive", None, None, None, peers, None, layer, size, None, None, None)
        rows.append(_row(cells))
    for effect in turn.effects:
        make = _MAKERS.get(type(effect))
        if make is not None and effect.seq > after:  # type: ignore[union-attr]
            rows.append(make(me, effect, time_ns, step_of and step_of(effect)))


def _send(process: str, send: Send, time_ns: int, step: int | None) -> Row:
    about, size, layer = tuple([_name(id) for id in send.about]), send.frame.size, send.layer
    return _row((process, send.seq, time_ns, "send", None, None, None, send.to, about, layer, size, step, None, None))


def _record(process: str, record: Record, time_ns: int, step: int | None) -> Row:
    is_multicast = record.kind == "multicast"
    return Row(
        process,
        record.seq,
        time_ns if record.time_ns is None else record.time_ns,
        record.kind,
        None if record.message is None else _name(record.message),
        record.destinations,
        _cells(record.requests) if is_multicast else None,
        None if record.peer is None else (record.peer,),
        None if record.about is None else tuple([_name(id) for id in record.about]),
        record.layer,
        step=step,
        position=record.position,
    )


def _log(process: str, log: Log, time_ns: int, step: int | None) -> Row:
    event = log.event
    if type(event) is Gap:
        return Row(process, log.seq, time_ns, "gap", position=event.position)
    if type(event) is View:
        name, position = str(event.id), event.position
        return Row(process, log.seq, time_ns, "view", name, peers=event.members, position=position)
    assert type(event) is Delivered
    message, destinations, requests = _name(event.id), event.destinations, _cells(event.requests)
    subject, order = (message, destinations, requests), (step, event.key, event.position)
    return _row((process, log.seq, time_ns, "deliver", *subject, None, None, None, None, *order))


def receipt_row(process: str, seq: int, time_ns: int, reply: Reply) -> Row:
    return Row(process, seq, time_ns, "receipt", None, reply.destinations, _cells(reply.requests))


def _receipt(process: str, reply: Reply, time_ns: int, step: int | None) -> Row:
    return receipt_row(process, reply.seq, time_ns, reply)


def _cells(requests: Iterable[Request]) -> tuple[RequestCell, ...]:
    return tuple([_cell((r.client, r.first, r.count, r.digest)) for r in requests])


@lru_cache(maxsize=1 << 16)
def _name(id: MessageId) -> str:
    return str(id)


# A Row of all its cells, without the detour through its constructor: a run has many.
_row: Callable[[tuple[object, ...]], Row] = partial(tuple.__new__, Row)
_cell: Callable[[tuple[object, ...]], RequestCell] = partial(tuple.__new__, RequestCell)
_MAKERS: dict[type, Callable[..., Row]] = {Send: _send, Record: _record, Log: _log, Reply: _receipt}
