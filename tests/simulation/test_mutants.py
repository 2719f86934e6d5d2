"""Mutants of every protocol, none of which may survive the seeds of its campaign."""

from __future__ import annotations

import importlib
from itertools import chain, islice

import pytest

from antiphon.core import ProcessId
from antiphon.protocols import protocols
from antiphon.protocols.skeen import Final, Skeen
from antiphon.services.stack import StackedProtocol
from antiphon.simulation import ERROR, INVARIANT, Crash, simulate
from antiphon.simulation.campaign import scenarios
from mutants.parts import UniformDeliversTheFirstCopy, with_parts
from mutants.record import first_seeds, is_caught

MUTANT_SEEDS = 600  # almost all show at once; the rarest, a consensus of tom that needs too few votes, in one of 130


def mutants() -> list[object]:
    found = []
    for name in sorted(protocols()):
        module = importlib.import_module(f"mutants.{name}")
        assert len(module.MUTANTS) >= (10 if issubclass(protocols()[name], StackedProtocol) else 8)
        found += [pytest.param(name, mutant, id=f"{name}-{mutant.__name__}") for mutant in module.MUTANTS]
    return found


@pytest.mark.parametrize(("name", "mutant"), mutants())
def test_every_mutant_is_caught_by_the_fixed_seeds(name, mutant) -> None:
    known = first_seeds().get((name, mutant.__name__), 0)
    seeds = chain(islice(scenarios(protocols()[name], known), 1), islice(scenarios(protocols()[name], 0), MUTANT_SEEDS))
    errors = []
    for scenario in seeds:
        violations = simulate(scenario, mutant).violations
        if is_caught(violations):
            return
        errors += [violation.detail for violation in violations]
    died = f", but for errors, which do not count: {errors[0]}" if errors else ""
    pytest.fail(f"{mutant.__name__} survived {MUTANT_SEEDS} seeds{died}")


class DiesOfAName(Skeen):
    def on_final(self, sender: ProcessId, final: Final) -> None:
        self.no_longer_here(final)  # type: ignore[attr-defined]


class DiesOfAnAssertion(Skeen):
    def on_final(self, sender: ProcessId, final: Final) -> None:
        raise AssertionError("there is no such thing")


def test_who_dies_of_anything_but_an_assertion_is_not_caught() -> None:
    scenario = next(scenarios(Skeen, 0))
    by_name, by_assertion = (simulate(scenario, mutant) for mutant in (DiesOfAName, DiesOfAnAssertion))
    assert [violation.property for violation in by_name.violations] == [ERROR]
    assert not is_caught(by_name.violations)
    assert [violation.property for violation in by_assertion.violations] == [INVARIANT]
    assert is_caught(by_assertion.violations)


@pytest.mark.parametrize(
    ("name", "seeds", "least"),
    [("reliable", 100, 5), ("tom", 100, 5), ("scalatom", 100, 5), ("ctbroadcast", 100, 4), ("nonminimal", 130, 5)],
)
def test_who_delivers_the_first_copy_is_caught_often(name: str, seeds: int, least: int) -> None:
    """Of so many seeds, under each protocol; only those are run in which a message is known to one member alone."""
    protocol = protocols()[name]
    mutant = with_parts(protocol, UniformDeliversTheFirstCopy)
    caught = 0
    for scenario in islice(scenarios(protocol, 0, {"reliable": "uniform"}), seeds):
        lonely = any(isinstance(fault, Crash) and fault.about for fault in scenario.faults)
        if caught < least and lonely:
            caught += is_caught(simulate(scenario, mutant).violations)
    assert caught == least
