"""A record of the delivered log: an event as readers get it, but for the bytes that the journal has already.

```
u32 number of runs | u64 record of the journal | u32 offset in it | u32 length, for each run | head | bytes
```

The runs, one behind the other, are the event's requests. One whose record is `OWN` has its bytes in this record, where
they stand in the same order. A record without runs is followed by the event whole: nearly all small ones are so.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from antiphon.core.buffers import Buffers, Piece
from antiphon.core.errors import BadFrame
from antiphon.core.events import Event, decode_head

OWN = (1 << 64) - 1
_NUMBER = struct.Struct("<I")
_RUN = struct.Struct("<QII")
_WHOLE = _NUMBER.pack(0)


class StoredRun(NamedTuple):
    """Bytes in a record of the journal, or (`OWN`) in the record itself."""

    record: int
    offset: int
    length: int


class Head(NamedTuple):
    """What a record says without a look at any payload."""

    event: Event  # without requests
    size: int  # of the whole event, as readers get it
    runs: list[StoredRun]
    begin: int  # where the event begins in the record ...
    end: int  # ... and what follows its head


def store(event: Event, whole: Buffers, may_refer: Callable[[int], bool] = lambda record: False) -> Buffers:
    """The record of an event, of which ``whole`` is the encoding: its head, and its requests as they came.

    ``may_refer``: to a record of the journal; it is asked once for each run.
    """
    if len(whole.pieces) == 1:  # so small that it was copied
        return Buffers(_WHOLE, *whole.pieces)
    runs: list[StoredRun] = []
    here: list[Piece] = []
    for run, pieces in _runs_of(event):
        if run.record != OWN and may_refer(run.record):
            runs.append(run)
        else:
            runs.append(StoredRun(OWN, 0, run.length))
            here += pieces
    table = b"".join([_RUN.pack(*run) for run in runs])
    return Buffers(_NUMBER.pack(len(runs)) + table, whole.pieces[0], *here)


def referred_by(event: Event) -> list[int]:
    """The records of the journal in which an event's requests lie, as far as they lie in any."""
    return [run.record for run, _ in _runs_of(event) if run.record != OWN]


def _runs_of(event: Event) -> list[tuple[StoredRun, list[Piece]]]:
    """Where an event's requests lie: those that lie one behind the other are one run."""
    found: list[tuple[StoredRun, list[Piece]]] = []
    last, end = None, 0
    index = offset = length = 0
    pieces: list[Piece] = []
    for request in event.requests:
        origin = request.origin
        if origin is not None and origin.index < 0:
            origin = None
        if not pieces or origin is not last or (origin is not None and request.offset != end):
            if pieces:
                found.append((StoredRun(index, offset, length), pieces))
            last, pieces, length = origin, [], 0
            index, offset = (OWN, 0) if origin is None else (origin.index, origin.begin + request.offset)
        pieces.append(request.data)
        size = len(request.data)
        length += size
        end = request.offset + size
    if pieces:
        found.append((StoredRun(index, offset, length), pieces))
    return found


def head_of(record: Piece) -> Head:
    """Raises BadFrame for bytes that are no record of a delivered log."""
    if len(record) < _NUMBER.size:
        raise BadFrame("A record is too short to say where its bytes are.")
    (number,) = _NUMBER.unpack_from(record)
    begin = _NUMBER.size + number * _RUN.size
    if begin > len(record):
        raise BadFrame("A record is shorter than its table of runs.")
    runs = [StoredRun._make(each) for each in _RUN.iter_unpack(record[_NUMBER.size : begin])]
    event, end = decode_head(record, begin)
    here = len(record) - end
    if not runs:
        return Head(event, len(record) - begin, runs, begin, end)
    if sum([run.length for run in runs if run.record == OWN]) != here:
        raise BadFrame("A record does not hold as many bytes as its table of runs says.")
    return Head(event, end - begin + sum([run.length for run in runs]), runs, begin, end)


def whole(record: bytes, fetch: Callable[[int, int, int], Piece]) -> Buffers:
    """The event as readers get it. ``fetch`` brings a run from the journal; BadFrame is raised as above."""
    if record[: _NUMBER.size] == _WHOLE:
        return Buffers(memoryview(record)[_NUMBER.size :])
    head, view = head_of(record), memoryview(record)
    pieces: list[Piece] = [view[head.begin : head.end]]
    at = head.end
    for index, offset, length in head.runs:
        if index == OWN:
            pieces.append(view[at : at + length])
            at += length
        else:
            pieces.append(fetch(index, offset, length))
    return Buffers(*pieces)
