"""What a trace cost and how long its messages took, counted in parts: rows by kind and layer, latencies in buckets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from antiphon.pipeline.glance.arrays import (
    LARGEST,
    PIECES_IN_SPARK,
    Bools,
    Ints,
    coded,
    count,
    gathered,
    hashed,
    ints,
    is_null,
    least,
    lists,
    most,
    named,
    pairs,
    pieces,
    put_together,
)
from antiphon.pipeline.glance.run_index import RunIndex, TracePart
from antiphon.pipeline.scan import Scan

PER_OCTAVE = 128  # latency buckets between x and 2x: a percentile is a latency that occurred, at most 0.6 % too high
# From a multicast to each delivery of its message, to the first of them, and to the last.
EACH, FIRST, LAST = LATENCIES = ("latency_ms", "first_ms", "last_ms")
SENT = "multicasts"
BACKWARDS = "backwards"  # deliveries that seem to precede their multicast, by clocks that are apart
KINDS = ("multicast", "deliver", "send", "enter")
OF_TOTALS = ["run", "process", "kind", "layer", "peers", "bytes", "step", "time_ns", "requests"]
OF_TIMES = ["run", "process", "kind", "message", "destinations", "time_ns"]
_TEXT, _LONG, _SHORT = pa.string(), pa.int64(), pa.int32()
COUNTED = pa.schema(
    [
        *((name, _TEXT) for name in ("run", "kind", "layer")),
        *((name, _LONG) for name in ("rows", "sends", "bytes", "payloads")),
        ("steps_max", _SHORT),
        *((name, _LONG) for name in ("steps_sum", "steps", "first_ns", "last_ns")),
    ]
)
BUCKETED = pa.schema(
    [
        *((name, _TEXT) for name in ("run", "measure")),
        *((name, _SHORT) for name in ("groups", "processes")),
        *((name, _LONG) for name in ("bucket", "count", "top_ns", "sum_ns")),
    ]
)
UNKNOWN = -1
_sizes = attrgetter("sizes")


def counted_here(index: RunIndex, table: pa.Table) -> pa.Table:
    """Both tables in one, of runs that are here as a whole: nothing need come together from elsewhere."""
    counted = pa.Table.from_batches(_counted(index, [table]))
    latencies = pa.Table.from_batches(_latencies(index, _timed(index, 1, [table])), BUCKETED)
    return pa.concat_tables([counted.cast(COUNTED), latencies], promote_options="default")


def totals(scan: Scan, index: RunIndex) -> DataFrame:
    """Everything that plain counting gives, per run, kind and layer."""
    parts = scan.map(partial(_counted, index), OF_TOTALS, from_arrow_schema(COUNTED))
    return parts.groupBy("run", "kind", "layer").agg(
        *(F.sum(name).alias(name) for name in ("rows", "sends", "bytes", "payloads")),
        F.max("steps_max").alias("steps_max"),
        *(F.sum(name).alias(name) for name in ("steps_sum", "steps")),
        F.min("first_ns").alias("first_ns"),
        F.max("last_ns").alias("last_ns"),
    )


def _counted(index: RunIndex, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        part = TracePart(table, index)
        rows = np.flatnonzero(part.of(*KINDS))
        if len(rows):
            yield from _of_rows(part, rows)


def _of_rows(part: TracePart, rows: Ints) -> Iterator[pa.RecordBatch]:
    at_rows = pa.array(rows)
    kind, send = part.kind[rows], part.of("send")[rows]
    layer, layers = coded(part.table.column("layer").take(at_rows))
    layer = np.where(send, layer, -1) + 1
    width = len(layers) + 1
    at, run, both = pairs(part.run[rows], kind * width + layer, width * max(len(part.kinds), 1))
    n = len(run)
    peers = ints(pc.list_value_length(part.table.column("peers").take(at_rows)))
    size = part.table.column("bytes").take(at_rows)
    sized = send & ~is_null(size)
    parent, cell = lists(part.table.column("requests"), rows)
    step = part.table.column("step").take(at_rows)
    stepped, steps = ~is_null(step), ints(step)
    time = ints(part.table.column("time_ns").take(at_rows))

    def total(values: Ints, where: Bools, none: Bools) -> pa.Array:
        return pa.array(gathered(n, at[where], values[where], np.add, 0), mask=none)

    any_sized, any_send, any_stepped = (count(n, at[which]) == 0 for which in (sized, send, stepped))
    found: dict[str, Any] = {
        "run": named(pa.array(list(part.index.names)), run),
        "kind": pa.array(part.kinds).take(pa.array(both // width)),
        "layer": named(layers, both % width - 1),
        "rows": count(n, at),
        # One row names all receivers, and each of them gets the frame.
        "sends": total(peers, send, any_send),
        "bytes": total(ints(size) * peers, sized, any_sized),
        "payloads": gathered(n, at[parent], ints(pc.struct_field(cell, "payloads")), np.add, 0),
        "steps_max": pa.array(most(n, at[stepped], steps[stepped]), mask=any_stepped).cast(pa.int32()),
        "steps_sum": total(steps, stepped, any_stepped),
        "steps": count(n, at[stepped]),
        "first_ns": least(n, at, time),
        "last_ns": most(n, at, time),
    }
    yield from pa.table(found).combine_chunks().to_batches()


def latency_buckets(scan: Scan, index: RunIndex) -> DataFrame:
    """Latencies counted in narrow buckets, by run, measure, number of destination groups, and of processes in them."""
    n = scan.buckets()
    times = scan.map(partial(_timed, index, n), OF_TIMES, PIECES_IN_SPARK).repartitionById(n, "bucket")
    return (
        times.mapInArrow(partial(_latencies, index), from_arrow_schema(BUCKETED))
        .groupBy("run", "measure", "groups", "processes", "bucket")
        .agg(F.sum("count").alias("count"), F.max("top_ns").alias("top_ns"), F.sum("sum_ns").alias("sum_ns"))
    )


def _timed(index: RunIndex, buckets: int, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Of each message, when it was multicast, to how many, and when it was delivered."""
    for table in tables:
        part = TracePart(table, index)
        deliver = part.of("deliver")
        rows = np.flatnonzero(deliver | part.of("multicast"))
        deliver = deliver[rows]
        code, names = coded(part.table.column("message").take(pa.array(rows)))
        at, run, name = pairs(part.run[rows], code + 1, len(names) + 1)
        n, name = len(run), name - 1
        time = ints(part.table.column("time_ns").take(pa.array(rows)))
        groups, processes = _sized(part, rows)
        arrived = np.flatnonzero(deliver)
        arrived = arrived[np.argsort(at[arrived], kind="stable")]
        offsets = np.concatenate([[0], np.cumsum(count(n, at[arrived]))])
        sent = ~deliver
        found = {
            "run": named(pa.array(list(index.names)), run),
            "message": named(names, name),
            "sent_ns": least(n, at[sent], time[sent]),
            "groups": most(n, at[sent], groups[sent]),
            "processes": most(n, at[sent], processes[sent]),
            "delivered_ns": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(time[arrived])),
        }
        numbered = hashed(names)
        bucket = (np.where(name < 0, 0, numbered[name] if len(numbered) else 0) + run) % buckets
        yield from pieces("times", pa.table(found), bucket)


def _sized(part: TracePart, rows: Ints) -> tuple[Ints, Ints]:
    """How many groups and processes a row is for; one that is in two of the groups is counted in both."""
    column = part.table.column("destinations").take(pa.array(rows))
    parent, group = lists(column)
    code, names = coded(group)
    sizes = part.numbers(_sizes, names, rows[parent], code)
    unknown = is_null(column)
    processes = gathered(len(rows), parent, sizes, np.add, 0)
    return ints(pc.list_value_length(column), UNKNOWN), np.where(unknown, UNKNOWN, processes)


def _latencies(index: RunIndex, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for table in put_together(batches).values():
        (run, runs), (code, names) = (coded(table.column(name)) for name in ("run", "message"))
        at, run, _ = pairs(index.runs(runs)[run], code + 1, len(names) + 1)
        n = len(run)
        sent = least(n, at, ints(table.column("sent_ns")))
        groups, processes = (most(n, at, ints(table.column(name))) for name in ("groups", "processes"))
        parent, time = lists(table.column("delivered_ns"))
        to = at[parent]
        latency = ints(time) - np.where(sent == LARGEST, 0, sent)[to]
        known = (sent != LARGEST)[to]
        to, latency = to[known], latency[known]
        in_order = latency >= 0
        first, last = (f(n, to[in_order], latency[in_order]) for f in (least, most))
        timed, begun = np.flatnonzero(first != LARGEST), np.flatnonzero(sent != LARGEST)
        entries = [
            (EACH, to[in_order], latency[in_order]),
            (BACKWARDS, to[~in_order], latency[~in_order]),
            (FIRST, timed, first[timed]),
            (LAST, timed, last[timed]),
            (SENT, begun, np.zeros(len(begun), dtype=np.int64)),
        ]
        for measure, which, took in entries:
            if len(which):
                yield from _counted_by_bucket(index, measure, run[which], groups[which], processes[which], took)


def _counted_by_bucket(
    index: RunIndex, measure: str, run: Ints, groups: Ints, processes: Ints, took: Ints
) -> Iterator[pa.RecordBatch]:
    bucket = np.full(len(took), -1, dtype=np.int64)
    positive = took > 0
    bucket[positive] = np.floor(np.log(took[positive]) / np.log(2) * PER_OCTAVE).astype(np.int64)
    shape, of_groups, of_processes = pairs(groups + 1, processes + 1, int(processes.max()) + 2)
    place, of_run, of_shape = pairs(run, shape, len(of_groups))
    at, which, of_bucket = pairs(place, bucket + 1, int(bucket.max()) + 2)
    n = len(which)
    chosen = of_shape[which]
    sizes = {"groups": of_groups[chosen] - 1, "processes": of_processes[chosen] - 1}
    found = {
        "run": named(pa.array(list(index.names)), of_run[which]),
        "measure": pa.repeat(measure, n),
        **{name: pa.array(size, mask=size == UNKNOWN).cast(pa.int32()) for name, size in sizes.items()},
        "bucket": of_bucket - 1,
        "count": count(n, at),
        "top_ns": most(n, at, took),
        "sum_ns": gathered(n, at, took, np.add, 0),
    }
    yield from pa.table(found).combine_chunks().to_batches()
