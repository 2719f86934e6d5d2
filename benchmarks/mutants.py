"""Which property catches each mutant of a protocol, and at which seed of the suite.

    python benchmarks/mutants.py [host tom scalatom ...] [--seeds 600]
    python benchmarks/mutants.py --search

"first" is the first seed at which a run of the mutant goes wrong in any way, with what went wrong there; "property" is
the first seed at which a checked property is broken, and not only an assertion in the protocol.

With --search, the table of docs/exploration.md instead: in which small world the search finds each mutant.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

from antiphon.protocols import protocols
from antiphon.simulation import ERROR, INVARIANT, Outcome, simulate
from antiphon.simulation.campaign import scenarios

TESTS = Path(__file__).parent.parent / "tests"


HOST = "host"  # the mutants that are no protocols


def mutants(protocol: str) -> tuple[Any, ...]:
    sys.path.insert(0, str(TESTS))
    found: tuple[Any, ...] = importlib.import_module(f"mutants.{protocol}").MUTANTS
    return found


def outcomes(protocol: str, index: int, seeds: int) -> Iterator[Outcome]:
    mutant = mutants(protocol)[index]
    if protocol != HOST:
        for scenario in islice(scenarios(protocols()[protocol], 0), seeds):
            yield simulate(scenario, mutant)
        return
    for scenario in islice(importlib.import_module("mutants.host").runs_from(0), seeds):
        with mutant.made():
            outcome = simulate(scenario)
        yield outcome


def broken(protocol: str, index: int, seeds: int) -> Iterator[tuple[int, list[str]]]:
    """The seeds at which the mutant goes wrong, each with the names of what it breaks."""
    for outcome in outcomes(protocol, index, seeds):
        if outcome.violations:
            yield outcome.scenario.seed, sorted({violation.property for violation in outcome.violations})


def row(protocol: str, index: int, seeds: int) -> str:
    mutant = mutants(protocol)[index]
    name = mutant.name if protocol == HOST else mutant.__name__
    first = checked = "survives"
    for seed, names in broken(protocol, index, seeds):
        if first == "survives":
            first = f"{seed}: {', '.join(names)}"
        properties = [name for name in names if name not in (INVARIANT, ERROR)]
        if properties:
            checked = f"{seed}: {', '.join(properties)}"
            break
    return f"| {protocol} | {name} | {first} | {checked} |"


def search_rows() -> Iterator[str]:
    sys.path.insert(0, str(TESTS))
    scopes = importlib.import_module("mutants.scopes")
    for protocol, mutant in scopes.SEARCHED:
        shown = None if mutant in scopes.CANNOT_SHOW else scopes.search(protocol, mutant)
        if shown is not None:
            scope, found = shown
            broken = found.violations[0].property
            yield f"| {protocol} | `{mutant.__name__}` | {scope} | {found.states:,} | {len(found.path)} | {broken} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocols", nargs="*", default=[], metavar="protocol")
    parser.add_argument("--seeds", type=int, default=600)
    parser.add_argument("--search", action="store_true")
    arguments = parser.parse_args()
    if arguments.search:
        print("| protocol | mutant | found in | states | moves to it | broken |")
        print("| --- | --- | --- | ---: | ---: | --- |")
        for line in search_rows():
            print(line, flush=True)
        return
    names: list[str] = arguments.protocols or [HOST, *sorted(protocols())]
    jobs = [(name, index) for name in names for index in range(len(mutants(name)))]
    print("| protocol | mutant | first seed: what | first seed: checked property |")
    print("| --- | --- | --- | --- |")
    with ProcessPoolExecutor() as pool:
        rows = pool.map(row, [name for name, _ in jobs], [i for _, i in jobs], [arguments.seeds] * len(jobs))
        for line in rows:
            print(line, flush=True)


if __name__ == "__main__":
    main()
