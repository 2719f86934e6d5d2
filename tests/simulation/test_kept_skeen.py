"""Runs of skeen with takeover that found a mistake, that show a rare one, or that show what is not promised."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.checks import check_run
from antiphon.core import OrderingProtocol
from antiphon.protocols.skeen import Skeen
from antiphon.simulation import random_scenario, simulate
from mutants.record import is_caught
from mutants.skeen import RARE

TAKEOVER = {"takeover": "true", "causal": "false"}


@pytest.mark.parametrize(("mutant", "seed"), RARE.items(), ids=lambda value: getattr(value, "__name__", None))
def test_a_mistake_of_a_takeover_that_takes_a_coincidence(mutant: type[OrderingProtocol], seed: int) -> None:
    scenario = random_scenario(Skeen, seed, TAKEOVER)
    assert simulate(scenario).violations == []
    assert is_caught(simulate(scenario, mutant).violations)


@pytest.mark.parametrize("seed", [16, 20, 96, 119, 460, 485, 592])
def test_what_a_dead_destination_delivered_is_behind_nothing_that_it_never_had(seed: int) -> None:
    """At first the survivors' old proposals were used: a message came before one that the dead had delivered."""
    assert simulate(random_scenario(Skeen, seed, TAKEOVER)).violations == []


@pytest.mark.parametrize("takeover", ["false", "true"])
@pytest.mark.parametrize("promise", ["fifo", "causal"])
def test_skeen_promises_neither_fifo_nor_causal_order_by_itself(takeover: str, promise: str) -> None:
    for seed in range(60):
        outcome = simulate(random_scenario(Skeen, seed, {"takeover": takeover, "causal": "false"}))
        facts = msgspec.structs.replace(outcome.facts, promises=[promise])
        if check_run(facts, outcome.rows):
            return
    pytest.fail(f"{promise} holds in all runs")
