"""Draws with matplotlib: a few messages of a run in space and time, as the report's page does by itself."""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

INK = "#1f2328"  # becomes the page's own text colour in SVG, so that a picture suits light and dark pages
COLOURS = ["#2f81f7", "#e8833a", "#2da44e", "#a371f7", "#d4a72c", "#e5534b"]
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "antiphon",
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}


@dataclass(frozen=True)
class Frame:
    """A protocol message: sent at one process, received at another, or not."""

    sender: str
    receiver: str
    message: str
    sent_ns: int
    received_ns: int | None


def svg(figure: Figure) -> str:
    """The figure as an element of an HTML page."""
    out = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"font-family: [^;\"]*", "font-family: inherit", text)
    text = re.sub(r"(font: [^;\"]*?px) [^;\"]*", r"\1 inherit", text)
    return re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)


def _canvas(width: float, height: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _lanes(axes: Any, groups: dict[str, list[str]], others: Iterable[str]) -> dict[str, float]:
    """Give every process a height, group under group, and write its name beside it."""
    heights: dict[str, float] = {}
    y = 0.0
    outside = sorted(set(others) - {p for members in groups.values() for p in members})
    for members in [*groups.values(), outside]:
        for process in members:
            if process not in heights:
                heights[process] = y
                y -= 1.0
        y -= 0.45
    axes.set_yticks(list(heights.values()), list(heights), fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return heights


def space_time(
    groups: dict[str, list[str]],
    frames: Sequence[Frame],
    multicasts: Sequence[tuple[str, str, int]],
    deliveries: Sequence[tuple[str, str, int]],
) -> Figure:
    """A line per process and an arrow per frame: the life of a few messages, from multicast to delivery."""
    with mpl.rc_context(STYLE):
        names = [message for _, message, _ in sorted(multicasts, key=lambda mark: mark[2])]
        colour = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(dict.fromkeys(names))}
        seen = {p for p, _, _ in [*multicasts, *deliveries]} | {p for f in frames for p in (f.sender, f.receiver)}
        shown = {group: members for group, members in groups.items() if seen & set(members)}
        lanes = len(seen | {p for members in shown.values() for p in members})
        figure, axes = _canvas(9.6, 1.3 + 0.42 * lanes)
        heights = _lanes(axes, shown, seen)
        start = min((at for _, _, at in multicasts), default=0)
        for y in heights.values():
            axes.axhline(y, color=INK, linewidth=0.8, alpha=0.45, zorder=1)
        for frame in frames:
            _draw_frame(axes, heights, frame, start, colour.get(frame.message, INK))
        for marker, size, points in (("D", 8, multicasts), ("o", 9, _side_by_side(multicasts, deliveries))):
            for process, message, at in points:
                axes.plot(
                    (at - start) / 1e6, heights[process], marker=marker, markersize=size, color=colour[message],
                    markeredgecolor="white", markeredgewidth=0.9, zorder=4,
                )  # fmt: skip
        _explain(axes, colour)
        axes.margins(x=0.02)
        axes.set_xlabel("milliseconds since the first multicast")
        return figure


def _side_by_side(
    multicasts: Sequence[tuple[str, str, int]], deliveries: Sequence[tuple[str, str, int]]
) -> list[tuple[str, str, int]]:
    """Deliveries of one process that would cover one another, moved apart in their order."""
    times = [at for _, _, at in [*multicasts, *deliveries]]
    gap = (max(times) - min(times)) // 75 if times else 0
    placed: list[tuple[str, str, int]] = []
    last: dict[str, int] = {}
    for process, message, at in deliveries:
        place = max(at, last.get(process, at - gap) + gap)
        last[process] = place
        placed.append((process, message, place))
    return placed


def _draw_frame(axes: Any, heights: dict[str, float], frame: Frame, start: int, colour: str) -> None:
    if frame.received_ns is None:
        return
    axes.annotate(
        "",
        xy=((frame.received_ns - start) / 1e6, heights[frame.receiver]),
        xytext=((frame.sent_ns - start) / 1e6, heights[frame.sender]),
        arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 0.9, "alpha": 0.55, "shrinkA": 0, "shrinkB": 0},
        zorder=2,
    )


def _explain(axes: Any, colour: dict[str, str]) -> None:
    handles = [Line2D([], [], color=c, linewidth=3, label=name) for name, c in colour.items()]
    for marker, text in (("D", "multicast"), ("o", "delivery")):
        handles.append(Line2D([], [], marker=marker, color=INK, alpha=0.7, linestyle="", markersize=7, label=text))
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(handles), frameon=False, fontsize=9,
        borderaxespad=0.2,
    )  # fmt: skip


Half = tuple[str, str, str, str, int]  # sender, receiver, message, layer, time


def matched(sends: Iterable[Half], receives: Iterable[Half]) -> list[Frame]:
    """Pair the k-th send with the k-th receive of the same sender, receiver, message and layer."""
    arrivals: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for sender, receiver, message, layer, at in sorted(receives, key=lambda row: row[4]):
        arrivals[sender, receiver, message, layer].append(at)
    frames = []
    for sender, receiver, message, layer, at in sorted(sends, key=lambda row: row[4]):
        there = arrivals[sender, receiver, message, layer]
        frames.append(Frame(sender, receiver, message, at, there.pop(0) if there else None))
    return frames
