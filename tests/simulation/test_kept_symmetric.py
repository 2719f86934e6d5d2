"""Runs of the symmetric protocol that show what random seeds show rarely, or what it does not promise."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.checks import check_run
from antiphon.core import OrderingProtocol
from antiphon.protocols.symmetric import Symmetric
from antiphon.simulation import random_scenario, simulate
from mutants.record import is_caught
from mutants.symmetric import RARE


@pytest.mark.parametrize(("mutant", "seed"), RARE.items(), ids=lambda value: getattr(value, "__name__", None))
def test_a_mistake_that_takes_a_coincidence(mutant: type[OrderingProtocol], seed: int) -> None:
    scenario = random_scenario(Symmetric, seed, {"leave_out": "true"})
    assert simulate(scenario).violations == []
    assert is_caught(simulate(scenario, mutant).violations)


@pytest.mark.parametrize("seed", [499, 731, 1263, 1303, 1474])
def test_a_group_without_messages_does_not_talk_about_its_dead(seed: int) -> None:
    """FLUSH went out at once, in groups that no message of the run concerns."""
    assert simulate(random_scenario(Symmetric, seed, {"leave_out": "true"})).violations == []


@pytest.mark.parametrize(("leave_out", "seed"), [("false", 343), ("true", 226)])
def test_the_symmetric_protocol_is_not_causal_across_groups(leave_out: str, seed: int) -> None:
    outcome = simulate(random_scenario(Symmetric, seed, {"leave_out": leave_out}))
    facts = msgspec.structs.replace(outcome.facts, promises=["causal"])
    assert [violation.property for violation in check_run(facts, outcome.rows)][:1] == ["causal"]


def test_who_crashes_before_its_beginning_is_durable_begins_when_it_returns() -> None:
    """It had asked no failure detector about anybody, and waited for the dead for ever."""
    assert simulate(random_scenario(Symmetric, 3877, {"leave_out": "true"})).violations == []
