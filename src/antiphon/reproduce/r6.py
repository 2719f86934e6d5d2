"""R6, toto.txt, Tables 2 and 3, Figures 5 and 6: the latency of ToTo and of all-ack, and more than the tables have."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from antiphon.reproduce import toto
from antiphon.reproduce.draw import Bars, Curve, Panel
from antiphon.reproduce.lab import Lab
from antiphon.reproduce.table import (
    PaperResult,
    Picture,
    ResultRow,
    ResultTable,
    between,
    equal,
    grows,
    near,
    near_share,
    only_shown,
)
from antiphon.reproduce.toto import LOADS, MACHINES, PROTOCOLS, SOURCES, TITLES, Case, MeasuredCases, Source, Tables
from antiphon.simulation import MILLISECOND, Constant, Distance, Exponential, Latency, Uniform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TITLE = "ToTo's latency"
PAPER_INDEX = {"periodic": (5.10, 5.42, 5.36, 5.90), "poisson": (5.11, 5.31, 5.54, 5.89)}
PAPER_WIDTH = {
    ("periodic", "toto"): (1.12, 1.39, 1.44, 1.72),
    ("periodic", "allack"): (1.69, 1.31, 1.81, 1.48),
    ("poisson", "toto"): (1.15, 1.29, 1.42, 1.63),
    ("poisson", "allack"): (1.13, 1.27, 1.42, 1.58),
}
PAPER_MS = {
    ("periodic", "toto"): (76.68, 42.31, 29.17, 23.80),
    ("periodic", "allack"): (135.02, 68.78, 45.59, 43.71),
    ("poisson", "toto"): (114.10, 60.98, 44.10, 39.37),
    ("poisson", "allack"): (385.25, 188.06, 133.09, 102.33),
}
PAPER_SPEEDUP = {"periodic": (1.76, 1.63, 1.56, 1.84), "poisson": (3.38, 3.08, 3.01, 2.60)}
MODEL_SPEEDUP = {"periodic": (1.82, 1.55, 1.62, 1.45), "poisson": (3.24, 2.92, 2.63, 2.42)}
INDEX_WITHIN, SPEEDUP_WITHIN = 0.4, 0.10


def reproduce(lab: Lab) -> PaperResult:
    made = toto.tables(lab)
    beyond = Beyond([], []) if lab.quick else measured_beyond(lab)
    return PaperResult(
        name="r6",
        title=TITLE,
        source="toto.txt, Tables 2 and 3, Figures 5 and 6",
        setting=f"{MACHINES} machines, {_messages(lab)} messages, Φ = 4, links of 2 ms, "
        f"means of {toto.SEEDS} seeds. τ is the index of latency, ω the width of the graph; the latency is "
        "that at the sender.",
        tables=[
            *(
                ResultTable(
                    title=f"Table {number}: {TITLES[source]}", labels=("msg/s", "protocol"), rows=_rows(source, made)
                )
                for source, number in zip(SOURCES, (2, 3), strict=True)
            ),
            ResultTable(title="What holds in every run", labels=("protocol",), rows=_checks(made)),
            *beyond.tables,
        ],
        pictures=[_figures(lab, made.found), *beyond.pictures],
        notes=[
            "No link latency gives all of the paper's figures. By section 4's definitions, periodic sources at 200 "
            "messages a second have index 5.28 and speedup 1.61 at 1 ms, 5.55 and 1.50 at 2 ms; the paper has 5.90 and "
            "1.84. Its machines were loaded there: its own model says 35.96 ms where it observed 43.71. So speedups "
            "are held to those of its model, and the deviation from the observed ones is shown.",
            "With Poisson sources ToTo takes longer here than in the paper, whose streams were only approximately "
            "Poisson, as it says.",
        ],
    )


def _messages(lab: Lab) -> str:
    if not lab.quick:
        return f"{toto.MESSAGES:,}"
    few = toto.QUICK_MESSAGES
    return f"{few['periodic']} periodic and {few['poisson']} Poisson"


# Tables 2 and 3 -----------------------------------------------------------------------------------------------------


def _rows(source: Source, made: Tables) -> list[ResultRow]:
    rows = []
    for at, load in enumerate(LOADS):
        cells = {protocol: toto.of(made.found, protocol, source, load) for protocol in PROTOCOLS}
        for protocol, name in PROTOCOLS.items():
            cell, case = cells[protocol], (str(load), name)
            index = PAPER_INDEX[source][at] if protocol == "toto" else float(MACHINES)
            rows += [
                near(case, "index τ", index, cell.tau, INDEX_WITHIN),
                only_shown(case, "ω", PAPER_WIDTH[source, protocol][at], cell.omega),
                only_shown(case, "latency, ms", PAPER_MS[source, protocol][at], cell.latency_ms),
            ]
        speedup, model = cells["allack"].latency_ms / cells["toto"].latency_ms, MODEL_SPEEDUP[source][at]
        observed = PAPER_SPEEDUP[source][at]
        rows.append(near_share((str(load), ""), "speedup", observed, speedup, SPEEDUP_WITHIN, model))
    return rows


def _checks(made: Tables) -> list[ResultRow]:
    """What the trace must show of every run, without failures."""
    from antiphon.pipeline.latency_index import acknowledged
    from antiphon.pipeline.metrics import loads

    rows = []
    for protocol, name in PROTOCOLS.items():
        indices = [tau for case, m in made.found.items() if case.protocol == protocol for tau, _ in m.pairs]
        low = Case(protocol).early + 1
        rows += [
            between((name,), "smallest τ", "Φ + 1" if protocol == "toto" else "n", min(indices), low, MACHINES),
            between((name,), "largest τ", "n", max(indices), low, MACHINES),
        ]
    swept = made.swept
    # One seed of each: who has heard from all of what is asked of each message at each machine.
    some = [swept.names(point)[0] for point, case in enumerate(made.found) if case.protocol == "toto"]
    known = acknowledged(swept.events.filter(swept.events.run.isin(some)), swept.runs.filter(swept.runs.run.isin(some)))
    (row,) = late(known).collect()
    assert row["all"], "nobody has heard of anything"
    rows.append(equal((PROTOCOLS["toto"],), f"late deliveries, of {row['all']:,} acknowledged by all", 0, row["late"]))
    names = [name for point, case in enumerate(made.found) if case.protocol == "toto" for name in swept.names(point)]
    taken = loads(swept.events.filter(swept.events.run.isin(names)))
    (sent,) = taken.selectExpr("sum(frames - upkeep) as casts", "sum(upkeep) as acks").collect()
    messages = sum(len(case.scenario(0).plans) for case in made.found if case.protocol == "toto") * len(swept.seeds)
    rows += [
        equal((PROTOCOLS["toto"],), "frames per message, but for idle ones", MACHINES - 1, sent["casts"] / messages),
        only_shown((PROTOCOLS["toto"],), "idle acknowledgements per run", None, sent["acks"] / len(names)),
    ]
    return rows


def late(known: DataFrame) -> DataFrame:
    """Of what was acknowledged by all: how much, and how much of it was delivered later or not at all."""
    is_late = "delivered_ns is null or delivered_ns > acknowledged_ns"
    return known.selectExpr("count(*) as all", f"count_if({is_late}) as late")


def _figures(lab: Lab, found: MeasuredCases) -> Picture:
    panels = []
    for source, number in zip(SOURCES, (5, 6), strict=True):
        shares = {f"{load}/s": toto.of(found, "toto", source, load).index_shares() for load in LOADS}
        panels.append(Bars(f"Figure {number}: {TITLES[source]}", "index of latency", "% of all deliveries", shares))
    caption = "Figures 5 and 6: how often ToTo's index of latency is what"
    return lab.draw("r6", "figures5and6.svg", caption, panels)


# Beyond the paper's tables ------------------------------------------------------------------------------------------

SIZES, PER_MACHINE = (4, 8, 16, 32, 64), 60  # machines, and how many messages each sends
BEYOND_MESSAGES = 2000  # elsewhere
MEAN_MS = 20  # of the links, where it varies
VARYING: dict[str, tuple[float, Latency]] = {  # with the standard deviation, in ms
    "20": (0.0, Constant(MEAN_MS * MILLISECOND)),
    "15 to 25": (10 / 12**0.5, Uniform(15 * MILLISECOND, 25 * MILLISECOND)),
    "5 to 35": (30 / 12**0.5, Uniform(5 * MILLISECOND, 35 * MILLISECOND)),
    "5 and exponential 15": (15.0, Exponential(5 * MILLISECOND, 15 * MILLISECOND)),
    "exponential 20": (20.0, Exponential(0, 20 * MILLISECOND)),
}
FAR_MS = (2, 50, 100, 200, 400)  # how far the last machine is away, where all others are 2 ms apart
WIDE = {"narrow": (50, 2), "wide": (400, 50)}  # messages per second in all, and the links' ms


class Beyond(NamedTuple):
    tables: list[ResultTable]
    pictures: list[Picture]


def measured_beyond(lab: Lab) -> Beyond:
    """More machines, links that vary, one that is far away, and every Φ: in the full form only."""
    machines = {source: [Case("toto", source, 50, n, messages=PER_MACHINE * n) for n in SIZES] for source in SOURCES}
    varying = {name: Case("toto", latency=latency, messages=BEYOND_MESSAGES) for name, (_, latency) in VARYING.items()}
    far = {ms: Case("toto", messages=BEYOND_MESSAGES, distances=_far(ms)) for ms in FAR_MS}
    phis = _phis()
    asked = [*(case for some in machines.values() for case in some), *varying.values(), *far.values()]
    cases = list(
        dict.fromkeys([one for case in asked for one in _both(case)] + [c for some in phis.values() for c in some])
    )
    found = toto.measured(lab.sweep("toto-beyond", cases, range(2)), cases)
    return Beyond(
        [_machines_table(found, machines), _links_table(found, varying, far), _phi_table(found, phis)],
        [
            _machines_picture(lab, found, machines),
            _links_picture(lab, found, varying, far),
            _phi_picture(lab, found, phis),
        ],
    )


def _both(case: Case) -> tuple[Case, Case]:
    from msgspec.structs import replace

    return replace(case, protocol="toto"), replace(case, protocol="allack")


def _speedup(found: MeasuredCases, case: Case) -> float:
    early, late = (found[one].latency_ms for one in _both(case))
    return late / early


def narrow_speedup(source: Source, n: int) -> float:
    """Formulas (1) and (2) with ω = 1 always, and τ = n for all-ack, n/2 + 1 for ToTo."""
    if source == "periodic":
        return (n - 1) / (n // 2)
    return sum(1 / (n - k) for k in range(1, n)) / sum(1 / (n - k) for k in range(1, n // 2 + 1))


def _machines_table(found: MeasuredCases, machines: dict[Source, list[Case]]) -> ResultTable:
    rows = []
    for source, cases in machines.items():
        speedups = [_speedup(found, case) for case in cases]
        rows += [
            only_shown(
                (TITLES[source], str(case.n)), "speedup, and by the formulas", narrow_speedup(source, case.n), speedup
            )
            for case, speedup in zip(cases, speedups, strict=True)
        ]
        if source == "poisson":  # the paper: as log n
            rows.append(grows((TITLES[source], "all"), "speedup", "as log n", speedups))
    return ResultTable(title="More machines, 50 messages a second in all, Φ = n/2", labels=("source", "n"), rows=rows)


def _machines_picture(lab: Lab, found: MeasuredCases, machines: dict[Source, list[Case]]) -> Picture:
    panels = [
        Panel(
            TITLES[source],
            "machines",
            "speedup over all-ack",
            [
                Curve("measured", SIZES, [_speedup(found, case) for case in cases]),
                Curve("formulas, narrow graph", SIZES, [narrow_speedup(source, n) for n in SIZES], "--"),
            ],
            log_x=True,
            ticks=SIZES,
        )
        for source, cases in machines.items()
    ]
    return lab.draw("r6", "machines.svg", "The speedup against the number of machines", panels)


def _far(ms: int) -> tuple[Distance, ...]:
    return tuple(Distance(f"g.{i}", f"g.{MACHINES}", ms * MILLISECOND) for i in range(1, MACHINES))


def _links_table(found: MeasuredCases, varying: dict[str, Case], far: dict[int, Case]) -> ResultTable:
    named = {f"{name} ms, deviation {VARYING[name][0]:.1f} ms": case for name, case in varying.items()}
    named |= {f"2 ms, one machine {ms} ms away": case for ms, case in far.items()}
    rows = []
    for name, case in named.items():
        early, late = (found[one] for one in _both(case))
        rows += [
            only_shown((name,), "ToTo, ms", None, early.latency_ms),
            only_shown((name,), "all-ack, ms", None, late.latency_ms),
            only_shown((name,), "speedup", None, _speedup(found, case)),
        ]
    return ResultTable(
        title="Links that vary, 8 Poisson sources, 50 messages a second in all", labels=("links",), rows=rows
    )


def _links_picture(lab: Lab, found: MeasuredCases, varying: dict[str, Case], far: dict[int, Case]) -> Picture:
    deviations = [deviation for deviation, _ in VARYING.values()]
    speedups = [_speedup(found, case) for case in varying.values()]
    panels = [
        Panel(
            f"links of {MEAN_MS} ms on average",
            "standard deviation, ms",
            "speedup over all-ack",
            [Curve("8 Poisson sources, 50/s", deviations, speedups)],
        )
    ]
    times = [[found[_both(case)[i]].latency_ms for case in far.values()] for i in (0, 1)]
    curves = [Curve(name, FAR_MS, ms) for name, ms in zip(PROTOCOLS.values(), times, strict=True)]
    panels.append(Panel("one of 8 machines is far away", "ms to that machine", "latency at the sender, ms", curves))
    return lab.draw("r6", "links.svg", "The speedup as the latency of the links varies", panels)


def _phis() -> dict[tuple[str, Source], list[Case]]:
    return {
        (name, source): [
            Case("toto", source, load, MACHINES, phi, BEYOND_MESSAGES, Constant(ms * MILLISECOND))
            for phi in range(MACHINES // 2, MACHINES)
        ]
        for name, (load, ms) in WIDE.items()
        for source in SOURCES
    }


def _phi_table(found: MeasuredCases, phis: dict[tuple[str, Source], list[Case]]) -> ResultTable:
    rows = [
        only_shown((name, TITLES[source], str(case.phi)), "latency, ms", None, found[case].latency_ms)
        for (name, source), cases in phis.items()
        for case in cases
    ]
    return ResultTable(title="Φ", labels=("graph", "source", "Φ"), rows=rows)


def _phi_picture(lab: Lab, found: MeasuredCases, phis: dict[tuple[str, Source], list[Case]]) -> Picture:
    panels = []
    for name, (load, ms) in WIDE.items():
        curves = [
            Curve(TITLES[source], [case.early for case in cases], [found[case].latency_ms for case in cases])
            for (of, source), cases in phis.items()
            if of == name
        ]
        ticks = range(MACHINES // 2, MACHINES)
        title = f"{name}: {load}/s, links of {ms} ms"
        panels.append(Panel(title, "Φ", "latency at the sender, ms", curves, ticks=ticks))
    return lab.draw("r6", "phi.svg", "The latency against Φ, on a narrow graph and on a wide one", panels)
