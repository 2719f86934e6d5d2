"""Throughput, latency, bytes written and processor time of a cluster under one load."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from antiphon.bench import ends
from antiphon.bench.ends import BothEnds
from antiphon.bench.task import HEAD, WorkerTask, new_mark
from antiphon.core.errors import UsageError
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

RETAIN = "256MB"  # by each member of a cluster that is made only to be measured

TICKS = os.sysconf("SC_CLK_TCK")


class ClusterLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent. A batch of one is sent by single calls, which the client gathers."""

    batch: int = 100
    size: int = 100
    outstanding: int = 40
    fanout: int | None = None  # the first so many groups; None: all
    seconds: float = 5.0
    rate: float | None = None  # payloads a second; None: as many as may be outstanding

    def check(self) -> None:
        if self.rate is not None and self.rate <= 0:
            raise UsageError(f"A rate must be more than 0 payloads a second, not {self.rate:g}.")
        if self.batch < 1 or self.size < HEAD.size or self.outstanding < 1 or self.seconds <= 0:
            raise UsageError(
                f"A load needs at least 1 payload per batch, {HEAD.size} bytes per payload, 1 request outstanding, "
                "and some time."
            )


class Percentiles(msgspec.Struct, frozen=True):
    """Percentiles of what was observed, in milliseconds."""

    p50: float
    p99: float


class ClusterFigures(msgspec.Struct, kw_only=True):
    """The figures, as `antiphon bench cluster --json` prints them."""

    protocol: str
    groups: dict[str, int]
    destinations: list[str]
    load: ClusterLoad
    messages_per_second: float  # payloads, delivered in order at a reader of each destination group: the slowest's
    receipts_per_second: float
    latency_ms: Percentiles  # from the call to the delivery at a reader
    receipt_ms: Percentiles
    bytes_written_per_payload_byte: float  # by a member: the mean over members
    cpu_us_per_message: dict[str, float]  # client, member (the mean), busiest member, reader (the mean)
    rates: list[float]  # messages a second at the slowest reader, in tenths of a second


def measure(
    folder: ClusterFolder,
    load: ClusterLoad,
    beside: Callable[[float], None] = lambda begin: None,
    to: Sequence[str] | None = None,
) -> ClusterFigures:
    """Put a load on a running cluster, and look at it for ``load.seconds``; ``beside`` is called meanwhile, in a thread
    of its own, and told when that begins. ``to``: other groups than the first ones."""
    load.check()
    groups = list(folder.config.groups)
    if load.fanout is not None and not 1 <= load.fanout <= len(groups):
        raise UsageError(f"A fanout must be 1 to {len(groups)}, the number of groups, not {load.fanout}.")
    destinations = groups[: load.fanout] if to is None else list(to)
    sending = WorkerTask(
        role="client",
        target=str(folder.path.resolve()),
        groups=destinations,
        batch=load.batch,
        size=load.size,
        outstanding=load.outstanding,
        seconds=load.seconds,
        rate=load.rate,
        mark=new_mark(),
    )
    reading = [
        msgspec.structs.replace(sending, role="reader", groups=[group], place=place)
        for place, group in enumerate(destinations)
    ]

    def watch(begin: float) -> _Members:
        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(beside, begin)
            members = _watch_members(folder, destinations, begin, load.seconds)
            watching.result()
        return members

    seen, members = ends.load(sending, reading, watch)
    return _summary(folder, load, destinations, seen, members)


class _Members(msgspec.Struct):
    cpu_seconds: list[float]
    written: list[int]


def _watch_members(folder: ClusterFolder, destinations: Sequence[str], begin: float, seconds: float) -> _Members:
    """What each member of the destination groups spends and writes while the load is measured."""
    names = [folder.config.known(member) for group in destinations for member in folder.config.groups[group]]
    pids = cluster.alive(folder)
    looks: list[tuple[dict[str, float], dict[str, int]]] = []
    for moment in (begin, begin + seconds):
        time.sleep(max(0.0, moment - time.monotonic()))  # the workers have agreed on these moments
        cpu: dict[str, float] = {name: cpu_seconds(pid) for name in names if (pid := pids.get(name)) is not None}
        answers = cluster.statuses(folder)
        looks.append((cpu, {name: answer.written_bytes for name in names if (answer := answers[name]) is not None}))
    (cpu_before, written_before), (cpu_after, written_after) = looks
    return _Members(
        [cpu_after[name] - cpu_before[name] for name in cpu_after if name in cpu_before],
        [written_after[name] - written_before[name] for name in written_after if name in written_before],
    )


def cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def _summary(
    folder: ClusterFolder,
    load: ClusterLoad,
    destinations: list[str],
    seen: BothEnds,
    members: _Members,
) -> ClusterFigures:
    client, readers, slowest = seen.client, seen.readers, seen.slowest
    delivered = slowest.payloads
    payload_bytes = delivered * load.size

    def per_message(seconds: float) -> float:
        return round(seconds / delivered * 1e6, 4)

    return ClusterFigures(
        protocol=folder.config.protocol,
        groups={group: len(names) for group, names in folder.config.groups.items()},
        destinations=destinations,
        load=load,
        messages_per_second=round(delivered / load.seconds, 1),
        receipts_per_second=round(client.payloads / load.seconds, 1),
        latency_ms=percentiles([value for report in readers for value in report.latencies_ms]),
        receipt_ms=percentiles(client.latencies_ms),
        bytes_written_per_payload_byte=round(statistics.fmean(members.written) / payload_bytes, 3),
        cpu_us_per_message={
            "client": per_message(client.cpu_seconds),
            "member": per_message(statistics.fmean(members.cpu_seconds)),
            "busiest_member": per_message(max(members.cpu_seconds)),
            "reader": per_message(statistics.fmean([report.cpu_seconds for report in readers])),
        },
        rates=slowest.rates,
    )


def percentiles(values: list[float]) -> Percentiles:
    if len(values) < 2:
        return Percentiles(*(values * 2)) if values else Percentiles(0.0, 0.0)
    cuts = statistics.quantiles(values, n=100)
    return Percentiles(round(statistics.median(values), 3), round(cuts[98], 3))


@contextmanager
def running(path: Path, groups: dict[str, int], **options: Any) -> Iterator[ClusterFolder]:
    """Make a cluster, and end it whatever happens. It retains little unless told otherwise: it must not fill a disk."""
    folder = cluster.create(path, groups, trace=False, **{"retain": [RETAIN], **options})
    cluster.start(folder)
    try:
        yield folder
    finally:
        cluster.stop(folder, drain_seconds=2.0)
