"""What Spark's tasks do with segments of logs: Arrow in, Arrow out. An error would lose its type on the way to the
driver, so a task says in a row what is wrong."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from antiphon.core.errors import AntiphonError
from antiphon.core.events import Event, decode_event
from antiphon.merge.logs import MergeError, Placed, SegmentFile, placed, read_segment, read_whole_event

BATCH_ROWS, BATCH_BYTES = 10_000, 8 << 20

SEGMENTS = pa.schema(  # a segment of a log, for a task to read
    [
        pa.field("group", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("is_last", pa.bool_(), nullable=False),
    ]
)
HEADS = pa.schema(  # a delivery without its payloads; or, without a key, a segment as a whole
    [
        pa.field("group", pa.string(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("message", pa.string()),
        pa.field("groups", pa.list_(pa.string())),
        pa.field("count", pa.int64()),  # of payloads
        pa.field("size", pa.int64()),  # in bytes
        pa.field("end", pa.int64()),  # the position after it, as its group counts
        pa.field("first", pa.int64()),  # of a segment: the index of its first record, and of the next one's
        pa.field("next", pa.int64()),
        pa.field("link", pa.int64()),  # what the segment before ends with, and what this one ends with
        pa.field("chain", pa.int64()),
        pa.field("first_key", pa.binary()),
        pa.field("last_key", pa.binary()),
        pa.field("complaint", pa.string()),
        pa.field("is_contradiction", pa.bool_()),  # the complaint: the log is whole, and breaks a promise
    ]
)
PAYLOAD = pa.struct(
    [
        pa.field("client", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("payload", pa.binary()),
    ]
)
MESSAGES = pa.schema(
    [
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("message", pa.string(), nullable=False),
        pa.field("groups", pa.list_(pa.string()), nullable=False),
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("payloads", pa.list_(PAYLOAD), nullable=False),
    ]
)

Batches = Iterator[pa.RecordBatch]


class Span(NamedTuple):
    """What is merged: the deliveries behind the first key, up to the second."""

    after: bytes
    until: bytes

    def has(self, key: bytes) -> bool:
        return self.after < key <= self.until


def _files(batches: Batches) -> Iterator[tuple[str, SegmentFile]]:
    for batch in batches:
        for row in batch.to_pylist():
            yield row["group"], SegmentFile(row["first"], Path(row["path"]), row["is_last"])


def heads(batches: Batches) -> Batches:
    """The deliveries in some segments, and each segment as a whole."""
    for group, file in _files(batches):
        rows: list[dict[str, Any]] = []
        try:
            segment, records = read_segment(file)
            with closing(file.lookup()) as lookup:  # what it refers to is looked at, too: it must be whole
                rows = [
                    _head(group, placed(record, file.path), read_whole_event(record, file, lookup).size)
                    for record in records
                ]
            _check_keys(file, [row["key"] for row in rows], [row["count"] for row in rows])
            whole = {"next": segment.next_index, "link": segment.link, "chain": segment.chain}
            keys = {"first_key": rows[0]["key"], "last_key": rows[-1]["key"]} if rows else {}
            rows.append({"group": group, "first": segment.first, **whole, **keys})
        except AntiphonError as error:
            contradicts = isinstance(error, MergeError)
            rows = [{"group": group, "first": file.first, "complaint": str(error), "is_contradiction": contradicts}]
        for at in range(0, len(rows), BATCH_ROWS):
            yield pa.RecordBatch.from_pylist(rows[at : at + BATCH_ROWS], HEADS)


def _head(group: str, found: Placed, size: int) -> dict[str, Any]:
    event = found.event
    head = {"group": group, "key": found.key, "message": str(event.id), "groups": event.destinations}
    return {**head, "count": event.count, "size": size, "end": event.position + event.count}


def _check_keys(file: SegmentFile, keys: list[bytes], counts: list[int]) -> None:
    for before, key, count in zip(keys, keys[1:], counts[1:], strict=False):
        if key < before or (key == before and count):
            raise MergeError(f"{file.path}: a delivery does not come after the one before it in the order of the keys.")


def messages(span: Span, boundaries: Sequence[bytes]) -> Callable[[Batches], Batches]:
    """The messages of a span, with their payloads: each from the log of the first of its groups, and from no other.

    A message's bucket is the number of boundaries below its key.
    """

    def of_segments(batches: Batches) -> Batches:
        rows: list[dict[str, Any]] = []
        size = 0
        for group, file in _files(batches):
            for (key, event), found in _brought(group, file, span):
                payloads = [
                    {"client": request.client, "number": request.first + k, "payload": payload}
                    for request in found.requests
                    for k, payload in enumerate(request.payloads())
                ]
                head = {"bucket": bisect_left(boundaries, key), "key": key, "message": str(event.id)}
                rows.append({**head, "groups": event.destinations, "time_ns": event.at, "payloads": payloads})
                size += sum(len(request.data) for request in found.requests)
                if size >= BATCH_BYTES:
                    yield pa.RecordBatch.from_pylist(rows, MESSAGES)
                    rows, size = [], 0
        if rows:
            yield pa.RecordBatch.from_pylist(rows, MESSAGES)

    return of_segments


def _brought(group: str, file: SegmentFile, span: Span) -> Iterator[tuple[Placed, Event]]:
    """The messages of a span in a segment that are at home there, each with all that it brought."""
    _, records = read_segment(file)
    with closing(file.lookup()) as lookup:
        for record in records:
            found = placed(record, file.path)
            if found.event.count and found.event.destinations[0] == group and span.has(found.key):
                yield found, decode_event(read_whole_event(record, file, lookup).joined())


def counts(boundaries: Sequence[bytes]) -> Callable[[Batches], Batches]:
    """Of heads: how many payloads go into each bucket, as far as a batch knows."""

    def of_heads(batches: Batches) -> Batches:
        for batch in batches:
            found = [0] * (len(boundaries) + 1)
            for key, count in zip(batch.column("key").to_pylist(), batch.column("count").to_pylist(), strict=True):
                found[bisect_left(boundaries, key)] += count
            rows = [{"bucket": bucket, "payloads": payloads} for bucket, payloads in enumerate(found) if payloads]
            yield pa.RecordBatch.from_pylist(rows, COUNTS)

    return of_heads


COUNTS = pa.schema([pa.field("bucket", pa.int32(), nullable=False), pa.field("payloads", pa.int64(), nullable=False)])
