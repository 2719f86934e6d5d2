"""A space-time diagram of the few events that prove a violation, as SVG: a line for each process, time from left to
right. Events stand in their order, at equal distances; the times themselves are written below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

LEFT, TOP, STEP, LANE, BOTTOM = 110, 46, 118, 62, 34
COLOURS = ["#2563eb", "#b45309", "#15803d", "#9333ea", "#be123c", "#0e7490"]
PLAIN = "#475569"  # of what is about no message
SVG = 'xmlns="http://www.w3.org/2000/svg" class="proof" role="img"'
STYLE = (
    ".proof text{font:12px system-ui,sans-serif;fill:#334155}.proof .who{font-weight:600;text-anchor:end}"
    ".proof .small{font-size:10px;fill:#64748b}.proof .middle{text-anchor:middle}.proof .lane{stroke:#cbd5e1}"
    ".proof .title{font-weight:600}"
)


def diagram(violation: Mapping[str, Any]) -> str:
    """The picture of a violation that has its `events`."""
    events: Sequence[Mapping[str, Any]] = violation["events"]
    missing: Sequence[Mapping[str, str | None]] = violation["missing"]
    lanes = {name: i for i, name in enumerate(sorted({row["process"] for row in (*events, *missing)}))}
    messages = dict.fromkeys(name for row in (*events, *missing) if (name := _subject(row)))
    colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(messages)}
    columns = len(events) + bool(missing)
    width, height = LEFT + max(columns, 1) * STEP + 20, TOP + len(lanes) * LANE + BOTTOM
    start = min((row["time_ns"] for row in events), default=0)
    parts = [
        f'<svg {SVG} viewBox="0 0 {width} {height}" width="{width}">',
        f"<style>{STYLE}</style>",
        f'<text x="12" y="20" class="title">{escape(violation["run"])}: {escape(violation["property"])}</text>',
    ]
    for name, lane in lanes.items():
        y = _y(lane)
        parts.append(f'<line x1="{LEFT}" y1="{y}" x2="{width - 12}" y2="{y}" class="lane"/>')
        parts.append(f'<text x="{LEFT - 12}" y="{y + 4}" class="who">{escape(name)}</text>')
    parts += _journeys(events, lanes, colour)
    for place, row in enumerate(events):
        x, y = _x(place), _y(lanes[row["process"]])
        parts.append(_mark(row["kind"], x, y, colour.get(_subject(row) or "", PLAIN)))
        parts.append(f'<text x="{x}" y="{y - 14}" class="middle">{escape(_label(row))}</text>')
        parts.append(f'<text x="{x}" y="{y + 22}" class="small middle">{escape(_where(row))}</text>')
        parts.append(
            f'<text x="{x}" y="{height - 10}" class="small middle">+{(row["time_ns"] - start) / 1e6:.3f} ms</text>'
        )
    for row in missing:
        x, y = _x(len(events)), _y(lanes[row["process"]])
        hue = colour.get(row["message"] or "", PLAIN)
        parts.append(f'<circle cx="{x}" cy="{y}" r="7" fill="#fff" stroke="{hue}" stroke-dasharray="3 3"/>')
        parts.append(
            f'<text x="{x}" y="{y - 14}" class="middle">{escape(row["message"] or "the request")} is missing</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _subject(row: Mapping[str, Any]) -> str | None:
    found: str | None = row["message"] or next(iter(row.get("about") or ()), None)
    return found


def _x(place: int) -> int:
    return LEFT + STEP // 2 + place * STEP


def _y(lane: int) -> int:
    return TOP + LANE // 2 + lane * LANE


def _label(row: Mapping[str, Any]) -> str:
    if row["kind"] in ("send", "receive"):
        to = "to" if row["kind"] == "send" else "from"
        return f"{row['kind']} {to} {', '.join(row['peers'] or ['nobody'])}"
    return f"{row['kind']} {row['message'] or ''}".strip()


def _where(row: Mapping[str, Any]) -> str:
    position = "" if row["position"] is None else f", position {row['position']}"
    return f"seq {row['seq']}{position}"


def _mark(kind: str, x: int, y: int, colour: str) -> str:
    """A multicast is a triangle, a delivery a disc, anything else a square."""
    if kind == "multicast":
        return f'<path d="M{x - 7} {y + 6}L{x + 7} {y + 6}L{x} {y - 8}Z" fill="{colour}"/>'
    if kind == "deliver":
        return f'<circle cx="{x}" cy="{y}" r="7" fill="{colour}"/>'
    return f'<rect x="{x - 6}" y="{y - 6}" width="12" height="12" fill="{colour}"/>'


def _journeys(events: Sequence[Mapping[str, Any]], lanes: Mapping[str, int], colour: Mapping[str, str]) -> list[str]:
    """From where a message is multicast to where it is delivered."""
    sent = [(place, row) for place, row in enumerate(events) if row["kind"] == "multicast"]
    begun = {row["message"]: (place, row) for place, row in reversed(sent)}
    lines = []
    for place, row in enumerate(events):
        if row["kind"] == "deliver" and row["message"] in begun:
            at, first = begun[row["message"]]
            ends = f'x1="{_x(at)}" y1="{_y(lanes[first["process"]])}" x2="{_x(place)}" y2="{_y(lanes[row["process"]])}"'
            lines.append(f'<line {ends} stroke="{colour[row["message"]]}" stroke-opacity=".35"/>')
    return lines
