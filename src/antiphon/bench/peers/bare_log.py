"""The bare replicated log: the ceiling for anything that is written in Python. It has both ends of its own."""

from __future__ import annotations

from pathlib import Path

from antiphon.bench import replicated_log
from antiphon.bench.cluster import Percentiles
from antiphon.bench.peers.contract import Figures, Peer, Work


class BareLog(Peer):
    name = "bare-log"
    title = "bare replicated log"
    keeps = "a majority, synced; never recovered"

    def missing(self) -> str | None:
        return None

    def measure(self, folder: Path, work: Work) -> Figures:
        found = replicated_log.measure(
            batch=work.batch, size=work.size, outstanding=work.outstanding, seconds=work.seconds, folder=folder
        )
        return Figures(
            messages_per_second=round(found["messages_per_second"], 1),
            receipt_ms=_rounded(found["receipt_ms"]),
            latency_ms=_rounded(found["latency_ms"]),
        )


def _rounded(found: dict[str, float]) -> Percentiles:
    return Percentiles(round(found["p50"], 3), round(found["p99"], 3))
