"""Mistakes of the host with what leaves before it is durable, and runs in which much of that is forgotten."""

from __future__ import annotations

from itertools import chain, islice

import pytest

from antiphon.simulation import simulate
from mutants import foretold, shown
from mutants.foretold import runs_from
from mutants.host import Slip
from mutants.record import first_seeds, is_caught

SEEDS = 250
SLIPS = (*foretold.SLIPS, *shown.SLIPS)
KEPT = (0, 1, 2, 3, 4, 5, 6, 7, 4025)  # in the last one a whole life is forgotten, and the next has its names


@pytest.mark.parametrize("slip", SLIPS, ids=lambda slip: slip.name)
def test_every_mistake_of_the_host_is_caught(slip: Slip) -> None:
    known = first_seeds().get(("host", slip.name), 0)
    for scenario in chain(islice(runs_from(known), 1), islice(runs_from(0), SEEDS)):
        with slip.made():
            if is_caught(simulate(scenario).violations):
                return
    pytest.fail(f"{slip.name} survived {SEEDS} seeds")


def test_the_same_runs_break_nothing_without_a_mistake() -> None:
    seeds = {first_seeds().get(("host", slip.name), 0) for slip in SLIPS}
    outcomes = [simulate(next(runs_from(seed))) for seed in sorted({*KEPT, *seeds})]
    assert [outcome.violations for outcome in outcomes] == [[]] * len(outcomes)
    assert any(outcome.observations.forgotten for outcome in outcomes), "something was forgotten"
