"""The causal graph of a run, as JSON: what each message follows, and when it entered whose graph and was delivered."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.core.errors import UsageError
from antiphon.core.options import parse_options
from antiphon.protocols import protocol_named, protocols
from antiphon.services.configuration import GraphProtocol
from antiphon.services.dag import Ack, Cast
from antiphon.services.toto import threshold
from antiphon.simulation.run import Outcome
from antiphon.trace import EventKind, Row


def refuse_without_a_graph(protocol: str) -> None:
    if not issubclass(protocol_named(protocol), GraphProtocol):
        able = [name for name, kind in protocols().items() if issubclass(kind, GraphProtocol)]
        raise UsageError(
            f"The {protocol} protocol has no causal graph; {', '.join(able[:-1])} and {able[-1]} have one."
        )


def graph_of(outcome: Outcome) -> dict[str, Any]:
    """A message's id is the name that it has in the graph; a process that returned says the same things again."""
    refuse_without_a_graph(outcome.scenario.protocol)
    machines = [member for members in outcome.facts.groups.values() for member in members]
    rows = {(row.process, row.seq): row for row in reversed(outcome.rows)}
    messages: dict[str, dict[str, Any]] = {}
    name_of: dict[str | None, str] = {}
    events: dict[str, list[tuple[str, str | list[str]]]] = {machine: [] for machine in machines}
    for _, row in sorted(rows.items(), key=lambda item: item[0][1]):
        if row.kind == EventKind.ENTER:
            name = _name(row)
            if row.message is not None:
                name_of[row.message] = name
            if row.about is not None:
                messages[name] = _described(row)
            events[row.process].append(("arrive", name))
        elif row.kind == EventKind.DELIVER and row.process in events:
            events[row.process].append(("deliver", row.message or ""))
        elif row.kind == EventKind.VIEW:
            events[row.process].append(("view", list(row.peers or ())))
    untold = {name for seen in events.values() for what, name in seen if what == "arrive" and name not in messages}
    if untold:  # their senders crashed for good when these had left, and said no more: they are as they came
        casts = (cast for cast in outcome.observations.came() if isinstance(cast, Cast | Ack))
        messages.update({str(cast.name): _as_it_came(cast) for cast in casts if str(cast.name) in untold})
    # A delivery's row has the name of what is brought. In the graph acknowledgements count too, so names differ there.
    for seen in events.values():
        seen[:] = [(what, name_of.get(str(about), about) if what == "deliver" else about) for what, about in seen]
    return {"machines": machines, "phi": _phi(outcome, len(machines)), "messages": messages, "events": events}


def graph_json(outcome: Outcome) -> bytes:
    return msgspec.json.format(msgspec.json.encode(graph_of(outcome)), indent=1) + b"\n"


def _name(row: Row) -> str:
    return f"{(row.peers or ('',))[0]}:{row.position}"


def _described(row: Row) -> dict[str, Any]:
    service = (row.layer or "").rpartition("/")[2]
    return {"sender": row.process, "number": row.position, "service": service, "follows": list(row.about or ())}


def _as_it_came(cast: Cast | Ack) -> dict[str, Any]:
    service = cast.service if isinstance(cast, Cast) else "ack"
    (sender, number), follows = cast.name, [str(name) for name in cast.follows]
    return {"sender": sender, "number": number, "service": service, "follows": follows}


def _phi(outcome: Outcome, n: int) -> int | None:
    options: Any = parse_options(protocol_named(outcome.scenario.protocol), outcome.scenario.options)
    return threshold(options.phi, n) if hasattr(options, "phi") else None
