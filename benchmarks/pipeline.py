"""How long Spark takes to verify and measure a trace, and whether ten times the rows take ten times as long.

python benchmarks/pipeline.py --rows 2000000 --growth 10
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon.trace import EVENTS, RunFacts, write_facts

GROUPS = {f"g{g}": [f"g{g}.{m}" for m in (1, 2, 3)] for g in (1, 2, 3)}
MEMBERS = [member for members in GROUPS.values() for member in members]
SENDERS = [*MEMBERS, "c1", "c2", "c3"]
DESTINATIONS = [("g1",), ("g2",), ("g3",), ("g1", "g2"), ("g2", "g3"), ("g1", "g3"), ("g1", "g2", "g3")]
SHARES = [0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1]
ROWS_PER_MESSAGE = 33.7  # a multicast; per addressed process three frames, each sent and received, and a delivery
PROMISES = [
    "integrity", "validity", "agreement", "uniform_agreement", "total_order", "acyclic_order", "fifo", "causal",
    "genuineness",
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
    next_seq = np.zeros(len(SENDERS), dtype=np.int64)
    written = 0
    messages = int(rows / ROWS_PER_MESSAGE)
    for part, first in enumerate(range(0, messages, CHUNK)):
        table = _chunk(random, first, min(CHUNK, messages - first), next_seq, keys=keys)
        pq.write_table(table, events / f"part-{part:05d}.parquet", compression="zstd")
        written += table.num_rows
    return written


def _chunk(random: np.random.Generator, first: int, count: int, next_seq: Ints, *, keys: bool) -> pa.Table:
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
    legs = [(s, p, t0, 0), (p, s, t0 + flight, 1), (s, p, t0 + 1_200_000, 2)]
    parts = [(sender, start, 0, np.arange(count), None, -1), (p, last, 1, m, None, -1)]
    for source, target, sent, layer in legs:
        parts += [(source, sent, 2, m, target, layer), (target, sent + flight, 3, m, source, layer)]
    process = np.concatenate([part[0] for part in parts])
    when = np.concatenate([part[1] for part in parts])
    kind = np.concatenate([np.full(len(part[0]), part[2]) for part in parts])
    message = np.concatenate([part[3] for part in parts])
    peer = np.concatenate([np.full(len(part[0]), -1) if part[4] is None else part[4] for part in parts])
    layer = np.concatenate([np.full(len(part[0]), part[5]) for part in parts])
    order = np.argsort(when, kind="stable")
    process, when, kind, message, peer, layer = (a[order] for a in (process, when, kind, message, peer, layer))
    # What a process sends to itself is not in a trace.
    kept = process != peer
    process, when, kind, message, peer, layer = (a[kept] for a in (process, when, kind, message, peer, layer))
    names = pc.binary_join_element_wise(pa.array(SENDERS).take(sender), pc.cast(pa.array(number), pa.string()), ":")
    order_keys = pa.array([f"{n:012d}" for n in number])
    plain, deliver = kind <= 1, kind == 1
    table = {
        "process": pa.array(SENDERS).take(process),
        "seq": _numbered(process, next_seq),
        "time_ns": when,
        "kind": pa.array(KINDS).take(kind),
        "message": names.take(message),
        "destinations": pa.array(DESTINATIONS).take(pa.array(to[message], mask=~plain)),
        "peer": pa.array(SENDERS).take(pa.array(peer, mask=plain)),
        "layer": pa.array(LAYERS).take(pa.array(layer, mask=plain)),
        "bytes": pa.array(np.full(len(kind), 96), mask=plain),
        "step": pa.array(np.where(deliver, 3, np.maximum(layer, 0)), pa.int32()),
        "order_key": order_keys.take(pa.array(message, mask=~deliver if keys else np.ones(len(kind), bool))),
    }
    return pa.table([pa.array(table[field.name], field.type) for field in EVENTS], schema=EVENTS)


def _numbered(process: Ints, next_seq: Ints) -> Ints:
    by_process = np.argsort(process, kind="stable")
    counts = np.bincount(process, minlength=len(next_seq))
    starts = np.cumsum(counts) - counts
    seq = np.empty(len(process), dtype=np.int64)
    seq[by_process] = np.arange(len(process)) - np.repeat(starts - next_seq, counts)
    next_seq += counts
    return seq


def timed(what: str, rows: int, action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    seconds = time.perf_counter() - started
    print(f"  {what:<28} {seconds:7.1f} s {rows / seconds / 1e6:8.2f} M rows/s", flush=True)
    return seconds
