"""A process's state as bytes: to go back to it, and to tell whether two of them are the same."""

from __future__ import annotations

import operator
from typing import Any

import msgspec

from antiphon.core.component import Component
from antiphon.core.process import Process, ProcessState

# Dicts that are only looked up by key or folded by max, all or any: two that differ in their order alone are one state.
# Every other dict keeps its order as part of the state. ``Table.shuffle`` puts this list to the test.
UNORDERED = frozenset(
    {
        *("acks", "collections", "counts", "decided", "decisions", "early", "echoes", "estimates", "holdback"),
        *("proposals", "queue", "rec_ts", "running", "sn", "stamps", "streams", "views"),
    }
)
# Lists that are heaps, or sets in all but name: in which layout does not matter.
HEAPS = frozenset(("computing", "order", "predecessors", "queue"))


def save(process: Process) -> bytes:
    """A snapshot, though without what an override of ``snapshot`` would do: nothing is restarted here."""
    state = process.state
    state.now = state.seq = 0
    state.parts = [Component.snapshot(part) for part in process.parts]
    return _encoder.encode(state)


def load(process: Process, saved: bytes) -> None:
    process.state = _decoder.decode(saved)
    process.channels, process.sessions = process.state.channels, process.state.sessions
    for part, data in zip(process.parts, process.state.parts, strict=True):
        Component.restore(part, data)


def canonical(process: Process) -> list[Any]:
    """All that decides a process's future, with sets, heaps and unordered dicts in one order."""
    state = process.state
    found: list[Any] = [state.multicasts, sorted(state.timers.items()), sorted(state.monitored.items()), state.suspects]
    for part in process.parts:
        names = part.contract.state.__struct_fields__
        found.append([_plain(getattr(part, name), name) for name in names])
    return found


def _plain(value: Any, field: str) -> Any:
    """Something to encode. What cannot change (tuples, frozen structs) has one form as it is."""
    kind = type(value)
    if kind is dict:
        pairs = [(key, item if type(item) in _SIMPLE else _plain(item, field)) for key, item in value.items()]
        if field in UNORDERED and len(pairs) > 1:
            pairs.sort(key=_first)
        return pairs
    if kind is set:
        return sorted(value)
    if kind is list:
        return sorted(value) if field in HEAPS else value
    if isinstance(value, msgspec.Struct) and not value.__struct_config__.frozen:
        return [
            item if type(item := getattr(value, name)) in _SIMPLE else _plain(item, name)
            for name in value.__struct_fields__
        ]
    return value


_SIMPLE = frozenset((int, str, bytes, bool, tuple, type(None)))
_first = operator.itemgetter(0)


def turned(value: Any, field: str) -> Any:
    """The same value with its unordered dicts the other way round."""
    if isinstance(value, dict):
        pairs = [(key, turned(item, field)) for key, item in value.items()]
        return dict(reversed(pairs) if field in UNORDERED else pairs)
    if isinstance(value, msgspec.Struct) and not value.__struct_config__.frozen:
        for name in value.__struct_fields__:
            setattr(value, name, turned(getattr(value, name), name))
    return value


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ProcessState)
