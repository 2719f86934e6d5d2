"""R8, swap.txt: Figures 1 to 9 state by state, and what the paper says of hops, latency, load, joining and leaving."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from antiphon.reproduce.draw import Curve, Panel
from antiphon.reproduce.lab import Lab
from antiphon.reproduce.swap_figures import strip
from antiphon.reproduce.swap_runs import (
    AT_ONCE,
    BY_NODE,
    CONTENDERS,
    HALF_AT_ONCE,
    LOAD,
    LOADED,
    MOVED,
    MOVERS,
    ONE_SENDER,
    PATTERNS,
    TREES,
    WHEN,
    Compared,
    Moves,
    SwapCase,
    SwapFigures,
    SwapLatency,
    SwapLoad,
    compared,
    diameter,
    measured,
)
from antiphon.reproduce.swap_stage import Figure, Stage, arrow_figures, combining_figures
from antiphon.reproduce.table import PaperResult, Picture, ResultRow, ResultTable, at_most, below, equal, only_shown

TITLE = "arrow and combining multicast"
# Each figure as its caption tells: where the arrows point and the sinks' values; swaps on their way; what is multicast
# with its predecessor, and where.
CAPTIONS = {
    1: "u→u v→x w→x x→u; u = ⊥",
    2: "u→u v→v w→x x→u; u = ⊥, v = m1; m1 v→x",
    3: "u→u v→v w→w x→u; u = ⊥, v = m1, w = m2; m1 v→x, m2 w→x",
    4: "u→u v→v w→w x→w; u = ⊥, v = m1, w = m2; m1 x→u, m2 x→v",
    5: "u→x v→x w→w x→w; w = m2; ⟨⊥, m1⟩ at u, ⟨m1, m2⟩ at v",
    6: "1→a 2→a 3→b a→b b→r r→r; r = ⊥; m1 1→a, m2 2→a, m3 3→b",
    7: "1→a 2→a 3→b a→b b→r r→r; r = ⊥; m1m2 a→b, m3 3→b; ⟨m1, m2⟩ at a",
    8: "1→a 2→a 3→b a→b b→r r→r; r = ⊥; m3m1m2 b→r; ⟨m3, m1⟩ at b",
    9: "1→a 2→a 3→b a→b b→r r→r; r = m2; ⟨⊥, m3⟩ at r",
}


class Simulated(NamedTuple):
    cases: dict[SwapCase, SwapFigures]
    pairs: dict[tuple[SwapLatency, SwapLatency], Compared]


def reproduce(lab: Lab) -> PaperResult:
    sizes = (8, 16) if lab.quick else (8, 16, 32, 64, 128, 256)
    swept = lab.sweep("swap", list(_cases(sizes)))
    found = Simulated(measured(swept), compared(swept))
    stages = {"arrow": arrow_figures(), "combining": combining_figures()}
    return PaperResult(
        name="r8",
        title=TITLE,
        source="swap.txt, Figures 1 to 9 and sections 5 and 6",
        setting="Trees of n nodes, links of 1 ms, messages multicast along the tree, no failures. Latencies are in "
        f"links. Load is swap frames that the busiest node takes in for each of {LOAD} messages.",
        tables=[
            ResultTable(title="The figures", labels=("figure",), rows=list(_figure_rows(stages))),
            ResultTable(title="Hops of a swap", labels=("protocol", "requests", "n"), rows=_hops(found, sizes)),
            ResultTable(
                title="Swap against counting", labels=("requests", "by", "n"), rows=list(_latencies(found, sizes))
            ),
            ResultTable(title="One node alone", labels=("tree", "n"), rows=list(_alone(found, sizes))),
            ResultTable(
                title="Two halves take turns", labels=("tree", "turns", "n", "protocol"), rows=_halves(found, sizes)
            ),
            ResultTable(title="Leaving and entering", labels=("who", "protocol", "n"), rows=list(_moves(found, sizes))),
        ],
        pictures=[
            *(
                lab.keep("r8", strip(stage), f"{name}.svg", f"The figures of {name} multicast, played by processes")
                for name, stage in stages.items()
            ),
            _latency_picture(lab, found, sizes),
            _load_picture(lab, found, sizes),
            _moves_picture(lab, found, sizes),
        ],
        notes=[
            "The drawings are lost. The trees and states of the figures were worked out from the captions: arrow on "
            "the edges v-x, w-x and x-u with sink u; combining where m1 and m2 meet at a, and m3, the first, at b.",
            "Section 6.2 lets a neighbour's link point at the node that leaves; ours is repaired "
            "(docs/protocols/entering.md).",
        ],
    )


def _cases(sizes: tuple[int, ...]) -> Iterator[SwapCase]:
    for n in sizes:
        yield from (SwapLatency(contender.name, n, when) for contender in CONTENDERS for when in WHEN)
        loads = product((contender.name for contender in LOADED), TREES, PATTERNS)
        yield from (SwapLoad(contender, n, tree, pattern) for contender, tree, pattern in loads)
        yield from (Moves(protocol, n, mover.name) for protocol in MOVED for mover in MOVERS)


# The figures --------------------------------------------------------------------------------------------------------


def _figure_rows(stages: dict[str, Stage]) -> Iterator[ResultRow]:
    for name, stage in stages.items():
        for figure in stage.figures:
            yield equal((f"{figure.number}: {figure.caption}",), "state", CAPTIONS[figure.number], written(figure))
        order = {"arrow": "m1, m2", "combining": "m3, m1, m2"}[name]
        logs = {", ".join(log) for log in stage.delivered.values()}
        yield equal((f"after that, {name}",), "delivered everywhere", order, " or ".join(sorted(logs)))


def written(figure: Figure) -> str:
    parts = [
        " ".join(f"{node}→{link}" for node, link in sorted(figure.links.items())),
        ", ".join(f"{node} = {value}" for node, value in sorted(figure.values.items())),
        ", ".join(sorted(f"{swap.name} {swap.sender}→{swap.receiver}" for swap in figure.travelling)),
        ", ".join(f"⟨{previous}, {message}⟩ at {node}" for previous, message, node in figure.multicasts),
    ]
    return "; ".join(part for part in parts if part)


# What was measured --------------------------------------------------------------------------------------------------


def _hops(found: Simulated, sizes: tuple[int, ...]) -> list[ResultRow]:
    return [
        at_most(
            (contender.name, when, str(n)),
            "hops",
            "≤ diameter",
            found.cases[SwapLatency(contender.name, n, when)].hops,
            diameter(n),
        )
        for contender in CONTENDERS
        if not contender.is_counting
        for when in WHEN
        for n in sizes
    ]


def _latencies(found: Simulated, sizes: tuple[int, ...]) -> Iterator[ResultRow]:
    """Of both, until a message is multicast with its place in the order, and until its last delivery."""
    for n in sizes:
        for (swap, counting), pair in found.pairs.items():
            if swap.n != n:
                continue
            way, when = swap.contender.partition(",")[0], swap.when
            case = (when, way, str(n))
            one, other = found.cases[swap], found.cases[counting]
            if (way, when) == ("arrow", "sequential"):  # the paper: they are the same
                yield equal(case, "to the multicast, counting and swap", other.multicast, one.multicast)
                yield equal(case, "to the delivery, counting and swap", other.delivery, one.delivery)
                continue
            yield below(case, "to the multicast, counting and swap", other.multicast, one.multicast, other.multicast)
            if when == "concurrent":
                yield below(case, "to the delivery, counting and swap", other.delivery, one.delivery, other.delivery)
            else:
                yield only_shown(case, "to the delivery, counting and swap", other.delivery, one.delivery)
            yield at_most(case, "most that a request waits longer with swap, to the multicast", 0, pair.multicast, 0)
            if when == "concurrent":
                yield at_most(case, "most that a request waits longer with swap, to the delivery", 0, pair.delivery, 0)


def _alone(found: Simulated, sizes: tuple[int, ...]) -> Iterator[ResultRow]:
    for tree in TREES:
        for n in sizes:
            arrow, combining = (found.cases[SwapLoad(name, n, tree, ONE_SENDER)] for name in ("arrow", "combining"))
            yield equal((tree, str(n)), "arrow: swap frames after the first message", 0, arrow.after_first)
            yield equal((tree, str(n)), "combining: messages that pass the root", LOAD, combining.at_root)


def _load(found: Simulated, contender: str, n: int, tree: str, pattern: str) -> float:
    return found.cases[SwapLoad(contender, n, tree, pattern)].busiest / LOAD


def _halves(found: Simulated, sizes: tuple[int, ...]) -> list[ResultRow]:
    """The hot spot is the node between the halves; in a star, a virtual root spreads what meets there, if the halves
    have as many nodes as are to multicast at once."""
    rows = []
    for tree in TREES:
        for pattern in (BY_NODE, AT_ONCE):
            for n in sizes:
                loads = {contender.name: _load(found, contender.name, n, tree, pattern) for contender in LOADED}
                for name, ours in loads.items():
                    case = (tree, pattern, str(n), name)
                    if name.startswith("hybrid") and (tree, pattern) == ("star", AT_ONCE) and n >= 2 * HALF_AT_ONCE:
                        rows.append(below(case, "frames at the busiest node", "less", ours, loads["arrow"]))
                    else:
                        rows.append(only_shown(case, "frames at the busiest node", None, ours))
    return rows


def _moves(found: Simulated, sizes: tuple[int, ...]) -> Iterator[ResultRow]:
    for mover in MOVERS:
        for protocol in MOVED:
            for n in sizes:
                point, case = found.cases[Moves(protocol, n, mover.name)], (mover.name, protocol, str(n))
                degree = mover.degree or n - 1
                yield at_most(case, "processes concerned", "neighbours", point.concerned, degree + 1)
                yield only_shown(case, "messages to leave", None, point.leaving)
                yield only_shown(case, "messages to enter", None, point.entering)


# Curves -------------------------------------------------------------------------------------------------------------


def _latency_picture(lab: Lab, found: Simulated, sizes: tuple[int, ...]) -> Picture:
    panels = [
        Panel(
            f"{when}: {words}",
            "nodes",
            "links",
            [
                Curve(
                    contender.name,
                    sizes,
                    [getattr(found.cases[SwapLatency(contender.name, n, when)], field) for n in sizes],
                    "--" if contender.is_counting else "-",
                )
                for contender in CONTENDERS
            ],
            log_x=True,
            ticks=sizes,
        )
        for field, words in (("multicast", "until it is multicast"), ("delivery", "until delivered"))
        for when in WHEN
    ]
    return lab.draw("r8", "latency.svg", "Latency of swap and of counting against the number of nodes", panels)


def _load_picture(lab: Lab, found: Simulated, sizes: tuple[int, ...]) -> Picture:
    """Where curves are the same, the narrower ones lie on the wider ones."""
    marks = zip(LOADED, ("-", "--", ":"), (5.0, 2.6, 1.3), strict=True)
    styles = {contender.name: (dashes, width) for contender, dashes, width in marks}
    panels = [
        Panel(
            f"{tree}: {pattern}",
            "nodes",
            "frames at the busiest node",
            [
                Curve(name, sizes, [_load(found, name, n, tree, pattern) for n in sizes], dashes, width=width)
                for name, (dashes, width) in styles.items()
            ],
            log_x=True,
            ticks=sizes,
            top=1.08,
        )
        for tree in TREES
        for pattern in PATTERNS
    ]
    caption = "Swap frames at the busiest node, for each message, against the number of nodes"
    return lab.draw("r8", "load.svg", caption, panels, columns=len(PATTERNS))


def _moves_picture(lab: Lab, found: Simulated, sizes: tuple[int, ...]) -> Picture:
    def of(mover: str) -> list[SwapFigures]:
        return [found.cases[Moves(MOVED[0], n, mover)] for n in sizes]

    curves = [Curve(f"to leave: {mover.name}", sizes, [m.leaving for m in of(mover.name)]) for mover in MOVERS]
    entering = [max(of(mover.name)[i].entering for mover in MOVERS) for i in range(len(sizes))]
    curves.append(Curve("to enter: anybody", sizes, entering, "--"))
    panel = Panel("leaving and entering", "nodes", "messages", curves, log_x=True, log_y=True, ticks=sizes)
    return lab.draw("r8", "moves.svg", "Messages to leave the tree and to enter it", [panel])
