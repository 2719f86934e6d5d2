"""All peers and all loads in one run, one after the other, so that the machine is the same for all of them."""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import SubprocessError

import msgspec

from antiphon.bench.cluster import Percentiles
from antiphon.bench.peers.contract import Figures, Peer, Work
from antiphon.bench.task import HEAD
from antiphon.core.errors import Unavailable, UsageError

WIDE = 3  # groups


class PeerRow(msgspec.Struct, kw_only=True):
    """A peer under a load: the median of the rounds, and all of them."""

    work: str
    peer: str
    title: str
    keeps: str
    batch: int
    processes: int
    figures: Figures
    rounds: list[Figures]


class Left(msgspec.Struct, kw_only=True):
    """What was not measured, and why."""

    peer: str
    title: str
    reason: str
    work: str | None = None  # None: it was not tried


class PeerComparison(msgspec.Struct, kw_only=True):
    """As `antiphon bench peers --json` prints it."""

    works: list[Work]
    rows: list[PeerRow]
    left: list[Left]
    cores: int
    machine: str
    load_average: tuple[float, float]  # of the minute before, and of the last one

    def of(self, work: str) -> list[PeerRow]:
        return [row for row in self.rows if row.work == work]


def works(*, batch: int, size: int, outstanding: int, seconds: float) -> list[Work]:
    """What all of them do: as much as they can, one message at a time, and to three groups at once."""
    if batch < 1 or size < HEAD.size or outstanding < 1 or seconds <= 0:
        raise UsageError(
            f"A load needs at least 1 payload per batch, {HEAD.size} bytes per payload, 1 batch outstanding, "
            "and some time."
        )
    return [
        Work(name="rate", batch=batch, size=size, outstanding=outstanding, seconds=seconds),
        Work(name="idle", batch=1, size=size, outstanding=1, seconds=seconds),
        Work(name="wide", groups=WIDE, batch=batch, size=size, outstanding=outstanding, seconds=seconds),
    ]


def compare(
    peers: Sequence[Peer],
    asked: Sequence[Work],
    *,
    rounds: int = 1,
    place: Path | None = None,
    told: Callable[[str], None] = lambda step: None,
) -> PeerComparison:
    """Measure each peer that can run with each load that it knows, in turn, so many times."""
    if place is not None and not place.is_dir():
        raise UsageError(f"{str(place)!r} is not a folder.")
    left = [
        Left(peer=peer.name, title=peer.title, reason=reason)
        for peer in peers
        if (reason := peer.missing()) is not None
    ]
    absent = {each.title for each in left}
    found: dict[tuple[str, str], list[Figures]] = {}
    before = os.getloadavg()[0]
    for _ in range(rounds):
        for work in asked:
            for peer in peers:
                if peer.title in absent or work.groups > peer.groups_max:
                    continue
                told(f"{peer.title}: {work.name}")
                try:
                    figures = _measure(peer, work, place)
                except (Unavailable, RuntimeError, OSError, SubprocessError) as error:  # the others go on
                    left.append(Left(peer=peer.name, title=peer.title, reason=str(error), work=work.name))
                else:
                    found.setdefault((work.name, peer.title), []).append(figures)
    rows = [
        _row(peer, work, found[key]) for work in asked for peer in peers if (key := (work.name, peer.title)) in found
    ]
    return PeerComparison(
        works=list(asked),
        rows=rows,
        left=left,
        cores=os.cpu_count() or 1,
        machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        load_average=(before, os.getloadavg()[0]),
    )


def _measure(peer: Peer, work: Work, place: Path | None) -> Figures:
    with tempfile.TemporaryDirectory(prefix=f"antiphon-{peer.name}-", dir=place, ignore_cleanup_errors=True) as folder:
        return peer.measure(Path(folder), work)


def _row(peer: Peer, work: Work, rounds: list[Figures]) -> PeerRow:
    return PeerRow(
        work=work.name,
        peer=peer.name,
        title=peer.title,
        keeps=peer.keeps,
        batch=peer.batch(work),
        processes=peer.processes(work),
        figures=_median(rounds),
        rounds=rounds,
    )


def _median(rounds: list[Figures]) -> Figures:
    def percentiles(name: str) -> Percentiles:
        each: list[Percentiles] = [getattr(figures, name) for figures in rounds]
        return Percentiles(*(round(statistics.median(getattr(one, p) for one in each), 3) for p in ("p50", "p99")))

    return Figures(
        messages_per_second=statistics.median(figures.messages_per_second for figures in rounds),
        receipt_ms=percentiles("receipt_ms"),
        latency_ms=percentiles("latency_ms"),
    )
