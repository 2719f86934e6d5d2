"""Which events are there several times.

Most traces have none. So each part sets a bit per event, in words of 64 events, once with or and once with exclusive
or. Where the words of all parts have come together, one with fewer bits than rows holds events that are there several
times: those whose bits cancelled out, or if that does not account for all rows, as where one is there three times, any
of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame

from antiphon.pipeline.glance.arrays import (
    PIECES_IN_SPARK,
    Bools,
    Ints,
    coded,
    count,
    hashed,
    ints,
    named,
    pieces,
    put_together,
)
from antiphon.pipeline.scan import EVENT, Scan

WORD_BITS, BLOCK_BITS = 6, 12
DENSE_MAX = 1 << 22  # words that are counted in their order, without being sorted
ROWS_AT_ONCE = 10_000

Words = npt.NDArray[np.uint64]


def doubled(scan: Scan) -> DataFrame:
    """(run, process, seq) of the events that may be there several times, and of all that are."""
    n = scan.buckets()
    words = scan.map(partial(_words, n), EVENT, PIECES_IN_SPARK).repartitionById(n, "bucket")
    return words.mapInArrow(_doubled, "run string, process string, seq long")


def _words(buckets: int, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        (run, runs), (process, processes) = (coded(table.column(name)) for name in ("run", "process"))
        seq = ints(table.column("seq"))
        bit = np.left_shift(np.uint64(1), (seq & 63).astype(np.uint64))
        yield from _pieces(buckets, runs, processes, _joined(run, process, seq >> WORD_BITS, None, bit, bit))


def _pieces(buckets: int, runs: pa.Array, processes: pa.Array, found: tuple[Ints, ...]) -> Iterator[pa.RecordBatch]:
    run, process, word, rows, bits, odd = found
    table = {"run": named(runs, run), "process": named(processes, process), "word": word, "rows": rows}
    bucket = (hashed(runs)[run] * 31 + hashed(processes)[process] + (word >> BLOCK_BITS)) % buckets
    yield from pieces("words", pa.table({**table, "bits": bits, "odd": odd}), bucket)


def _joined(run: Ints, process: Ints, word: Ints, rows: Ints | None, bits: Words, odd: Words) -> tuple[Ints, ...]:
    """One entry per run, process and word; rows: how many each stands for, or one."""
    low = word.min()
    span, processes = int(word.max() - low) + 1, int(process.max()) + 1
    n = (int(run.max()) + 1) * processes * span
    at = (run * processes + process) * span + (word - low)
    if 0 < n <= DENSE_MAX:
        there = np.flatnonzero(np.bincount(at, minlength=n))
        place = np.zeros(n, dtype=np.int64)
        place[there] = np.arange(len(there))
        at = place[at]
    elif 0 < n < 2**62:
        there, at = np.unique(at, return_inverse=True)
    else:  # numbers from all over: by what is neither, one after the other
        keys, at = np.unique(np.stack([run, process, word]), axis=1, return_inverse=True)
        return *keys, *_summed(keys.shape[1], at.reshape(-1), rows, bits, odd)
    summed = _summed(len(there), at, rows, bits, odd)
    return there // span // processes, there // span % processes, there % span + low, *summed


def _summed(n: int, at: Ints, rows: Ints | None, bits: Words, odd: Words) -> tuple[Ints, ...]:
    union, parity = np.zeros(n, dtype=np.uint64), np.zeros(n, dtype=np.uint64)
    np.bitwise_or.at(union, at, bits)
    np.bitwise_xor.at(parity, at, odd)
    total = count(n, at) if rows is None else np.bincount(at, rows, minlength=n).astype(np.int64)
    return total, union.view(np.int64), parity.view(np.int64)


def _doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for words in put_together(batches).values():
        (run, runs), (process, processes) = (coded(words.column(name)) for name in ("run", "process"))
        word, rows, bits, odd = (ints(words.column(name)) for name in ("word", "rows", "bits", "odd"))
        found = _joined(run, process, word, rows, bits.view(np.uint64), odd.view(np.uint64))
        run, process, word, rows, bits, odd = found
        dirty: Bools = rows > np.bitwise_count(bits.view(np.uint64))
        run, process, word, rows, bits, odd = (values[dirty] for values in found)
        cancelled = bits & ~odd
        twice = rows == _bits(bits) + _bits(cancelled)
        which = np.where(twice, cancelled, bits).view(np.uint64)
        for bit in range(64):
            there = np.flatnonzero((which >> np.uint64(bit)) & np.uint64(1))
            seq = (word[there] << WORD_BITS) + bit
            table = pa.table({"run": named(runs, run[there]), "process": named(processes, process[there]), "seq": seq})
            yield from table.combine_chunks().to_batches(max_chunksize=ROWS_AT_ONCE)


def _bits(values: Ints) -> Ints:
    return np.bitwise_count(values.view(np.uint64)).astype(np.int64)
