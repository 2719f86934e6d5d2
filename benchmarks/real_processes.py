"""Every protocol on real processes: 1,000 messages through a kill -9, judged by Spark.

Where frames travel as datagrams, every tenth is thrown away. Where one order goes through all groups, these are asked
to raise their floors meanwhile, and all that was delivered must come into one table (`antiphon merge`).

    python benchmarks/real_processes.py [PROTOCOL[:OPTION=VALUE,...] ...]

Each gets a cluster of its own, with two groups of three and two members.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

import antiphon
from antiphon.cli.session import collected, quiet_session
from antiphon.core import parse_options
from antiphon.core.errors import UsageError
from antiphon.merge import MergedTable, advance, await_disks, find_logs, floors_of
from antiphon.protocols import protocol_named, protocols, protocols_with
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterConfig, ClusterFolder

MESSAGES = 1_000
OUTSTANDING = 50
SIZES = {"a": 3, "b": 2}
DRAIN_SECONDS = 30
LOSSY = {"transport": "datagram"}
DROP = 10  # per cent of the datagrams


class Ran(msgspec.Struct, kw_only=True):
    """What came of one protocol."""

    protocol: str
    options: dict[str, str]
    refused: str = ""  # why it does not run on real processes with these options
    receipts: int = 0
    seconds: float = 0.0
    drained: bool = False
    delivered: int = 0  # payloads, by each member together
    broken: list[str] = []  # what Spark found
    verdicts: dict[str, str] = {}
    merged: int | None = None  # payloads in the table of all groups; None: the protocol has no order across them

    @property
    def holds(self) -> bool:
        kept = self.verdicts and set(self.verdicts.values()) <= {"holds", "not promised"}
        merged = self.merged in (None, MESSAGES)
        return bool(
            self.refused or (self.drained and kept and merged and not self.broken and self.receipts == MESSAGES)
        )


def parse(text: str) -> tuple[str, dict[str, str]]:
    name, _, options = text.partition(":")
    return name, dict(pair.split("=", 1) for pair in options.split(",") if pair)


def everything() -> list[tuple[str, dict[str, str]]]:
    """Every protocol, and once more those that can mend losses."""
    lossy = protocols_with("transport", LOSSY["transport"])
    return [*((name, {}) for name in sorted(protocols())), *((name, LOSSY) for name in sorted(lossy))]


def destination_sets(protocol: str) -> list[list[str]]:
    assumes = protocol_named(protocol).declaration.assumes
    if assumes.one_group:
        return [["a"], ["b"]]
    return [["a", "b"]] if assumes.all_groups else [["a"], ["b"], ["a", "b"]]


def can_advance(config: ClusterConfig) -> bool:
    kind = protocol_named(config.protocol)
    return kind.can_advance(parse_options(kind, config.options))


async def load(folder: ClusterFolder, sets: list[list[str]]) -> int:
    """1,000 multicasts; a member is killed after a third of them, and returns after the second third."""
    rng = random.Random(1)
    room = asyncio.Semaphore(OUTSTANDING)
    async with antiphon.connect(folder.path) as client:

        async def send() -> None:
            async with room:
                await client.multicast(rng.choice(sets), b"x" * 50)

        third = MESSAGES // 3
        await asyncio.gather(*(send() for _ in range(third)))
        for process in ("a.1", "b.2") if can_advance(folder.config) else ():
            tell = partial(cluster.tell, folder.config, process, ["advance", "floor=5000"])
            await asyncio.to_thread(tell)
        await asyncio.to_thread(cluster.kill, folder, "a.2")
        during = [asyncio.ensure_future(send()) for _ in range(third)]
        await asyncio.sleep(1.0)
        await asyncio.to_thread(cluster.start, folder)
        await asyncio.gather(*during, *(send() for _ in range(MESSAGES - 2 * third)))
    return MESSAGES


def run_one(place: Path, protocol: str, options: dict[str, str], number: int) -> tuple[Ran, ClusterFolder | None]:
    ran = Ran(protocol=protocol, options=options)
    try:
        drop = DROP if LOSSY.items() <= options.items() else 0
        run = f"{number:02d}-{protocol}"
        folder = cluster.create(place, SIZES, protocol=protocol, options=options, run=run, drop=drop)
    except UsageError as error:
        ran.refused = str(error)
        return ran, None
    cluster.start(folder)
    begun = time.monotonic()
    try:
        ran.receipts = asyncio.run(load(folder, destination_sets(protocol)))
        ran.seconds = time.monotonic() - begun
        if can_advance(folder.config):
            cluster.wait_idle(folder, DRAIN_SECONDS)  # what is delivered later could be beyond the floors
            config, logs = find_logs([place])
            await_disks(folder, logs)
            advance(folder, logs, floors_of(config, logs), DRAIN_SECONDS)
    finally:
        ran.drained = cluster.stop(folder, drain_seconds=DRAIN_SECONDS)
    return ran, folder


def judge(ran: Ran, folder: ClusterFolder) -> None:
    from pyspark.sql import functions as F

    from antiphon.pipeline.read import read_events, read_runs
    from antiphon.pipeline.verify import verdicts, verify

    trace = folder.trace
    spark = quiet_session(trace)
    events, runs = read_events(spark, trace), read_runs(spark, trace)
    violations = verify(events, runs)
    ran.verdicts = {row["property"]: row["status"] for row in collected(verdicts(violations, runs))}
    ran.broken = [f"{row['property']}: {row['detail']}" for row in collected(violations)]
    delivered = events.filter("kind = 'deliver'").select(F.explode("requests.payloads").alias("payloads"))
    (row,) = delivered.agg(F.sum("payloads").alias("payloads")).collect()
    ran.delivered = row.payloads or 0
    if can_advance(folder.config):
        from antiphon.merge import merge

        config, logs = find_logs([folder.path])
        ran.merged = merge(spark, floors_of(config, logs), MergedTable.prepare(folder.path / "table", config)).rows


def run_all(asked: list[tuple[str, dict[str, str]]]) -> list[Ran]:
    with tempfile.TemporaryDirectory(prefix="antiphon-real-") as temporary:
        done = [
            run_one(Path(temporary) / str(number), protocol, options, number)
            for number, (protocol, options) in enumerate(asked)
        ]
        for ran, folder in done:
            if folder is not None:
                judge(ran, folder)
    return [ran for ran, _ in done]


def show(console: Console, done: list[Ran]) -> None:
    table = Table("protocol", "receipts", "delivered", "seconds", "verdict", box=None)
    for ran in done:
        options = "".join(f" {name}={value}" for name, value in ran.options.items())
        verdict = ran.refused or ("every promise holds" if ran.holds else "; ".join(ran.broken) or f"{ran.verdicts}")
        figures = (f"{ran.receipts:,}", f"{ran.delivered:,}", f"{ran.seconds:.1f}")
        table.add_row(f"{ran.protocol}{options}", *figures, verdict)
    console.print(table)


def main() -> int:
    done = run_all([parse(text) for text in sys.argv[1:]] or everything())
    show(Console(width=160), done)
    return 0 if all(ran.holds for ran in done) else 1


if __name__ == "__main__":
    sys.exit(main())
