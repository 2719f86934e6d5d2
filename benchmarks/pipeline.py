"""What it costs to verify and measure a trace with Spark, beside DuckDB and Polars in the same run (`pip install duckdb
polars`).

Each engine is a process of its own; its cost is the processor time of the whole tree of processes, Java's start and the
Python workers included. The shapes: `keys`, `duplicates` (2 % of the rows are there twice), `keyless`, `runs`, the
same number of rows in runs of 600 each, `clients`, of which all messages are clients' requests, acknowledged, and in
an order of real time, `clients-keyless`, the same without the keys that prove it; and forged ones, for Spark alone: in
the middle of the trace one process delivers two messages in the wrong order (`swapped`) or one of them not at all
(`lost`), with keys, without, and among clients' requests.

Example: python benchmarks/pipeline.py --rows 2000000 20000000 --shapes keys duplicates keyless
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from antiphon.trace import MAJORITY, RunFacts, write_facts, write_many_facts
from antiphon.trace.parquet import EVENTS, RUN

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
MESSAGES_PER_RUN = 18  # some 600 rows
DUPLICATES = 0.02
FORGED = {
    "swapped": {"total_order", "acyclic_order"},
    "lost": {"agreement", "uniform_agreement", "total_order", "fifo", "causal"},
}
FORGED |= {f"keyless-{how}": broken for how, broken in FORGED.items()}
FORGED["clients-swapped"] = FORGED["swapped"] | {"real_time_order"}
FORGED["clients-lost"] = FORGED["lost"] | {"client_order", "receipts", "durable_receipts"}
SHAPES = ["keys", "duplicates", "keyless", "runs", "clients", "clients-keyless", *FORGED]
KINDS = ["multicast", "deliver", "send", "receive", "receipt"]
LAYERS = ["start", "propose", "final", MAJORITY]
CLIENTS = [f"client{i}" for i in range(20)]

Ints = npt.NDArray[np.int64]


def write_trace(folder: Path, rows: int, shape: str) -> tuple[int, int]:
    """A trace of Skeen's shape (start, propose, final) in which all properties hold; returns the number of its
    rows, and of the bytes that they take when they are read."""
    random = np.random.default_rng(1)
    events = folder / "events"
    messages = int(rows / ROWS_PER_MESSAGE)
    per_run = MESSAGES_PER_RUN if shape == "runs" else None
    if per_run:
        names = [f"r{i}" for i in range(-(-messages // per_run))]
        write_many_facts(folder, "all", [_facts(name) for name in names])
    else:
        write_facts(folder, _facts("run", shape))
        events = events / "run=run"
    events.mkdir(parents=True)
    next_seq, next_position = (np.zeros(len(SENDERS), dtype=np.int64) for _ in range(2))
    next_request = np.zeros(len(CLIENTS) * len(DESTINATIONS), dtype=np.int64) if "clients" in shape else None
    written = decoded = 0
    for part, first in enumerate(range(0, messages, CHUNK)):
        count = min(CHUNK, messages - first)
        table = _chunk(
            random,
            first,
            count,
            next_seq,
            next_position,
            keys="keyless" not in shape,
            per_run=per_run,
            next_request=next_request,
        )
        if shape in FORGED and first + CHUNK >= messages // 2 > first:
            table = _forged(table, shape)
        if shape == "duplicates":
            again = np.flatnonzero(random.random(table.num_rows) < DUPLICATES)
            table = pa.concat_tables([table, table.take(again)])
        pq.write_table(table, events / f"part-{part:05d}.parquet", compression="zstd")
        written += table.num_rows
        decoded += table.nbytes
    return written, decoded


def _facts(run: str, shape: str = "keys") -> RunFacts:
    of_clients = ["durable_receipts", "real_time_order"] if "clients" in shape else []
    return RunFacts(
        run=run,
        driver="simulation",
        protocol="synthetic",
        groups=GROUPS,
        promises=[*PROMISES, *of_clients],
        drained=True,
        clock_error_ns=0,
    )


def _chunk(
    random: np.random.Generator,
    first: int,
    count: int,
    next_seq: Ints,
    next_position: Ints,
    *,
    keys: bool,
    per_run: int | None,
    next_request: Ints | None,
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
    if next_request is not None:
        parts.append((sender, start + 1_000, 4, np.arange(count), nobody[:count], LAYERS.index(MAJORITY)))
    process, when, message, peer = (np.concatenate([part[i] for part in parts]) for i in (0, 1, 3, 4))
    kind, layer = (np.concatenate([np.full(len(part[0]), part[i]) for part in parts]) for i in (2, 5))
    order = np.argsort(when, kind="stable")
    process, when, kind, message, peer, layer = (a[order] for a in (process, when, kind, message, peer, layer))
    # What a process sends to itself is not in a trace.
    kept = process != peer
    process, when, kind, message, peer, layer = (a[kept] for a in (process, when, kind, message, peer, layer))
    names = pc.binary_join_element_wise(pa.array(SENDERS).take(sender), pc.cast(pa.array(number), pa.string()), ":")
    order_keys = pa.array([f"{n:012d}" for n in number])
    named, plain, deliver = kind <= 1, (kind <= 1) | (kind == 4), kind == 1
    position = np.zeros(len(kind), dtype=np.int64)
    position[deliver] = _numbered(process[deliver], next_position)
    client, first_of = pa.array(SENDERS).take(sender), number
    if next_request is not None:
        asking = random.integers(0, len(CLIENTS), count)
        client, first_of = pa.array(CLIENTS).take(asking), _numbered(asking * len(DESTINATIONS) + to, next_request)
    own = {"client": client, "first": first_of, "payloads": np.ones(count, int), "digest": number}
    cells = pa.table(own, pa.schema(EVENTS.field("requests").type.value_type)).to_struct_array().combine_chunks()
    table = {
        "process": pa.array(SENDERS).take(process),
        "seq": _numbered(process, next_seq),
        "time_ns": when,
        "kind": pa.array(KINDS).take(kind),
        "message": names.take(pa.array(message, mask=~named)),
        "destinations": pa.array(DESTINATIONS).take(pa.array(to[message], mask=~plain)),
        "requests": _singly(cells).take(pa.array(message, mask=~plain)),
        "peers": _singly(pa.array(SENDERS)).take(pa.array(peer, mask=plain)),
        "about": _singly(names).take(pa.array(message, mask=plain)),
        "layer": pa.array(LAYERS).take(pa.array(layer, mask=named)),
        "bytes": pa.array(np.full(len(kind), 96), mask=plain),
        "step": pa.array(np.where(deliver, 3, np.maximum(layer, 0)), pa.int32()),
        "order_key": order_keys.take(pa.array(message, mask=~deliver if keys else np.ones(len(kind), bool))),
        # Of many runs the rows are numbered through, which a trace may do; positions may not, and are left out.
        "position": pa.array(position, mask=~deliver if per_run is None else np.ones(len(kind), bool)),
    }
    made = pa.table([_cast(table[field.name], field.type) for field in EVENTS], schema=EVENTS)
    if per_run is None:
        return made
    run = pc.binary_join_element_wise("r", pc.cast(pa.array((first + message) // per_run), pa.string()), "")
    return made.append_column(RUN, run)


def _forged(table: pa.Table, shape: str) -> pa.Table:
    """What one process delivers in the middle of the table: two messages in the other order, or one of them not."""
    of_one = (np.asarray(table["kind"]) == "deliver") & (np.asarray(table["process"]) == MEMBERS[0])
    rows = np.flatnonzero(of_one)
    one, other = rows[len(rows) // 2 : len(rows) // 2 + 2].tolist()
    if shape.endswith("lost"):
        return table.filter(pa.array(np.arange(len(table)) != one))
    order = np.arange(len(table))
    order[[one, other]] = other, one
    taken = table.take(pa.array(order))
    for name in ("seq", "time_ns", "position"):  # where they stand stays as it was
        at = table.column_names.index(name)
        taken = taken.set_column(at, table.schema.field(name), table[name])
    return taken


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


# ---- the engines, each in a process of its own


def by_spark(folder: Path, memory_gib: int | None, rows: int, shape: str) -> Iterator[str]:
    """What `antiphon report` does before it draws: `verify` and `metrics` share their look at the trace."""
    from antiphon.pipeline.read import open_trace
    from antiphon.pipeline.session import spark_session
    from antiphon.pipeline.verify import verify_and_measure

    spark = spark_session("benchmark", memory_gib=memory_gib, rows=rows)
    yield "start"
    events, runs, _, scan = open_trace(spark, folder)
    yield "read"
    violations, measured = verify_and_measure(events, runs, scan=scan)
    _must_be_judged_right({row.property for row in violations.collect()}, shape)
    measured.runs.write.mode("overwrite").parquet(str(folder / "metrics"))
    yield "verify and metrics"


def by_duckdb(folder: Path, memory_gib: int | None, rows: int, shape: str) -> Iterator[str]:
    import pipeline_duckdb

    yield from pipeline_duckdb.judge(folder, GROUPS, memory_gib or 4)


def by_polars(folder: Path, memory_gib: int | None, rows: int, shape: str) -> Iterator[str]:
    import pipeline_polars

    yield from pipeline_polars.judge(folder, GROUPS)


ENGINES = {"spark": by_spark, "duckdb": by_duckdb, "polars": by_polars}


def _must_be_judged_right(broken: set[str], shape: str) -> None:
    if not FORGED.get(shape, set()) <= broken or (broken and shape not in FORGED):
        raise SystemExit(f"This trace is {shape}, and yet broken are: {sorted(broken)}")


def judge(engine: str, folder: Path, memory_gib: int | None, rows: int, shape: str) -> None:
    """In the engine's own process: print what each step took."""
    spent = {}
    before, started = 0.0, time.perf_counter()
    peaks = Peaks()
    for step in ENGINES[engine](folder, memory_gib, rows, shape):
        now = tree_seconds(os.getpid())
        spent[step] = now - before
        before = now
    found = {"steps": spent, "cpu": before, "wall": time.perf_counter() - started, **peaks.seen()}
    print(json.dumps(found), flush=True)


class Peaks:
    """The most that each process of the tree held, whether it is still there at the end or not."""

    def __init__(self) -> None:
        self._gib: dict[int, tuple[str, float]] = {}
        threading.Thread(target=self._watch, daemon=True).start()

    def seen(self) -> dict[str, float]:
        self._look()
        workers = [gib for pid, (name, gib) in self._gib.items() if name.startswith("python") and pid != os.getpid()]
        return {"peak_gib": sum(gib for _, gib in self._gib.values()), "worker_gib": max(workers, default=0.0)}

    def _watch(self) -> None:
        while True:
            self._look()
            time.sleep(2)

    def _look(self) -> None:
        for pid in tree(os.getpid()):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue  # it has ended
            told = dict(line.split(":", 1) for line in status.splitlines())
            if "VmHWM" in told:
                self._gib[pid] = told["Name"].strip(), int(told["VmHWM"].split()[0]) / 2**20


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        below.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found = [pid]
    for each in found:
        found += below.get(each, [])
    return found


def tree_seconds(pid: int) -> float:
    """The processor time of a process, of those below it, and of those of them that have ended."""
    ticks = 0
    for each in tree(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended, and its parent has its time
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def compare(folder: Path, rows: int, shape: str, engines: list[str], memory: dict[str, int | None]) -> None:
    written, decoded = write_trace(folder, rows, shape)
    size = sum(file.stat().st_size for file in folder.rglob("*.parquet")) / 1e6
    print(f"{shape}: {written:,} rows, {size:,.0f} MB, {decoded / 1e6:,.0f} MB when they are read", flush=True)
    cpu: dict[str, float] = {}
    for engine in engines:
        if engine != "spark" and ("keyless" in shape or shape in FORGED):
            continue  # their forms are ones with keys, and only count what is not in order
        command = [sys.executable, __file__, "--judge", engine, str(folder), "--rows", str(written), "--shapes", shape]
        given = ["--memory-gib", str(memory[engine])] if memory[engine] else []
        done = subprocess.run([*command, *given], stdout=subprocess.PIPE, text=True, check=engine == "spark")
        if done.returncode:
            print(f"  {engine:<8} did not end: exit code {done.returncode} (-9: it took all memory)", flush=True)
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        cpu[engine] = found["cpu"]
        steps = ", ".join(f"{step} {seconds:.1f}" for step, seconds in found["steps"].items())
        ratio = f", {cpu[engine] / cpu['duckdb']:.1f} times DuckDB" if engine != "duckdb" and "duckdb" in cpu else ""
        spent = f"{found['cpu']:8.1f} cpu s{found['wall']:8.1f} s{found['peak_gib']:6.1f} GiB"
        if found["worker_gib"]:
            spent += f" (of a worker {found['worker_gib'] * 1024:.0f} MiB)"
        print(f"  {engine:<8}{spent}{ratio} ({steps})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000_000])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["keys"])
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=["duckdb", "polars", "spark"])
    parser.add_argument("--memory-gib", type=int, default=None, help="for Spark's heap, and for the others")
    parser.add_argument("--peers-gib", type=int, default=None, help="for the others, where they get more")
    parser.add_argument("--judge", nargs=2, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.judge:
        engine, folder = arguments.judge
        return judge(engine, Path(folder), arguments.memory_gib, arguments.rows[0], arguments.shapes[0])
    spark, peers = arguments.memory_gib, arguments.peers_gib or arguments.memory_gib
    memory = {engine: spark if engine == "spark" else peers for engine in ENGINES}
    for rows in arguments.rows:
        for shape in arguments.shapes:
            with tempfile.TemporaryDirectory(prefix="antiphon-") as home:
                compare(Path(home), rows, shape, arguments.engines, memory)
    return None


if __name__ == "__main__":
    main()
