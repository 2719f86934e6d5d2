"""How long Spark takes to verify and measure a trace, and whether ten times the rows take ten times as long.

Example: python benchmarks/pipeline.py --rows 2000000 --growth 10
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from antiphon.pipeline.metrics import metrics
from antiphon.pipeline.read import read_events, read_runs
from antiphon.pipeline.session import spark_session
from antiphon.pipeline.verify import verify
from antiphon.trace import RunFacts, write_facts
from antiphon.trace.parquet import EVENTS

GROUPS = {f"g{g}": [f"g{g}.{m}" for m in (1, 2, 3)] for g in (1, 2, 3)}
MEMBERS = [member for members in GROUPS.values() for member in members]
SENDERS = [*MEMBERS, "c1", "c2", "c3"]
DESTINATIONS = [("g1",), ("g2",), ("g3",), ("g1", "g2"), ("g2", "g3"), ("g1", "g3"), ("g1", "g2", "g3")]
SHARES = [0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1]
ROWS_PER_MESSAGE = 33.7  # a multicast; per addressed process three frames, each sent and received, and a delivery
PROMISES = [
    "integrity", "validity", "agreement", "uniform_agreement", "total_order", "acyclic_order", "fifo", "causal",
    "request_order", "client_order", "receipts", "genuineness",
]  # fmt: skip
CHUNK = 50_000
KINDS = ["multicast", "deliver", "send", "receive"]
LAYERS = ["start", "propose", "final"]

Ints = npt.NDArray[np.int64]


def write_trace(folder: Path, run: str, rows: int, *, keys: bool = True) -> int:
    """A run of Skeen's shape (start, propose, final) in which all properties hold; returns its number of rows."""
    random = np.random.default_rng(1)
    facts = RunFacts(run=run, driver="simulation", protocol="synthetic", groups=GROUPS, promises=PROMISES, drained=True)
    write_facts(folder, facts)
    events = folder / "events" / f"run={run}"
    events.mkdir(parents=True)
    next_seq, next_position = (np.zeros(len(SENDERS), dtype=np.int64) for _ in range(2))
    written = 0
    messages = int(rows / ROWS_PER_MESSAGE)
    for part, first in enumerate(range(0, messages, CHUNK)):
        table = _chunk(random, first, min(CHUNK, messages - first), next_seq, next_position, keys=keys)
        pq.write_table(table, events / f"part-{part:05d}.parquet", compression="zstd")
        written += table.num_rows
    return written


def _chunk(
    random: np.random.Generator, first: int, count: int, next_seq: Ints, next_position: Ints, *, keys: bool
) -> pa.Table:
    number = np.arange(first, first + count)
    sender = random.integers(0, len(SENDERS), count)
    to = random.choice(len(DESTINATIONS), count, p=SHARES)
    start = number * 20_000 + random.integers(0, 10_000, count)
    addressed = [[MEMBERS.index(p) for g in groups for p in GROUPS[g]] for groups in DESTINATIONS]
    sizes = np.array([len(a) for a in addressed])[to]
    m = np.repeat(np.arange(count), sizes)  # one entry per message and addressed process
    p = np.concatenate([addressed[t] for t in to])
    s, t0 = sender[m], start[m]
    flight = random.integers(400_000, 600_000, len(m))
    last = number[m] * 20_000 + 2_000_000 + p * 100  # deliveries keep the order of the numbers at each process
    nobody = np.full(len(m), -1)
    parts = [(sender, start, 0, np.arange(count), nobody[:count], -1), (p, last, 1, m, nobody, -1)]
    for leg, (source, target, sent) in enumerate([(s, p, t0), (p, s, t0 + flight), (s, p, t0 + 1_200_000)]):
        parts += [(source, sent, 2, m, target, leg), (target, sent + flight, 3, m, source, leg)]
    process, when, message, peer = (np.concatenate([part[i] for part in parts]) for i in (0, 1, 3, 4))
    kind, layer = (np.concatenate([np.full(len(part[0]), part[i]) for part in parts]) for i in (2, 5))
    order = np.argsort(when, kind="stable")
    process, when, kind, message, peer, layer = (a[order] for a in (process, when, kind, message, peer, layer))
    # What a process sends to itself is not in a trace.
    kept = process != peer
    process, when, kind, message, peer, layer = (a[kept] for a in (process, when, kind, message, peer, layer))
    names = pc.binary_join_element_wise(pa.array(SENDERS).take(sender), pc.cast(pa.array(number), pa.string()), ":")
    order_keys = pa.array([f"{n:012d}" for n in number])
    plain, deliver = kind <= 1, kind == 1
    position = np.zeros(len(kind), dtype=np.int64)
    position[deliver] = _numbered(process[deliver], next_position)
    own = {"client": pa.array(SENDERS).take(sender), "first": number, "payloads": np.ones(count, int), "digest": number}
    cells = pa.table(own, pa.schema(EVENTS.field("requests").type.value_type)).to_struct_array().combine_chunks()
    table = {
        "process": pa.array(SENDERS).take(process),
        "seq": _numbered(process, next_seq),
        "time_ns": when,
        "kind": pa.array(KINDS).take(kind),
        "message": names.take(pa.array(message, mask=~plain)),
        "destinations": pa.array(DESTINATIONS).take(pa.array(to[message], mask=~plain)),
        "requests": _singly(cells).take(pa.array(message, mask=~plain)),
        "peers": _singly(pa.array(SENDERS)).take(pa.array(peer, mask=plain)),
        "about": _singly(names).take(pa.array(message, mask=plain)),
        "layer": pa.array(LAYERS).take(pa.array(layer, mask=plain)),
        "bytes": pa.array(np.full(len(kind), 96), mask=plain),
        "step": pa.array(np.where(deliver, 3, np.maximum(layer, 0)), pa.int32()),
        "order_key": order_keys.take(pa.array(message, mask=~deliver if keys else np.ones(len(kind), bool))),
        "position": pa.array(position, mask=~deliver),
    }
    return pa.table([_cast(table[field.name], field.type) for field in EVENTS], schema=EVENTS)


def _cast(values: Any, kind: pa.DataType) -> pa.Array:
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)


def _singly(values: pa.Array) -> pa.Array:
    """Each in a list of its own."""
    return pa.ListArray.from_arrays(np.arange(len(values) + 1, dtype=np.int32), values)


def _numbered(process: Ints, next_seq: Ints) -> Ints:
    by_process = np.argsort(process, kind="stable")
    counts = np.bincount(process, minlength=len(next_seq))
    starts = np.cumsum(counts) - counts
    seq = np.empty(len(process), dtype=np.int64)
    seq[by_process] = np.arange(len(process)) - np.repeat(starts - next_seq, counts)
    next_seq += counts
    return seq


class Meter:
    """Times what it calls. On a busy machine the tasks' own processor time says more than the clock."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext  # reaches into Java: Spark's own figures have no Python door

    def _tasks(self) -> tuple[float, float]:
        store = self._context._jsc.sc().statusStore()
        none = self._context._gateway.new_array(self._context._jvm.double, 0)
        stages = store.stageList(None, False, False, none, None)
        every = [stages.apply(i) for i in range(stages.size())]
        return sum(s.executorCpuTime() for s in every) / 1e9, sum(s.shuffleWriteBytes() for s in every) / 1e6

    def time(self, what: str, rows: int, action: Callable[[], object]) -> tuple[float, float]:
        cpu, shuffled = self._tasks()
        started = time.perf_counter()
        action()
        seconds = time.perf_counter() - started
        cpu, shuffled = (after - before for after, before in zip(self._tasks(), (cpu, shuffled), strict=True))
        rate = rows / seconds / 1e6
        print(
            f"  {what:<26}{seconds:8.1f} s{cpu:8.1f} cpu s{shuffled:8.0f} MB shuffled{rate:8.2f} M rows/s", flush=True
        )
        return seconds, cpu


def measure(spark: SparkSession, folder: Path, rows: int, *, warm: bool) -> tuple[float, float]:
    """Read, verify and measure one trace; the seconds and the processor seconds that took."""
    meter = Meter(spark)
    written = write_trace(folder, "run", rows)
    print(f"{written:,} rows{'' if warm else ' (and Java warms up)'}")
    parts = [meter.time("read, find duplicates", written, lambda: read_events(spark, folder))]
    events, runs = read_events(spark, folder), read_runs(spark, folder)
    parts.append(meter.time("verify", written, lambda: _must_hold(verify(events, runs))))
    parts.append(meter.time("metrics", written, lambda: metrics(events, runs).runs.collect()))  # noqa: PLW0108
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


def _must_hold(violations: DataFrame) -> None:
    found = violations.collect()
    if found:
        raise SystemExit(f"This trace is honest, and yet: {found[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--growth", type=int, default=10)
    parser.add_argument("--passes", type=int, default=2, help="of the smaller trace, before the larger one")
    arguments = parser.parse_args()
    spark = spark_session("benchmark")
    with tempfile.TemporaryDirectory(prefix="antiphon-") as home:
        for each in range(arguments.passes):
            small = measure(spark, Path(home) / f"small-{each}", arguments.rows, warm=each > 0)
        large = measure(spark, Path(home) / "large", arguments.rows * arguments.growth, warm=True)
    wall, cpu = (after / before for after, before in zip(large, small, strict=True))
    print(f"{arguments.growth} times the rows take {wall:.1f} times as long, {cpu:.1f} times the processor time.")


if __name__ == "__main__":
    main()
