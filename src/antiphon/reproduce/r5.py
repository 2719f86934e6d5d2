"""R5, toto.txt, Table 1: the quantities by which ToTo compares candidates, for the graph of Figure 1."""

from __future__ import annotations

from antiphon.core import ProcessId
from antiphon.reproduce.lab import Lab
from antiphon.reproduce.table import PaperResult, ResultRow, ResultTable, equal
from antiphon.reproduce.toto_graph import letter, snapshot
from antiphon.services import toto as paper
from antiphon.services.dag import Name
from antiphon.services.toto import INFINITY, Graph

TITLE = "ToTo's candidates"
# The drawing is lost. This graph gives the table: what each message directly follows.
ARCS = {
    **{"a1": "", "d1": "", "e1": "", "b1": "", "c1": "", "e2": "e1"},
    **{"a2": "a1 b1 c1 e2", "d2": "a1 d1 c1 e2", "d3": "d2 a2", "c2": "c1"},
}
TABLE_1 = {  # Tail, VT, NVT
    "b1": ("a, b, d", "(2, 1, ∞, ∞, ∞)", 2),
    "c1": ("a, c, d", "(2, ∞, 1, 2, ∞)", 3),
    "e2": ("a, d, e", "(2, ∞, ∞, 2, 2)", 3),
}
PHI = 3


def name(text: str) -> Name:
    return Name(ProcessId(text[0]), int(text[1:]))


def graph_of(machines: str, arcs: dict[str, str]) -> Graph:
    named = {name(m): tuple(name(f) for f in follows.split()) for m, follows in arcs.items()}
    return Graph(tuple(ProcessId(p) for p in machines), named, dict.fromkeys(named, "agreed"))


FIGURE_1 = graph_of("abcde", ARCS)
DELIVERED = {name(m) for m in ("a1", "d1", "e1")}


def _written(entry: float | None) -> str:
    return "*" if entry is None else "∞" if entry == INFINITY else str(entry)


def table_1() -> list[ResultRow]:
    candidates = paper.candidates(FIGURE_1, DELIVERED)
    found = [letter(FIGURE_1, m) for m in candidates]
    rows: list[ResultRow] = [equal(("",), "candidates", ", ".join(TABLE_1), ", ".join(found))]
    for m in candidates:
        case, of_paper = letter(FIGURE_1, m), TABLE_1.get(letter(FIGURE_1, m), ("none", "none", 0))
        stamp = paper.vt(FIGURE_1, candidates, m)
        tail = sorted(paper.tail(FIGURE_1, m))
        rows += [
            equal((case,), "Tail", of_paper[0], ", ".join(tail)),
            equal((case,), "NTail", 3, len(tail)),
            equal((case,), "VT", of_paper[1], f"({', '.join(_written(entry) for entry in stamp.values())})"),
            equal((case,), "NVT", of_paper[2], paper.nvt(stamp)),
        ]
    return rows


def reproduce(lab: Lab) -> PaperResult:
    candidates = paper.candidates(FIGURE_1, DELIVERED)
    drawing = snapshot(FIGURE_1, sorted(DELIVERED), candidates, "Figure 1", PHI)
    return PaperResult(
        name="r5",
        title=TITLE,
        source="toto.txt, Table 1 and Figure 1",
        setting="Five machines a to e; a1, d1 and e1 are delivered. By section 4's definitions, as the code has them.",
        tables=[ResultTable(title="The candidates", labels=("candidate",), rows=table_1())],
        pictures=[
            lab.keep("r5", drawing, "figure1.svg", "Figure 1, recovered: grey is delivered, ringed are candidates")
        ],
        notes=[
            "The drawing of Figure 1 is lost. It was recovered from the table: a2 follows b1, c1 and e2; d2 follows c1 "
            "and e2, and a1, d1 and e1; d3 follows a2; c2 follows c1.",
        ],
    )
