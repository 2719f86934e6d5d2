"""A picture of what was measured."""

from __future__ import annotations

from pathlib import Path

from antiphon.bench.cluster import ClusterFigures
from antiphon.bench.worker import BIN_SECONDS


def draw_rate(measured: ClusterFigures, path: Path) -> None:
    """Messages a second at the slowest reader over time."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    times = [index * BIN_SECONDS for index in range(len(measured.rates))]
    axes.fill_between(times, [rate / 1e3 for rate in measured.rates], step="post", alpha=0.35)
    axes.step(times, [rate / 1e3 for rate in measured.rates], where="post", linewidth=1.2)
    axes.axhline(measured.messages_per_second / 1e3, linestyle=":", linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, measured.load.seconds)
    axes.set_xlabel("seconds")
    axes.set_ylabel("thousand messages a second")
    axes.set_title(
        f"{measured.protocol}: {measured.messages_per_second:,.0f} messages a second in order, "
        f"p50 {measured.latency_ms.p50:.1f} ms",
        fontsize=10,
    )
    figure.savefig(path)
    plt.close(figure)
