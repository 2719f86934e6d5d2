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
STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "antiphon",
    "axes.spines.top": False,
    "axes.spines.right": False,
    **{name: INK for name in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")},
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
