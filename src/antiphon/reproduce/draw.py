"""Pictures of results: curves and bars, as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

COLOURS = ("#1b6ca8", "#2a9d5c", "#c8553d", "#8a63b3", "#b8860b", "#555555")


class Curve(NamedTuple):
    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    dashes: str = "-"
    colour: str = ""
    width: float = 1.3


class Panel(NamedTuple):
    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    log_x: bool = False
    log_y: bool = False
    ticks: Sequence[float] = ()
    top: float | None = None


class Bars(NamedTuple):
    """Shares by whole numbers, side by side for each name."""

    title: str
    x_label: str
    y_label: str
    shares: Mapping[str, Mapping[int, float]]


def draw(path: Path, panels: Iterable[Panel | Bars], columns: int = 2) -> None:
    """The panels, so many in a row, with one legend each where they differ, else one for all."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "antiphon"  # the same picture from the same figures
    from matplotlib import pyplot as plt

    drawn = list(panels)
    columns = min(columns, len(drawn))
    shape = (-(-len(drawn) // columns), columns)
    size = (4.5 * shape[1] + (1.5 if columns == 1 else 0), 3.5 * shape[0])
    figure, grid = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    places = [axes for line in grid for axes in line]
    for axes, panel in zip(places, drawn, strict=False):
        if isinstance(panel, Bars):
            _bars(axes, panel)
        else:
            _curves(axes, panel)
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel(panel.x_label)
        axes.set_ylabel(panel.y_label)
        axes.grid(alpha=0.25)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    for axes in places[len(drawn) :]:
        axes.set_visible(False)
    _legends(figure, places[: len(drawn)])
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _curves(axes: Any, panel: Panel) -> None:
    for i, curve in enumerate(panel.curves):
        colour = curve.colour or COLOURS[i % len(COLOURS)]
        marks = {"marker": "o", "markersize": curve.width + 1.7, "linewidth": curve.width}
        axes.plot(curve.xs, curve.ys, curve.dashes, color=colour, label=curve.name, **marks)
    if panel.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:.0f}")
    if panel.log_y:
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:.0f}")
    if panel.ticks:
        axes.set_xticks(panel.ticks, [f"{tick:g}" for tick in panel.ticks])
        axes.minorticks_off()
    if not panel.log_y:
        axes.set_ylim(0, panel.top)


def _bars(axes: Any, panel: Bars) -> None:
    width = 0.8 / max(len(panel.shares), 1)
    for i, (name, shares) in enumerate(panel.shares.items()):
        places = [x + (i - (len(panel.shares) - 1) / 2) * width for x in shares]
        axes.bar(places, [100 * share for share in shares.values()], width, color=COLOURS[i % 4], label=name)
    axes.set_xticks(sorted({x for shares in panel.shares.values() for x in shares}))
    axes.set_axisbelow(True)


def _legends(figure: Any, places: Sequence[Any]) -> None:
    """One for all panels if they show the same, below them, where it hides nothing; else one in each."""
    labels = [axes.get_legend_handles_labels()[1] for axes in places]
    if all(each == labels[0] for each in labels):
        handles, names = places[0].get_legend_handles_labels()
        columns = min(len(names), 5 if len(places) > 1 else 2)
        figure.legend(handles, names, fontsize=8, frameon=False, loc="outside lower center", ncols=columns)
        return
    for axes, names in zip(places, labels, strict=True):
        if len(names) > 1:
            axes.legend(fontsize=8, frameon=False)
