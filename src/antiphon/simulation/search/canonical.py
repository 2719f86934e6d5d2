"""A process's state as bytes: to go back to it, and to tell whether two of them are the same."""

from __future__ import annotations

from typing import Any, NamedTuple

from antiphon.core.buffers import decoder_inside, encode_inside
from antiphon.core.component import Component
from antiphon.core.contract import contract_of
from antiphon.core.process import Process
from antiphon.core.state import ProcessState
from antiphon.simulation.search.shapes import Change, fields_of, getter


def save(process: Process) -> bytes:
    """A snapshot, though without what an override of ``snapshot`` would do: nothing is restarted here.

    The search carries each frame once, so the numbers of the channels are of no use to it, nor are those of the trace.
    """
    state = process.state
    state.now = state.seq = 0
    state.sent, state.inboxes = {}, {}
    state.parts = [Component.snapshot(part) for part in process.parts]
    return encode_inside(state)


def load(process: Process, saved: bytes) -> None:
    process.state = _decode_state(saved)
    for part, data in zip(process.parts, process.state.parts, strict=True):
        Component.restore(part, data)


def canonical(process: Process) -> bytes:
    """All that decides a process's future: equal for two states that differ only in what has no order (shapes.py)."""
    state = process.state
    found: list[Any] = [
        state.multicasts,
        state.position,
        sorted(state.timers.items()),  # each fires at any moment
        sorted(state.monitored.items()),
        state.suspects,
        sorted(state.turn),
        state.gathering,
        state.sessions,
    ]
    for part in process.parts:
        values, canonicals, _ = _variables_of(type(part))
        row = list(values(part))
        for i, change in canonicals:
            row[i] = change(row[i])
        found.append(row)
    return encode_inside(found)


def turn_round(process: Process) -> None:
    """Leave a process as it is but for the order of what has none: no step of it may show a difference."""
    for part in process.parts:
        for name, turned in _variables_of(type(part)).turns:
            setattr(part, name, turned(getattr(part, name)))


class Variables(NamedTuple):
    """How to read a component's state, and what to do about that which has no order."""

    values: Any  # of a component: all of them, as a tuple
    canonicals: list[tuple[int, Change]]
    turns: list[tuple[str, Change]]


def _variables_of(kind: type[Component]) -> Variables:
    found = _known.get(kind)
    if found is None:
        shapes = fields_of(contract_of(kind).state)
        found = _known[kind] = Variables(
            getter(tuple(shapes)),
            [(i, shape.canonical) for i, shape in enumerate(shapes.values()) if shape.canonical is not None],
            [(name, shape.turned) for name, shape in shapes.items() if shape.turned is not None],
        )
    return found


_known: dict[type[Component], Variables] = {}
_decode_state = decoder_inside(ProcessState)
