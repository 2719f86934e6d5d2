"""Figures 5 and 6 of toto.txt, and the curves beyond them, drawn from what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from antiphon.reproduce.toto import SOURCES, Measured, Source

COLOURS = ("#1b6ca8", "#2a9d5c", "#c8553d", "#8a63b3")
TITLES: dict[Source, str] = {"periodic": "periodic sources", "poisson": "Poisson sources"}


class Curve(NamedTuple):
    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    dashes: str = "-"


class Panel(NamedTuple):
    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    log_x: bool = False
    ticks: Sequence[float] = ()


def draw_indices(path: Path, found: Mapping[tuple[Source, int], Measured]) -> None:
    """Figures 5 and 6: how often ToTo's index of latency is what."""
    plt = _matplotlib()
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
    for axes, source, number in zip(panels, SOURCES, (5, 6), strict=True):
        loads = [load for of, load in found if of == source]
        width = 0.8 / max(len(loads), 1)
        for i, load in enumerate(loads):
            shares = index_shares(found[source, load])
            places = [tau + (i - (len(loads) - 1) / 2) * width for tau in shares]
            axes.bar(places, [100 * share for share in shares.values()], width, color=COLOURS[i % 4], label=f"{load}/s")
        axes.set_xticks(sorted({tau for measured in found.values() for tau, _ in measured.pairs}))
        axes.set_axisbelow(True)
        axes.set_title(f"Figure {number}: {TITLES[source]}", fontsize=10)
        axes.set_xlabel("index of latency")
        axes.grid(axis="y", alpha=0.25)
    panels[0].set_ylabel("% of all deliveries")
    panels[1].legend(fontsize=8, frameon=False)
    _save(plt, figure, path)


def index_shares(found: Measured) -> dict[int, float]:
    """The distribution of τ."""
    total = found.pairs.total()
    indices = sorted({tau for tau, _ in found.pairs})
    return {i: sum(count for (tau, _), count in found.pairs.items() if tau == i) / total for i in indices}


def draw_curves(path: Path, panels: Sequence[Panel]) -> None:
    plt = _matplotlib()
    figure, rows = plt.subplots(1, len(panels), figsize=(4.5 * len(panels), 3.5), layout="constrained", squeeze=False)
    for axes, panel in zip(rows[0], panels, strict=True):
        for curve, colour in zip(panel.curves, COLOURS, strict=False):
            axes.plot(
                curve.xs,
                curve.ys,
                curve.dashes,
                marker="o",
                markersize=3,
                linewidth=1.3,
                color=colour,
                label=curve.name,
            )
        if panel.log_x:
            axes.set_xscale("log", base=2)
        if panel.ticks:
            axes.set_xticks(panel.ticks, [f"{tick:g}" for tick in panel.ticks])
        axes.set_ylim(bottom=0)
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel(panel.x_label)
        axes.set_ylabel(panel.y_label)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8, frameon=False)
    _save(plt, figure, path)


def _matplotlib() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "antiphon"  # the same picture from the same figures
    from matplotlib import pyplot as plt

    return plt


def _save(plt: Any, figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
