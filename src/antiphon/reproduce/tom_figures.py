"""Figures 2 and 3 of tom.txt, drawn from a reproduction."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from antiphon.reproduce.tom import Point, Reproduction

COLOURS = {10: "#1b6ca8", 500: "#2a9d5c", 1000: "#c8553d"}


def draw(result: Reproduction, folder: Path) -> None:
    """Write figure2.svg and figure3.svg."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "antiphon"
    import matplotlib.pyplot as plt

    ordinary = [point for point in result.points if not point.journal]
    figure, axes = plt.subplots(figsize=(7.2, 4.4))
    for size in sorted({p.size for p in ordinary}):
        for sets in (False, True):
            points = [p for p in ordinary if (p.size, p.sets, p.crashed) == (size, sets, 0)]
            label = f"{size} bytes, {'sets' if sets else 'one message'} per consensus"
            _line(axes, points, label, COLOURS.get(size, "#555555"), "-" if sets else "--")
    _finish(axes, "TOM, three groups of three: delivery rate against sending rate")
    figure.savefig(folder / "figure2.svg", bbox_inches="tight")
    figure.savefig(folder / "figure2.png", bbox_inches="tight", dpi=110)
    plt.close(figure)

    figure, axes = plt.subplots(figsize=(7.2, 4.4))
    for crashed, label in ((0, "no crash"), (3, "one coordinator killed in each group")):
        points = [p for p in ordinary if (p.size, p.sets, p.crashed) == (500, True, crashed)]
        _line(axes, points, label, "#2a9d5c" if not crashed else "#c8553d", "-")
    _finish(axes, "TOM with sets, 500 bytes: with and without crashed coordinators")
    figure.savefig(folder / "figure3.svg", bbox_inches="tight")
    figure.savefig(folder / "figure3.png", bbox_inches="tight", dpi=110)
    plt.close(figure)


def _line(axes: Any, points: Iterable[Point], label: str, colour: str, style: str) -> None:
    ordered = sorted(points, key=lambda point: point.reached_per_s)
    if ordered:
        xs, ys = [p.reached_per_s for p in ordered], [p.delivered_per_s for p in ordered]
        axes.plot(xs, ys, style, marker="o", markersize=3.5, color=colour, label=label)


def _finish(axes: Any, title: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("messages sent per second")
    axes.set_ylabel("messages delivered per second")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3, which="both", linewidth=0.5)
    axes.legend(fontsize=8, frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
