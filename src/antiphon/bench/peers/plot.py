"""A picture of a comparison: a panel of bars for each load."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.bench.peers.compare import PeerComparison, PeerRow

if TYPE_CHECKING:
    from antiphon.bench.peers.contract import Work

OURS, THEIRS, READ = "#1f77b4", "#9aa5b1", "#d5dae0"


def draw(found: PeerComparison, path: Path) -> None:
    """Rates, and the times of one message, on logarithmic scales: they differ by factors."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    shown = [work for work in found.works if found.of(work.name)]
    heights = [len(found.of(work.name)) for work in shown]
    figure, axes = plt.subplots(
        len(shown),
        1,
        figsize=(8.5, 1.0 * len(shown) + 0.34 * sum(heights)),
        height_ratios=heights,
        layout="constrained",
        squeeze=False,
    )
    for panel, work in zip(axes[:, 0], shown, strict=True):
        _panel(panel, work, found.of(work.name))
    figure.savefig(path)
    plt.close(figure)


def _panel(axes: Any, work: Work, rows: list[PeerRow]) -> None:
    places = range(len(rows))
    reach: list[float]
    colours = [OURS if row.peer == "antiphon" else THEIRS for row in rows]
    if work.name == "idle":
        read = [row.figures.latency_ms.p50 for row in rows]
        acknowledged = [row.figures.receipt_ms.p50 for row in rows]
        axes.barh(places, read, color=READ)
        axes.barh(places, acknowledged, height=0.4, color=colours)
        reach = [max(both) for both in zip(acknowledged, read, strict=True)]
        words = [f"{a:.2f} / {r:.2f}" for a, r in zip(acknowledged, read, strict=True)]
        least = min(acknowledged + read)
        axes.set_title("one message at a time: median ms to the acknowledgement (inner) and to a reader", fontsize=10)
    else:
        rates = [row.figures.messages_per_second for row in rows]
        axes.barh(places, rates, color=colours)
        reach, words, least = rates, [f"{rate:,.0f}" for rate in rates], min(rates)
        where = "one log" if work.groups == 1 else f"every message to {work.groups} groups"
        axes.set_title(f"{where}: messages a second, {work.size} bytes, batches of {work.batch}", fontsize=10)
    for place, end, word in zip(places, reach, words, strict=True):
        axes.annotate(word, (end, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(10 ** math.floor(math.log10(least) - 0.1), max(reach) * 3)
    axes.set_yticks(places, [f"{row.title}\n({row.keeps})" for row in rows], fontsize=7)
    axes.invert_yaxis()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
