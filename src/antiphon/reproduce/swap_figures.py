"""Figures 1 to 9 of swap.txt, drawn from a run: the tree with its arrows, message by message."""

from __future__ import annotations

from math import hypot

from antiphon.reproduce.swap_stage import Figure, Stage

Spot = tuple[float, float]

PANEL, HEIGHT, TOP = 230, 272, 30  # of one figure, in pixels; above it, its number
RADIUS = 13
PLACES: dict[str, Spot] = {
    **{"v": (52, 60), "w": (52, 196), "x": (116, 128), "u": (190, 128)},
    **{"r": (122, 36), "b": (122, 108), "a": (76, 174), "3": (174, 174), "1": (42, 240), "2": (110, 240)},
}
VALUES: dict[str, Spot] = {"v": (0, -24), "r": (42, 4.5)}  # where a node's value stands, if not below it
MULTICASTS: dict[str, Spot] = {"v": (0, -24), "u": (-4, -24), "r": (-54, 5), "b": (-52, 5), "a": (-34, -42)}
PAPER, INK, FAINT, RED, GREEN = "#f6f8fa", "#1f2933", "#b8c2cc", "#c8553d", "#2a7a4b"
HEADS = {"ink": INK, "red": RED}  # of arrows
FONTS = "Helvetica, Arial, 'DejaVu Sans', sans-serif"  # the third has ⊥ and ⟨⟩ where the others do not


def strip(stage: Stage) -> str:
    """All figures of a run, side by side, as one SVG."""
    width, height = PANEL * len(stage.figures), TOP + HEIGHT + 14
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="{FONTS}" font-size="13" text-anchor="middle">',
        *(
            f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="4.5" markerHeight="4.5" '
            f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{colour}"/></marker>'
            for name, colour in HEADS.items()
        ),
        f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>',
    ]
    for i, figure in enumerate(stage.figures):
        lines += [f'<g transform="translate({i * PANEL} 0)">', *panel(figure), "</g>"]
        if i:
            lines.append(f'<path d="M{i * PANEL} 16 V{height - 16}" stroke="{FAINT}" stroke-width="0.7"/>')
    return "\n".join([*lines, "</svg>", ""])


def panel(figure: Figure) -> list[str]:
    middle = PANEL / 2
    lines = [_text((middle, 24), f"Figure {figure.number}", INK, "bold")]
    for node, link in figure.links.items():
        if node != link:
            lines.append(_line(node, link, FAINT, 1.2))
    for travelling in figure.travelling:
        lines.append(_line(travelling.sender, travelling.receiver, FAINT, 1.2))
    for node, link in figure.links.items():
        if node != link:
            lines.append(_line(node, link, INK, 2, head=True))
    for node in figure.links:
        lines += _node(node, figure)
    for travelling in figure.travelling:
        lines += _travelling(travelling.name, travelling.sender, travelling.receiver)
    for previous, message, node in figure.multicasts:
        lines.append(_text(_beside(node, MULTICASTS[node]), f"⟨{previous}, {message}⟩", GREEN, "bold"))
    return [*lines, _text((middle, TOP + HEIGHT), figure.caption, INK, size=11.5)]


def _node(node: str, figure: Figure) -> list[str]:
    x, y = _at(node)
    lines = []
    value = figure.values.get(node)
    if value is not None:  # a sink, or the root
        lines.append(f'<circle cx="{x}" cy="{y}" r="{RADIUS + 4}" fill="none" stroke="{INK}" stroke-width="1.6"/>')
        lines.append(_text(_beside(node, VALUES.get(node, (0, RADIUS + 20))), f"= {value}", INK))
    lines.append(f'<circle cx="{x}" cy="{y}" r="{RADIUS}" fill="white" stroke="{INK}" stroke-width="1.6"/>')
    return [*lines, _text((x, y + 4.5), node, INK)]


def _travelling(name: str, sender: str, receiver: str) -> list[str]:
    (x1, y1), (x2, y2) = _at(sender), _at(receiver)
    x, y, width = x1 + 0.46 * (x2 - x1), y1 + 0.46 * (y2 - y1), 12 + 10 * len(name)
    if y1 == y2:
        y -= 18  # on a level arrow the name would cover it
    return [
        _line(sender, receiver, RED, 2, head=True),
        f'<rect x="{x - width / 2:.1f}" y="{y - 9.5:.1f}" width="{width}" height="19" rx="5" fill="{RED}"/>',
        _text((x, y + 4.5), name, "white", "bold"),
    ]


def _line(start: str, end: str, colour: str, width: float, *, head: bool = False) -> str:
    """From the rim of one node to that of another; an arrow is drawn a little apart from both."""
    (x1, y1), (x2, y2) = _at(start), _at(end)
    length = hypot(x2 - x1, y2 - y1)
    near, far = (RADIUS + 3) / length, (length - RADIUS - 6) / length
    if not head:
        near, far = 0.0, 1.0
    points = [(x1 + t * (x2 - x1), y1 + t * (y2 - y1)) for t in (near, far)]
    (a, b), (c, d) = points
    marker = f' marker-end="url(#{"red" if colour == RED else "ink"})"' if head else ""
    return f'<path d="M{a:.1f} {b:.1f} L{c:.1f} {d:.1f}" stroke="{colour}" stroke-width="{width}"{marker}/>'


def _at(node: str) -> Spot:
    x, y = PLACES[node]
    return x, y + TOP


def _beside(node: str, by: Spot) -> Spot:
    x, y = _at(node)
    return x + by[0], y + by[1]


def _text(at: Spot, text: str, colour: str, weight: str = "normal", size: float = 13) -> str:
    x, y = at
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-weight="{weight}" font-size="{size}">{text}</text>'
