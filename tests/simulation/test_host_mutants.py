"""Mistakes at the level of the host: each must break a promise, under a protocol that makes none of them."""

from __future__ import annotations

from itertools import chain, islice

import pytest

from antiphon.simulation import simulate
from mutants.host import MUTANTS, SLIPS, Slip, runs_from
from mutants.record import PAGE, first_seeds, is_caught

SEEDS = 300


@pytest.mark.parametrize("slip", MUTANTS, ids=lambda slip: slip.name)
def test_every_mutant_of_the_host_is_caught(slip: Slip) -> None:
    known = first_seeds().get(("host", slip.name), 0)
    for scenario in chain(islice(runs_from(known), 1), islice(runs_from(0), SEEDS)):
        with slip.made():
            if is_caught(simulate(scenario).violations):
                return
    pytest.fail(f"{slip.name} survived {SEEDS} seeds")


def test_the_same_runs_break_nothing_without_a_mistake() -> None:
    seeds = sorted({seed for (protocol, _), seed in first_seeds().items() if protocol == "host"})
    assert seeds
    for seed in seeds:
        assert simulate(next(runs_from(seed))).violations == []


def test_the_page_speaks_of_every_mutant_of_the_host() -> None:
    page = PAGE.read_text()
    assert [slip.name for slip in SLIPS if slip.name not in page] == []
