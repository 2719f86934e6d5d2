"""ToTo against all-ack beyond toto.txt's tables: simulated, and measured by Spark from the trace.

    python benchmarks/toto_curves.py machines [--sizes 4 8] [--seeds 4] [--trace FOLDER] [--plot FILE.svg]
    python benchmarks/toto_curves.py variance | phi    (the same options)

machines: the speedup for 4 to 64 machines, at 50 messages a second in all and Φ = n/2, beside what formulas (1) and (2)
say of a graph as narrow as can be. variance: the speedup among 8 machines as the latency of the links varies more and
more, at the same mean; and as one machine is farther and farther away. phi: ToTo's latency for each Φ from n/2 to n-1
among 8 machines, on a narrow graph and on a wide one. More than 8 machines have fewer seeds, and as many deliveries.
Runs that the folder has already are not simulated again.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from antiphon.reproduce import toto
from antiphon.reproduce.toto import SOURCES, Case, Measured
from antiphon.reproduce.toto_figures import TITLES, Curve, Panel, draw_curves
from antiphon.simulation import MILLISECOND, Constant, Distance, Exponential, Latency, Uniform

SIZES = (4, 8, 16, 32, 64)
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
PHI_MACHINES = 8

Found = dict[Case, Measured]
Measure = Callable[[Sequence[Case]], Found]


def row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells) + " |"


def heads(*names: str) -> None:
    print(row(names))
    print("| --- " * len(names) + "|")


def both(case: Case) -> tuple[Case, Case]:
    return case._replace(protocol="toto"), case._replace(protocol="allack")


def speedup(found: Found, case: Case) -> float:
    early, late = (found[one].latency_ms for one in both(case))
    return late / early


def narrow_speedup(source: str, n: int) -> float:
    """Formulas (1) and (2) with ω = 1 always, and τ = n for all-ack, n/2 + 1 for ToTo."""
    if source == "periodic":
        return (n - 1) / (n // 2)
    return sum(1 / (n - k) for k in range(1, n)) / sum(1 / (n - k) for k in range(1, n // 2 + 1))


def machines(measure: Measure, sizes: Sequence[int] = SIZES) -> list[Panel]:
    panels = []
    by_source = {
        source: [Case("toto", source, 50, n, messages=2000 if n > 16 else 4000) for n in sizes] for source in SOURCES
    }
    found = measure([one for cases in by_source.values() for case in cases for one in both(case)])
    heads("source", "n", "ToTo τ", "ω", "ToTo ms", "all-ack ms", "speedup", "by the formulas")
    for source, cases in by_source.items():
        for case in cases:
            print(row((source, case.n, *_cells(found, case), narrow_speedup(source, case.n))))
        curves = [
            Curve("measured", sizes, [speedup(found, case) for case in cases]),
            Curve("formulas, narrow graph", sizes, [narrow_speedup(source, n) for n in sizes], "--"),
        ]
        panels.append(Panel(TITLES[source], "machines", "speedup over all-ack", curves, log_x=True, ticks=sizes))
    return panels


def variance(measure: Measure) -> list[Panel]:
    varying = {
        name: Case("toto", latency=latency, messages=2000, name=f"deviation{deviation:.0f}")
        for name, (deviation, latency) in VARYING.items()
    }
    far = {ms: Case("toto", messages=2000, distances=_far(ms), name=f"far{ms}") for ms in FAR_MS}
    found = measure([one for case in (*varying.values(), *far.values()) for one in both(case)])
    heads("links", "deviation ms", "ToTo τ", "ω", "ToTo ms", "all-ack ms", "speedup")
    for name, case in varying.items():
        print(row((f"{name} ms", VARYING[name][0], *_cells(found, case))))
    for ms, case in far.items():
        print(row((f"2 ms, one machine {ms} ms away", "", *_cells(found, case))))
    deviations = [deviation for deviation, _ in VARYING.values()]
    times = [[found[both(case)[i]].latency_ms for case in far.values()] for i in (0, 1)]
    return [
        Panel(
            f"links of {MEAN_MS} ms on average",
            "standard deviation, ms",
            "speedup over all-ack",
            [Curve("8 Poisson sources, 50/s", deviations, [speedup(found, case) for case in varying.values()])],
        ),
        Panel(
            "one of 8 machines is far away",
            "ms to that machine",
            "latency at the sender, ms",
            [Curve("ToTo", FAR_MS, times[0]), Curve("all-ack", FAR_MS, times[1])],
        ),
    ]


def _far(ms: int) -> tuple[Distance, ...]:
    others = [f"g.{i}" for i in range(1, toto.MACHINES)]
    return tuple(Distance(other, f"g.{toto.MACHINES}", ms * MILLISECOND) for other in others)


def _cells(found: Found, case: Case) -> tuple[float, ...]:
    early, late = (found[one] for one in both(case))
    return early.tau, early.omega, early.latency_ms, late.latency_ms, speedup(found, case)


def phi(measure: Measure) -> list[Panel]:
    n = PHI_MACHINES
    by_kind = {
        (name, source): [
            Case("toto", source, load, n, phi, 2000, Constant(ms * MILLISECOND), name=name) for phi in range(n // 2, n)
        ]
        for name, (load, ms) in WIDE.items()
        for source in SOURCES
    }
    found = measure([case for cases in by_kind.values() for case in cases])
    panels = []
    heads("graph", "source", "Φ", "τ", "ω", "ms at the sender")
    for name, (load, ms) in WIDE.items():
        curves = []
        for source in SOURCES:
            cases = by_kind[name, source]
            for case in cases:
                print(row((name, source, case.phi, found[case].tau, found[case].omega, found[case].latency_ms)))
            latencies = [found[case].latency_ms for case in cases]
            curves.append(Curve(TITLES[source], [case.phi or 0 for case in cases], latencies))
        title = f"{name}: {load}/s, links of {ms} ms"
        panels.append(Panel(title, "Φ", "latency at the sender, ms", curves, ticks=range(n // 2, n)))
    return panels


KINDS: dict[str, Callable[[Measure], list[Panel]]] = {"machines": machines, "variance": variance, "phi": phi}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="of the groups, for machines")
    parser.add_argument("--trace", type=Path, help="where the runs are kept")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="antiphon-toto-") as temporary:
        folder = arguments.trace or Path(temporary)

        def measure(cases: Sequence[Case]) -> Found:
            return toto.measure(folder, cases, lambda case: range(max(1, arguments.seeds * 8 // max(8, case.n))))

        panels = machines(measure, arguments.sizes) if arguments.kind == "machines" else KINDS[arguments.kind](measure)
    if arguments.plot is not None:
        draw_curves(arguments.plot, panels)


if __name__ == "__main__":
    main()
