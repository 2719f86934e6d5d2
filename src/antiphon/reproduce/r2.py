"""R2, tom.txt, Table 1: what one multicast costs with TOM, SCALATOM and multicast by broadcast."""

from __future__ import annotations

from typing import NamedTuple

from antiphon.reproduce.draw import Curve, Panel
from antiphon.reproduce.lab import Lab
from antiphon.reproduce.table import PaperResult, Picture, ResultRow, ResultTable, between, equal, only_shown
from antiphon.simulation import Plan, Scenario
from antiphon.simulation.values import Value

TITLE = "TOM, SCALATOM and multicast by broadcast"
NAMES = {"tom": "TOM", "scalatom": "SCALATOM", "nonminimal": "non minimal"}
CONSENSUS = ("ct", "hr")
# Every optimisation off: TOM always runs its second consensus, and the eager multicast forwards every copy.
AS_COUNTED = {
    "tom": {"sets": "false", "reliable": "eager"},
    "scalatom": {"reliable": "eager"},
    "nonminimal": {"reliable": "eager"},
}
OPTIMISED = {"tom": {"sets": "true"}, "scalatom": {"piggyback": "true"}}
PAPER_STEPS = {
    ("tom", "ct"): 10,
    ("tom", "hr"): 6,
    ("scalatom", "ct"): 7,
    ("scalatom", "hr"): 5,
    ("nonminimal", "ct"): 5,
    ("nonminimal", "hr"): 3,
}
TEN, OF_THREE = 10, 3  # groups and their members, where the paper compares the protocols


class OneMulticast(Value, frozen=True):
    """One multicast to d of the groups of n, from a sender in none."""

    protocol: str
    consensus: str
    d: int
    n: int
    groups: int
    optimised: bool = False

    def scenario(self, _seed: int, /) -> Scenario:
        names = [f"g{i}" for i in range(1, self.groups + 1)]
        options = {**AS_COUNTED[self.protocol], "consensus": self.consensus}
        if self.optimised:
            options |= OPTIMISED[self.protocol]
        plans = (Plan("c1", 0, tuple(names[: self.d])),)
        return Scenario(protocol=self.protocol, options=options, groups=dict.fromkeys(names, self.n), plans=plans)

    @property
    def paper_messages(self) -> int:
        """The table's own entries."""
        d, n, g = self.d, self.n, self.groups
        return {
            ("tom", "ct"): 2 * d**2 * n**2 + d * n**2 + 4 * d * n - 6 * d,
            ("tom", "hr"): 2 * d**2 * n**2 + 3 * d * n**2 - 4 * d * n,
            ("scalatom", "ct"): 3 * d**2 * n**2 + d * n**2 - 3,
            ("scalatom", "hr"): 4 * d**2 * n**2 + d * n**2 - 4 * d * n,
            ("nonminimal", "ct"): 2 * g**2 * n**2 + 2 * g * n - 3,
            ("nonminimal", "hr"): 3 * g**2 * n**2 - 2 * g * n,
        }[self.protocol, self.consensus]

    @property
    def named(self) -> tuple[str, ...]:
        return (NAMES[self.protocol], self.consensus.upper(), str(self.d), str(self.n), str(self.groups))


LABELS = ("protocol", "consensus", "d", "n", "G")


class Cost(NamedTuple):
    messages: int
    steps: int


def cases(quick: bool) -> dict[str, list[OneMulticast]]:
    counted = [(2, 2, 3), (2, 3, 3), (3, 3, 5)]
    if not quick:
        counted = [(d, n, g) for d in (2, 3, 4, 5) for n in (2, 3, 5, 7) for g in (d, d + 1, TEN)]
    every = [(protocol, consensus) for protocol in NAMES for consensus in CONSENSUS]
    return {
        "counted": [OneMulticast(*which, *size) for which in every for size in counted],
        "optimised": [
            OneMulticast(protocol, consensus, 2, OF_THREE, 5, optimised=True)
            for protocol in OPTIMISED
            for consensus in CONSENSUS
        ],
        "ten": [OneMulticast(*which, d, OF_THREE, TEN) for which in every for d in range(2, TEN + 1)],
    }


def reproduce(lab: Lab) -> PaperResult:
    by_kind = cases(lab.quick)
    every = list(dict.fromkeys(case for some in by_kind.values() for case in some))
    rows = lab.sweep("r2", every).figures("sends", "last_ms_max")
    # A link takes 1 ms, so the last delivery comes after as many ms as there are steps.
    found = {case: Cost(row["sends"], round(row["last_ms_max"])) for case, (row,) in zip(every, rows, strict=True)}
    return PaperResult(
        name="r2",
        title=TITLE,
        source="tom.txt, Table 1",
        setting="One multicast to d of G groups of n processes, from a sender in none of them; links of 1 ms, no "
        "failures, every optimisation off. Messages and steps are counted in the trace.",
        tables=[
            ResultTable(
                title="Messages", labels=LABELS, rows=[_messages(case, found[case]) for case in by_kind["counted"]]
            ),
            ResultTable(title="Steps", labels=LABELS, rows=[_steps(case, found[case]) for case in by_kind["counted"]]),
            ResultTable(title="Optimised", labels=LABELS, rows=_optimised(by_kind["optimised"], found)),
            ResultTable(title="Ten groups of three", labels=("claim", "consensus"), rows=_compared(found)),
        ],
        pictures=[_picture(lab, found)],
        notes=[
            "The paper's steps are sums of stages. In a run TOM's overlap, and it can be a step shorter. With CT "
            "it takes 9 steps, not 10: the coordinator's timestamp for the other groups travels beside its decision. "
            "With HR it takes 5, not 6, in groups of 2 or 3: two votes are a majority there, so whoever hears the "
            "coordinator's vote decides at once.",
        ],
    )


def _messages(case: OneMulticast, cost: Cost) -> ResultRow:
    return equal(case.named, "messages", case.paper_messages, cost.messages)


def _steps(case: OneMulticast, cost: Cost) -> ResultRow:
    paper = PAPER_STEPS[case.protocol, case.consensus]
    if case.protocol != "tom":  # its stages do not overlap
        return equal(case.named, "steps", paper, cost.steps)
    return between(case.named, "steps", paper, cost.steps, paper - 1, paper)


def _optimised(cases: list[OneMulticast], found: dict[OneMulticast, Cost]) -> list[ResultRow]:
    rows = []
    for case in cases:
        rows += [
            only_shown(case.named, "messages", case.paper_messages, found[case].messages),
            only_shown(case.named, "steps", PAPER_STEPS[case.protocol, case.consensus], found[case].steps),
        ]
    return rows


def _compared(found: dict[OneMulticast, Cost]) -> list[ResultRow]:
    """The sentences under the table."""

    def messages(protocol: str, consensus: str) -> dict[int, int]:
        return {d: found[OneMulticast(protocol, consensus, d, OF_THREE, TEN)].messages for d in range(2, TEN + 1)}

    said = {
        ("tom", "ct"): "2 to 9",
        ("tom", "hr"): "2 to 10",
        ("scalatom", "ct"): "2 to 8",
        ("scalatom", "hr"): "2 to 8",
    }
    rows = []
    for (protocol, consensus), paper in said.items():
        ours, others = messages(protocol, consensus), messages("nonminimal", consensus)
        cheaper = [d for d in ours if ours[d] < others[d]]
        whole = cheaper == list(range(2, 2 + len(cheaper)))
        span = f"2 to {cheaper[-1]}" if cheaper and whole else ", ".join(map(str, cheaper)) or "never"
        claim = f"{NAMES[protocol]} is cheaper than non minimal"
        rows.append(equal((claim, consensus.upper()), "for d from", paper, span))
    return rows


def _picture(lab: Lab, found: dict[OneMulticast, Cost]) -> Picture:
    ds = range(2, TEN + 1)
    panels = [
        Panel(
            f"{consensus.upper()}, 10 groups of 3",
            "groups addressed",
            "messages",
            [
                Curve(name, ds, [found[OneMulticast(protocol, consensus, d, OF_THREE, TEN)].messages for d in ds])
                for protocol, name in NAMES.items()
            ],
            ticks=ds,
        )
        for consensus in CONSENSUS
    ]
    return lab.draw(
        "r2", "messages.svg", "Messages against the number of groups addressed, with CT and with HR", panels
    )
