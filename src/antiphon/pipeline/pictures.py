"""Draws a run with matplotlib: its deliveries over time, its latencies, and a few messages in space and time."""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

INK = "#1f2328"  # becomes the page's own text colour in SVG, so that a picture suits light and dark pages
COLOURS = ["#2f81f7", "#e8833a", "#2da44e", "#a371f7", "#d4a72c", "#e5534b"]
CRASHED, RECOVERED = "#e5534b", "#2da44e"
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


def png(figure: Figure) -> bytes:
    out = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(out, format="png", dpi=150, facecolor="white")
    return out.getvalue()


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


def _colour_of(groups: dict[str, list[str]], process: str) -> str:
    for place, members in enumerate(groups.values()):
        if process in members:
            return COLOURS[place % len(COLOURS)]
    return "#8b949e"


def deliveries_over_time(
    groups: dict[str, list[str]],
    counts: dict[str, list[tuple[float, int]]],
    marks: Sequence[tuple[str, str, float]],
    slice_s: float,
) -> Figure:
    """A lane per process, as high as it delivers; where it crashed and came back. Times in seconds."""
    with mpl.rc_context(STYLE):
        lanes = len(set(counts) | {p for members in groups.values() for p in members})
        figure, axes = _canvas(9.6, 1.1 + 0.36 * lanes)
        heights = _lanes(axes, groups, counts)
        top = max((count for slices in counts.values() for _, count in slices), default=1)
        end = max((at + slice_s for slices in counts.values() for at, _ in slices), default=1.0)
        for process, y in heights.items():
            colour = _colour_of(groups, process)
            starts = [place * slice_s for place in range(round(end / slice_s))]
            number = {round(at / slice_s): count for at, count in counts.get(process, [])}
            # By the square root: a burst after an outage must not flatten the ordinary flow.
            level = [y + 0.82 * (number.get(place, 0) / top) ** 0.5 for place in range(len(starts))]
            axes.fill_between(starts, y, level, step="post", color=colour, alpha=0.75, linewidth=0)
            axes.axhline(y, color=INK, linewidth=0.5, alpha=0.35)
        _draw_marks(axes, heights, marks, end)
        axes.set_xlim(0, end)
        axes.set_ylim(min(heights.values(), default=0) - 0.3, 0.95)
        axes.set_xlabel("seconds since the run began")
        return figure


def _draw_marks(axes: Any, heights: dict[str, float], marks: Sequence[tuple[str, str, float]], end: float) -> None:
    """Down times are shaded; a cross where a process was killed, a triangle where it came back."""
    down: dict[str, float] = {}
    for process, kind, at in sorted(marks, key=lambda mark: mark[2]):
        if process not in heights:
            continue
        y = heights[process]
        if kind == "crash":
            down.setdefault(process, at)
            axes.plot(at, y + 0.4, marker="X", color=CRASHED, markersize=9, markeredgecolor="white", zorder=4)
        else:
            _shade(axes, y, down.pop(process, at), at)
            axes.plot(at, y + 0.4, marker="^", color=RECOVERED, markersize=9, markeredgecolor="white", zorder=4)
        axes.axvline(at, color=CRASHED if kind == "crash" else RECOVERED, linewidth=0.8, linestyle=(0, (2, 3)))
    for process, since in down.items():
        _shade(axes, heights[process], since, end)
    if marks:
        shown = [("X", CRASHED, "killed"), ("^", RECOVERED, "recovered")]
        handles = [Line2D([], [], marker=m, color=c, linestyle="", markersize=8, label=text) for m, c, text in shown]
        axes.legend(
            handles=handles, loc="lower right", bbox_to_anchor=(1, 1.0), ncols=2, frameon=False, fontsize=9,
            borderaxespad=0.2,
        )  # fmt: skip


def _shade(axes: Any, y: float, start: float, end: float) -> None:
    axes.fill_between([start, end], y, y + 0.82, color=CRASHED, alpha=0.14, linewidth=0)


def latencies(shares: dict[int, list[tuple[float, float, int]]], marks: dict[int, dict[str, float]]) -> Figure:
    """A ridge per number of destination groups: (from ms, to ms, count) on a log scale, with its p50 and p99."""
    with mpl.rc_context(STYLE):
        figure, axes = _canvas(9.6, 1.2 + 0.95 * max(len(shares), 1))
        axes.set_xscale("log")
        for place, (number, bins) in enumerate(sorted(shares.items())):
            colour = COLOURS[place % len(COLOURS)]
            top = max(count for _, _, count in bins)
            for low, high, count in bins:
                level = -place + 0.78 * count / top
                axes.fill_between([low, high], -place, level, color=colour, alpha=0.8, linewidth=0)
            axes.axhline(-place, color=INK, linewidth=0.5, alpha=0.35)
            for name, side in (("p50", "right"), ("p99", "left")):
                at = marks[number][name]
                axes.plot([at, at], [-place, -place + 0.84], color=INK, linewidth=1.1)
                axes.text(at, -place + 0.86, f" {name} {_ms(at)} ", fontsize=8.5, ha=side, va="bottom")
        names = [f"{number} group{'s' if number != 1 else ''}" for number in sorted(shares)]
        axes.set_yticks([-place for place in range(len(names))], names)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_ylim(-max(len(names) - 1, 0) - 0.08, 1.15)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if _leading(value) in (2, 5) else "")
        axes.set_xlabel("milliseconds from multicast to delivery")
        return figure


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def _leading(value: float) -> int:
    return int(f"{value:.0e}"[0])


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
