"""The figures of runs, made of what was counted in parts of a trace: by a task that has all parts of these runs.

Of one table: what plain counting gave (`times.OF_COUNTS`), and latencies in buckets (`times.OF_LATENCIES`). Neither
need be summed up before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from antiphon.pipeline.glance.arrays import Bools, Ints, ints
from antiphon.pipeline.glance.times import BACKWARDS, EACH, LATENCIES, SENT

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
_COUNT, _FIGURE, _NUMBER = pa.int64(), pa.float64(), pa.int32()
_OF_LATENCIES = [(f"{measure}_{name}", _FIGURE) for measure in LATENCIES for name in QUANTILES]
FIGURES = pa.schema(
    [
        *((name, _COUNT) for name in ("multicasts", "deliveries", "payloads", "sends", "bytes")),
        ("steps_max", _NUMBER),
        *((name, _FIGURE) for name in ("steps_mean", "seconds", "sends_per_multicast", "bytes_per_multicast")),
        *((name, _FIGURE) for name in ("deliveries_per_second", "payloads_per_second")),
        *_OF_LATENCIES,
        (BACKWARDS, _COUNT),
    ]
)
OF_RUNS = pa.schema([("run", pa.string()), *FIGURES])
RATES = (
    ("sends_per_multicast", "sends", "multicasts"),
    ("bytes_per_multicast", "bytes", "multicasts"),
    ("deliveries_per_second", "deliveries", "seconds"),
    ("payloads_per_second", "payloads", "seconds"),
)


def by_run(counted: DataFrame, latencies: DataFrame) -> DataFrame:
    """One row per run that has any events, of what was counted in all of a trace."""
    both = counted.unionByName(latencies, allowMissingColumns=True).repartition("run")
    return both.mapInArrow(_of_runs, from_arrow_schema(OF_RUNS))


def by_shape(latencies: DataFrame, by: list[str]) -> DataFrame:
    """One row per run and number of groups, or of processes in them, of the messages that are so addressed."""
    made = pa.schema(
        [
            ("run", pa.string()),
            *((name, _NUMBER) for name in by),
            *((name, _COUNT) for name in ("messages", "deliveries")),
            *_OF_LATENCIES,
            (BACKWARDS, _COUNT),
        ]
    )
    rows = latencies.repartition("run")
    return rows.mapInArrow(partial(_of_shapes, by, made), from_arrow_schema(made))


def _of_runs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = list(batches)
    if found:
        yield from figures(pa.Table.from_batches(found)).combine_chunks().to_batches()


def _of_shapes(by: list[str], made: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = list(batches)
    if found:
        shapes = percentiles(pa.Table.from_batches(found), ["run", *by]).rename_columns({SENT: "messages"})
        yield from shapes.select(made.names).cast(made).combine_chunks().to_batches()


def figures(table: pa.Table) -> pa.Table:
    """One row per run: `table` has the rows of both tables, each with nulls for the other's columns."""
    is_latency = table.column("measure").is_valid()
    runs = table.column("run").unique()
    found: dict[str, Any] = {"run": runs}
    found |= _counts(runs, table.filter(pc.invert(is_latency)))
    latencies = percentiles(table.filter(is_latency), ["run"])
    at = pc.index_in(runs, latencies.column("run"))
    for name in latencies.column_names:
        if name not in ("run", "deliveries"):
            found[name] = latencies.column(name).take(at)
    for name, amount, count in RATES:
        divisor = _figure(found[count])
        usable = pc.if_else(pc.equal(divisor, 0.0), pa.scalar(None, _FIGURE), divisor)
        found[name] = pc.divide(_figure(found[amount]), usable)
    return pa.table([found[name] for name in OF_RUNS.names], names=OF_RUNS.names).cast(OF_RUNS)


def _counts(runs: Any, counted: pa.Table) -> dict[str, Any]:
    """Of each of the runs."""

    def of(kind: str, column: str, how: str) -> Any:
        rows = counted.filter(pc.equal(counted.column("kind"), kind))
        made = rows.group_by("run", use_threads=False).aggregate([(column, how)])
        return made.column(f"{column}_{how}").take(pc.index_in(runs, made.column("run")))

    steps = _figure(of("deliver", "steps", "sum"))
    counted_steps = pc.if_else(pc.equal(steps, 0.0), pa.scalar(None, _FIGURE), steps)
    last, first = of("deliver", "last_ns", "max"), of("multicast", "first_ns", "min")
    about = pc.subtract(_figure(last), _figure(first))
    span = pc.if_else(pc.less(pc.abs(about), 2.0**62), _figure(pc.subtract(last, first)), about)
    return {
        "deliveries": of("deliver", "rows", "sum").fill_null(0),
        "payloads": of("deliver", "payloads", "sum").fill_null(0),
        "sends": of("send", "sends", "sum").fill_null(0),
        "bytes": of("send", "bytes", "sum").fill_null(0),
        "steps_max": of("deliver", "steps_max", "max"),
        "steps_mean": pc.divide(_figure(of("deliver", "steps_sum", "sum")), counted_steps),
        "seconds": pc.divide(span, 1e9),
    }


def _figure(numbers: Any) -> Any:
    """As it can be divided: of numbers that only a long holds, about."""
    return numbers.cast(_FIGURE, safe=False)


def percentiles(latencies: pa.Table, by: list[str]) -> pa.Table:
    """The smallest bucket's top with at least that share of all latencies at or below it; and how many there are."""
    merged = latencies.group_by([*by, "measure", "bucket"], use_threads=False).aggregate(
        [("count", "sum"), ("top_ns", "max")]
    )
    rows = merged.sort_by([(name, "ascending") for name in (*by, "measure", "bucket")]).combine_chunks()
    of_group, groups = _starts(rows, by)
    _, parts = _starts(rows, [*by, "measure"])
    reached = np.cumsum(ints(rows.column("count_sum")))
    base = np.append(0, reached)[parts]
    totals = np.append(reached, 0)[np.append(parts[1:], len(rows)) - 1] - base
    group, measure = of_group[parts], rows.column("measure").take(pa.array(parts))
    tops = rows.column("top_ns_max").to_numpy(zero_copy_only=False) if len(rows) else np.zeros(0)
    found: dict[str, Any] = {name: rows.column(name).take(pa.array(groups)) for name in by}
    n = len(groups)

    def counts(*measures: str) -> tuple[Ints, Bools]:
        """How many, and whether there are any, of each group."""
        which = np.asarray(pc.is_in(measure, pa.array(measures)))
        total = np.bincount(group[which], totals[which], minlength=n).astype(np.int64)
        return total, np.bincount(group[which], minlength=n) > 0

    sent, any_sent = counts(SENT)
    found[SENT] = pa.array(sent, mask=~any_sent)
    found["deliveries"] = pa.array(counts(EACH, BACKWARDS)[0])
    for of in LATENCIES:
        which = np.flatnonzero(np.asarray(pc.equal(measure, of)))
        for name, share in QUANTILES.items():
            wanted = base[which] + np.ceil(totals[which] * share).astype(np.int64)
            value, missing = np.zeros(n), np.ones(n, dtype=bool)
            value[group[which]] = tops[np.searchsorted(reached, wanted)] / 1e6
            missing[group[which]] = False
            found[f"{of}_{name}"] = pa.array(value, mask=missing)
    found[BACKWARDS] = pa.array(counts(BACKWARDS)[0])
    return pa.table(found)


def _starts(rows: pa.Table, names: Iterable[str]) -> tuple[Ints, Ints]:
    """Of sorted rows: each row's number among those that are equal in these columns, and where each of them starts."""
    changes = np.zeros(len(rows), dtype=bool)
    changes[:1] = True
    for name in names:
        code = ints(rows.column(name).combine_chunks().dictionary_encode().indices, -1)
        changes[1:] |= code[1:] != code[:-1]
    return np.cumsum(changes) - 1, np.flatnonzero(changes)
