"""What a trace cost and how long its messages took, counted in parts: rows by kind and layer, latencies in buckets."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from antiphon.pipeline.glance.arrays import (
    LARGEST,
    Bools,
    Ints,
    by_name,
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
)
from antiphon.pipeline.glance.run_index import RunIndex, TracePart

PER_OCTAVE = 128  # latency buckets between x and 2x: a percentile is a latency that occurred, at most 0.6 % too high
# From a multicast to each delivery of its message, to the first of them, and to the last.
EACH, FIRST, LAST = LATENCIES = ("latency_ms", "first_ms", "last_ms")
SENT = "multicasts"
BACKWARDS = "backwards"  # deliveries that seem to precede their multicast, by clocks that are apart
KINDS = ("multicast", "deliver", "send", "enter")
COLUMNS = [
    *("run", "process", "kind", "message", "destinations", "requests", "peers", "layer", "bytes", "step", "time_ns"),
]
COUNTED, TIMES, BY_BUCKET = "counted", "times", "by bucket"
_TEXT, _LONG, _SHORT = pa.string(), pa.int64(), pa.int32()
OF_COUNTS = pa.schema(
    [
        *((name, _TEXT) for name in ("run", "kind", "layer")),
        *((name, _LONG) for name in ("rows", "sends", "bytes", "payloads")),
        ("steps_max", _SHORT),
        *((name, _LONG) for name in ("steps_sum", "steps", "first_ns", "last_ns")),
    ]
)
OF_LATENCIES = pa.schema(
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
    part = TracePart(table, index)
    found = [_counted(part), *latencies(_timed(part), index)]
    return pa.concat_tables([one for one in found if one is not None], promote_options="default")


def totals(figures: DataFrame) -> DataFrame:
    """Everything that plain counting gives, per run, kind and layer."""
    return (
        figures.filter("kind is not null")
        .groupBy("run", "kind", "layer")
        .agg(
            *(F.sum(name).alias(name) for name in ("rows", "sends", "bytes", "payloads")),
            F.max("steps_max").alias("steps_max"),
            *(F.sum(name).alias(name) for name in ("steps_sum", "steps")),
            F.min("first_ns").alias("first_ns"),
            F.max("last_ns").alias("last_ns"),
        )
    )


def latency_buckets(figures: DataFrame) -> DataFrame:
    """Latencies counted in narrow buckets, by run, measure, number of destination groups, and of processes in them."""
    return (
        figures.filter("measure is not null")
        .groupBy("run", "measure", "groups", "processes", "bucket")
        .agg(F.sum("count").alias("count"), F.max("top_ns").alias("top_ns"), F.sum("sum_ns").alias("sum_ns"))
    )


# ---- in each part of the trace


def glance_at_figures(part: TracePart, buckets: int) -> Iterator[pa.RecordBatch]:
    """What is counted in the part, and when each message was multicast and delivered."""
    counted = _counted(part)
    if counted is not None:
        yield from pieces(COUNTED, counted, by_name(counted, "run", buckets))
    times = _timed(part)
    (run, runs), (code, names) = (coded(times.column(name)) for name in ("run", "message"))
    at_run = part.index.runs(runs)[run]
    numbered = hashed(names)
    bucket = (np.where(code < 0, 0, numbered[code] if len(numbered) else 0) + at_run) % buckets
    yield from pieces(TIMES, times, bucket)


def _counted(part: TracePart) -> pa.Table | None:
    rows = np.flatnonzero(part.of(*KINDS))
    if not len(rows):
        return None
    at_rows = pa.array(rows)
    kind, send = part.kind[rows], part.of("send")[rows]
    layer, layers = coded(part.table.column("layer").take(at_rows))
    layer = np.where(send, layer, -1) + 1
    width = len(layers) + 1
    at, run, both = pairs(part.run[rows], kind * width + layer, width * max(len(part.kinds), 1))
    n = len(run)
    peers = ints(pc.list_value_length(part.table.column("peers")).take(at_rows))
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
    return pa.table(found).cast(OF_COUNTS)


def _timed(part: TracePart) -> pa.Table:
    """Of each message, when it was multicast, to how many, and when it was delivered."""
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
        "run": named(pa.array(list(part.index.names)), run),
        "message": named(names, name),
        "sent_ns": least(n, at[sent], time[sent]),
        "groups": most(n, at[sent], groups[sent]),
        "processes": most(n, at[sent], processes[sent]),
        "delivered_ns": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(time[arrived])),
    }
    return pa.table(found)


def _sized(part: TracePart, rows: Ints) -> tuple[Ints, Ints]:
    """How many groups and processes a row is for; one that is in two of the groups is counted in both."""
    column = part.table.column("destinations").take(pa.array(rows))
    parent, group = lists(column)
    code, names = coded(group)
    sizes = part.numbers(_sizes, names, rows[parent], code)
    unknown = is_null(column)
    processes = gathered(len(rows), parent, sizes, np.add, 0)
    return ints(pc.list_value_length(column), UNKNOWN), np.where(unknown, UNKNOWN, processes)


# ---- where all of a message has come together


def judge_times(table: pa.Table, index: RunIndex, buckets: int) -> Iterator[pa.RecordBatch]:
    for found in latencies(table, index):
        yield from pieces(BY_BUCKET, found, by_name(found, "run", buckets))


def latencies(table: pa.Table, index: RunIndex) -> Iterator[pa.Table]:
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
            yield _counted_by_bucket(index, measure, run[which], groups[which], processes[which], took)


def _counted_by_bucket(index: RunIndex, measure: str, run: Ints, groups: Ints, processes: Ints, took: Ints) -> pa.Table:
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
    return pa.table(found).cast(OF_LATENCIES)
