"""Arrow's columns as numpy's arrays, and tables as bytes that Spark moves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
LARGEST, SMALLEST = 2**63 - 1, -(2**63)
NOBODY = -1  # the number of what is null

# Spark copies each piece some six times on its way, and most numbers in it are small.
_SMALL = pa.ipc.IpcWriteOptions(compression=pa.Codec("lz4"), use_threads=False)
_ONE_THREAD = pa.ipc.IpcReadOptions(use_threads=False)
PIECES = pa.schema([("bucket", pa.int32()), ("piece", pa.binary())])
PIECES_IN_SPARK = "bucket int, piece binary"


def whole(column: Any) -> pa.Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def ints(values: Any, null: int = 0) -> Ints:
    """Numbers; what is null has that one."""
    one = whole(values)
    if one.null_count:
        one = one.fill_null(null)
    return np.asarray(one.to_numpy(zero_copy_only=False), dtype=np.int64)


def is_null(values: Any) -> Bools:
    one = whole(values)
    if not one.null_count:
        return np.zeros(len(one), dtype=bool)
    return np.asarray(one.is_null().to_numpy(zero_copy_only=False))


def coded(values: Any) -> tuple[Ints, pa.Array]:
    """Each value as its number in a dictionary without repetitions; what is null has none."""
    one = whole(values)
    if pa.types.is_dictionary(one.type) and len(one.dictionary.unique()) != len(one.dictionary):
        one = one.cast(one.type.value_type)  # a file's own dictionary may name something twice
    if not pa.types.is_dictionary(one.type):
        one = one.dictionary_encode()
    return ints(one.indices, NOBODY), one.dictionary


def lists(values: Any, rows: Ints | None = None) -> tuple[Ints, pa.Array]:
    """Of lists, in these rows or in all: for each element the place of its list, and the element."""
    one = whole(values)
    if rows is not None:
        one = one.take(pa.array(rows))
    return ints(pc.list_parent_indices(one)), pc.list_flatten(one)


def number_of(names: pa.Array, name: str) -> int:
    """The number that a dictionary has for a name, or one that no value has."""
    place = pc.index(names, pa.scalar(name, names.type)).as_py()
    return int(place) if place >= 0 else -2


def gathered(groups: int, at: Ints, values: Any, how: np.ufunc, start: int) -> Ints:
    """One number per group, of all values in it."""
    found = np.full(groups, start, dtype=np.int64)
    how.at(found, at, np.asarray(values, dtype=np.int64))
    return found


def united(groups: int, at: Ints, bits: Ints) -> Ints:
    return gathered(groups, at, bits, np.bitwise_or, 0)


def least(groups: int, at: Ints, values: Ints) -> Ints:
    return gathered(groups, at, values, np.minimum, LARGEST)


def most(groups: int, at: Ints, values: Ints) -> Ints:
    return gathered(groups, at, values, np.maximum, SMALLEST)


def count(groups: int, at: Ints) -> Ints:
    return np.bincount(at, minlength=groups).astype(np.int64)


DENSE = 8  # numbers that leave out no more than so many between one and the next are found without being sorted


def distinct(values: Ints, beyond: int) -> tuple[Ints, Ints]:
    """The different ones of numbers from 0 to below `beyond`, in order; and of each number its place among them, where
    it has one."""
    there = np.zeros(beyond, dtype=bool)
    there[values] = True
    place = np.cumsum(there) - 1
    return np.flatnonzero(there), place


def pairs(one: Ints, other: Ints, others: int) -> tuple[Ints, Ints, Ints]:
    """The different pairs of two numbers: (each row's pair, and of each pair the one and the other)."""
    if not len(one):
        return one, one, one
    number = one * others + other
    beyond = int(number.max()) + 1
    if number.min() >= 0 and beyond <= DENSE * len(number):
        keys, place = distinct(number, beyond)
        which = place[number]
    else:
        keys, which = np.unique(number, return_inverse=True)
    return which.astype(np.int64, copy=False), keys // others, keys % others


def hashed(names: pa.Array) -> Ints:
    """A number for each name, the same everywhere: its bytes, each with the weight of its place."""
    n = len(names)
    texts = pa.concat_arrays([names.cast(pa.string())])  # begins at its own first byte
    if not n or texts.buffers()[2] is None:
        return np.zeros(n, dtype=np.int64)
    ends = np.frombuffer(texts.buffers()[1], dtype=np.int32, count=n + 1, offset=4 * texts.offset).astype(np.int64)
    data = np.frombuffer(texts.buffers()[2], dtype=np.uint8)[ends[0] : ends[-1]]
    starts, lengths = ends[:-1] - ends[0], np.diff(ends)
    weighed = data * _WEIGHTS[(np.arange(len(data)) - np.repeat(starts, lengths)) % len(_WEIGHTS)]
    sums = np.add.reduceat(np.append(weighed, np.uint64(0)), starts)
    sums[lengths == 0] = 0
    found: Ints = ((sums * _WEIGHTS[-1]) >> np.uint64(33)).astype(np.int64)
    return found


_WEIGHTS = np.cumprod(np.full(64, 0x9E3779B97F4A7C15, dtype=np.uint64))


def by_name(table: pa.Table, column: str, buckets: int) -> Ints:
    """Of each row a number below that of the buckets, the same for the same name."""
    code, names = coded(table.column(column).cast(pa.string()))
    where: Ints = hashed(names)[code] % buckets
    return where


def ranked(keys: pa.Array) -> tuple[Ints, pa.Array]:
    """Of different keys: the place of each among all, and the keys in order."""
    order = pc.array_sort_indices(keys)
    places = np.empty(len(keys), dtype=np.int64)
    places[ints(order)] = np.arange(len(keys))
    return places, keys.take(order)


def top_before(at: Ints, starts: Bools, rank: Ints, chosen: Bools, ranks: int) -> Ints:
    """The largest rank of a chosen row before each row in its group, -1 if there is none. Rows of a group are
    neighbours, groups are numbered in their order, and each `starts` with a row."""
    base = at * (ranks + 2)
    height = np.maximum.accumulate(base + np.where(chosen, rank + 1, 0)) if len(base) else base
    found: Ints = np.where(starts, base, np.roll(height, 1)) - base - 1
    return found


def named(names: pa.Array, at: Ints) -> pa.Array:
    """What has these numbers; null where there is none."""
    return names.take(pa.array(at, mask=at < 0))


# ---- as bytes


def pieces(what: str, table: pa.Table, bucket: Ints) -> Iterator[pa.RecordBatch]:
    """A table, divided by bucket."""
    if not len(table):
        return
    order = np.argsort(bucket, kind="stable")
    sorted_ = table.take(pa.array(order)).combine_chunks().replace_schema_metadata({"what": what})
    found, starts = np.unique(bucket[order], return_index=True)
    ends = [*starts[1:].tolist(), len(table)]
    cut = [_bytes(sorted_.slice(a, b - a)) for a, b in zip(starts.tolist(), ends, strict=True)]
    yield pa.RecordBatch.from_arrays([pa.array(found, pa.int32()), pa.array(cut, pa.binary())], schema=PIECES)


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_SMALL) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def put_together(batches: Iterable[pa.RecordBatch]) -> dict[str, pa.Table]:
    """All that came, by what it is."""
    found: dict[str, list[pa.Table]] = {}
    for batch in batches:
        for piece in batch.column("piece"):
            table = pa.ipc.open_stream(piece.as_buffer(), options=_ONE_THREAD).read_all()
            found.setdefault(table.schema.metadata[b"what"].decode(), []).append(table.replace_schema_metadata())
    return {what: _joined(tables) for what, tables in found.items()}


def _joined(tables: list[pa.Table]) -> pa.Table:
    """One of all, in which what is not told is null."""
    return pa.concat_tables(tables, promote_options="default").unify_dictionaries().combine_chunks()
