"""A small causal graph as one machine sees it grow, drawn from a run: the candidates, and what is delivered when.

As in Figure 1 of toto.txt, machines are letters: the second message of the first machine is a2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from antiphon.services import toto as paper
from antiphon.services.dag import Name
from antiphon.services.toto import Graph
from antiphon.simulation import MILLISECOND, Constant, Plan, Scenario, simulate
from antiphon.simulation.graph import graph_of

PANEL, TOP, STEP, LANE, MARGIN = 232, 64, 52, 44, 28  # in pixels
DISC = 14
PAPER, INK, FAINT, RED, GREEN, GREY = "#f6f8fa", "#1f2933", "#b8c2cc", "#c8553d", "#2a7a4b", "#dde3e9"


class Moment(NamedTuple):
    """DAG_p when something is delivered."""

    graph: Graph
    delivered: tuple[Name, ...]  # before
    candidates: tuple[Name, ...]
    due: tuple[Name, ...]  # now
    last: Name  # with which message it could be
    first: bool  # whether that message had not made anything deliverable before


def example() -> dict[str, Any]:
    """Five machines, one message each and then a second one, by links of 2 ms, as `simulate --graph` writes it."""
    times = {"g.1": (0.0, 6.1), "g.2": (1.9, 8.4), "g.3": (2.6, 8.9), "g.4": (3.1,), "g.5": (3.6,)}
    plans = sorted(
        [Plan(sender, int(at * MILLISECOND), ("g",)) for sender, sent in times.items() for at in sent],
        key=lambda plan: plan.at,
    )
    scenario = Scenario(
        protocol="toto",
        options={"idle": "5"},
        groups={"g": 5},
        plans=tuple(plans),
        latency=Constant(2 * MILLISECOND),
    )
    outcome = simulate(scenario)
    assert not outcome.violations
    return graph_of(outcome)


def moments(graph: dict[str, Any], machine: str) -> list[Moment]:
    """By the definitions; what was delivered in the run is what they say."""
    names = {id: Name(m["sender"], m["number"]) for id, m in graph["messages"].items()}
    plain = Graph(tuple(graph["machines"]), {}, {})
    delivered: list[Name] = []
    due: list[Name] = []
    found: list[Moment] = []
    for kind, id in graph["events"][machine]:
        name = names[id]
        if kind == "deliver":
            assert name == due.pop(0)
            continue
        plain.arcs[name] = tuple(names[f] for f in graph["messages"][id]["follows"])
        plain.services[name] = graph["messages"][id]["service"]
        first = True
        while now := paper.deliverable(plain, delivered, graph["phi"]):
            here = Graph(plain.machines, dict(plain.arcs), dict(plain.services))
            candidates = tuple(paper.candidates(plain, delivered))
            found.append(Moment(here, tuple(delivered), candidates, tuple(now), name, first))
            delivered += now
            due += now
            first = False
    return found


def picture(graph: dict[str, Any], machine: str) -> str:
    """All moments at which this machine delivers something, side by side, as one SVG."""
    shown = moments(graph, machine)
    return _drawn(shown, [_heads(moment) for moment in shown], graph["phi"])


def snapshot(graph: Graph, delivered: Sequence[Name], candidates: Sequence[Name], title: str, phi: int) -> str:
    """One graph as it is, with nothing to be delivered."""
    last = next(reversed(graph.arcs))
    moment = Moment(graph, tuple(delivered), tuple(candidates), (), last, True)
    return _drawn([moment], [(title, "")], phi)


def _heads(moment: Moment) -> tuple[str, str]:
    graph, last = moment.graph, letter(moment.graph, moment.last)
    due = ", ".join(letter(graph, m) for m in moment.due)
    return f"{last} has come" if moment.first else f"{last}, once more", f"delivered: {due}"


def _drawn(shown: Sequence[Moment], heads: Sequence[tuple[str, str]], phi: int) -> str:
    levels = max(max(_levels(moment.graph).values()) for moment in shown) + 1
    width, height = PANEL * len(shown), TOP + STEP * levels + 2 * MARGIN + 48
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13" text-anchor="middle">',
        f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>',
    ]
    for i, (moment, words) in enumerate(zip(shown, heads, strict=True)):
        lines += [f'<g transform="translate({i * PANEL} 0)">', *_panel(moment, words, levels, phi), "</g>"]
        if i:
            lines.append(f'<path d="M{i * PANEL} 16 V{height - 16}" stroke="{FAINT}" stroke-width="0.7"/>')
    return "\n".join([*lines, "</svg>", ""])


def _levels(graph: Graph) -> dict[Name, int]:
    """The longest chain before each message."""
    found: dict[Name, int] = {}
    for m, follows in graph.arcs.items():
        found[m] = max((found[f] + 1 for f in follows), default=0)
    return found


def letter(graph: Graph, m: Name) -> str:
    return f"{chr(ord('a') + graph.machines.index(m.sender))}{m.number}"


def _panel(moment: Moment, heads: tuple[str, str], levels: int, phi: int) -> list[str]:
    graph, middle = moment.graph, PANEL / 2
    places = _levels(graph)
    lanes = len(graph.machines)

    def at(m: Name) -> tuple[float, float]:
        x = middle + (graph.machines.index(m.sender) - (lanes - 1) / 2) * LANE
        return x, TOP + MARGIN + STEP * (levels - 1 - places[m])

    lines = [_text(middle, 24, heads[0], weight="bold"), _text(middle, 44, heads[1], GREEN, "bold")]
    for m, follows in graph.arcs.items():
        lines += [_line(at(m), at(f)) for f in follows]
    for m in graph.arcs:
        lines += _node(at(m), letter(graph, m), m, moment)
    bottom = TOP + MARGIN + STEP * levels
    for i in range(lanes):
        lines.append(_text(middle + (i - (lanes - 1) / 2) * LANE, bottom, chr(ord("a") + i), FAINT, "bold"))
    return [*lines, *_counts(moment, middle, bottom + 24, phi)]


def _counts(moment: Moment, x: float, y: float, phi: int) -> list[str]:
    """NVT/NTail of each candidate."""
    graph = moment.graph
    stamps = {m: paper.vt(graph, moment.candidates, m) for m in moment.candidates}
    words = [f"{letter(graph, m)} {paper.nvt(stamps[m])}/{len(paper.tail(graph, m))}" for m in moment.candidates]
    heard = len(paper.whole_tail(graph, moment.candidates))
    return [
        _text(x, y, ", ".join(words), size=11.5),
        _text(x, y + 17, f"NTail {heard} of {len(graph.machines)}, Φ = {phi}", size=11.5),
    ]


def _node(at: tuple[float, float], label: str, m: Name, moment: Moment) -> list[str]:
    x, y = at
    is_candidate, is_due = m in moment.candidates, m in moment.due
    fill = GREY if m in moment.delivered else GREEN if is_due else "white"
    dashes = ' stroke-dasharray="3 2"' if moment.graph.services[m] == "ack" else ""
    lines = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{DISC}" fill="{fill}" stroke="{INK}" stroke-width="1.4"{dashes}/>',
        _text(x, y + 4.5, label, "white" if is_due else INK),
    ]
    if is_candidate:
        ring = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{DISC + 4}" fill="none" stroke="{RED}" stroke-width="2"/>'
        lines.insert(0, ring)
    return lines


def _line(start: tuple[float, float], end: tuple[float, float]) -> str:
    (a, b), (c, d) = start, end
    return f'<path d="M{a:.1f} {b:.1f} L{c:.1f} {d:.1f}" stroke="{FAINT}" stroke-width="1.4"/>'


def _text(x: float, y: float, text: str, colour: str = INK, weight: str = "normal", size: float = 13) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-weight="{weight}" font-size="{size}">{text}</text>'
