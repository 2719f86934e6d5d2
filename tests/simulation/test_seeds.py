"""The suite's slice of the campaigns: every protocol under its whole fault model, and mutants that must not survive."""

from __future__ import annotations

import importlib
import time
from itertools import chain, islice

import msgspec
import pytest

from antiphon.checks import check_run
from antiphon.protocols import protocols
from antiphon.services.stack import StackedProtocol
from antiphon.simulation import as_code, random_scenario, simulate
from antiphon.simulation.campaign import counts, scenarios
from mutants.record import first_seeds

PROTOCOLS = sorted(protocols())
FIXED_SEEDS = 300
MUTANT_SEEDS = 600  # almost all show at once; the rarest, a consensus of tom that needs too few votes, in one of 130
ROTATING_SEEDS = 600 // len(PROTOCOLS)  # shared out: more protocols, fewer seeds each
DAY = int(time.time()) // 86_400  # other seeds every day


def run_seeds(name: str, first: int, count: int) -> int:
    counted = 0
    for scenario in islice(scenarios(protocols()[name], first), count):
        outcome = simulate(scenario)
        assert not outcome.violations, f"{outcome.violations}\n{as_code(scenario)}"
        counted += counts(outcome)
    return counted


@pytest.mark.parametrize("name", PROTOCOLS)
def test_no_promise_is_broken_on_the_fixed_seeds(name: str) -> None:
    assert run_seeds(name, 0, FIXED_SEEDS) > 0.7 * FIXED_SEEDS  # the others had too few multicasts or faults


@pytest.mark.parametrize("name", PROTOCOLS)
def test_no_promise_is_broken_on_the_seeds_of_the_day(name: str) -> None:
    assert run_seeds(name, 1_000_000 + DAY * ROTATING_SEEDS, ROTATING_SEEDS) > 0


def mutants() -> list[object]:
    found = []
    for name in PROTOCOLS:
        module = importlib.import_module(f"mutants.{name}")
        assert len(module.MUTANTS) >= (10 if issubclass(protocols()[name], StackedProtocol) else 5)
        found += [pytest.param(name, mutant, id=f"{name}-{mutant.__name__}") for mutant in module.MUTANTS]
    return found


@pytest.mark.parametrize(("name", "mutant"), mutants())
def test_every_mutant_is_caught_by_the_fixed_seeds(name, mutant) -> None:
    known = first_seeds().get((name, mutant.__name__), 0)
    seeds = chain(islice(scenarios(protocols()[name], known), 1), islice(scenarios(protocols()[name], 0), MUTANT_SEEDS))
    for scenario in seeds:
        if simulate(scenario, mutant).violations:
            return
    pytest.fail(f"{mutant.__name__} survived {MUTANT_SEEDS} seeds")


def test_the_sequencer_is_not_causal_across_groups() -> None:
    """A run that keeps the promise of causal order away from the sequencer."""
    outcome = simulate(random_scenario(protocols()["sequencer"], 11))
    facts = msgspec.structs.replace(outcome.facts, promises=["causal"])
    (violation, *_) = check_run(facts, outcome.rows)
    assert violation.property == "causal"
