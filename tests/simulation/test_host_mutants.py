"""Mistakes at the level of the host: each must break a promise, under a protocol that makes none of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

import msgspec
import pytest

from antiphon.protocols import protocols
from antiphon.simulation import MILLISECOND, Scenario, simulate
from antiphon.simulation.campaign import scenarios
from mutants.host import MUTANTS, Slip
from mutants.record import first_seeds

SEEDS = 300
SLOW_DISK_NS = 100 * MILLISECOND  # much is under way when a process crashes, and not yet durable


def with_slow_disks(first: int) -> Iterator[Scenario]:
    """The suite's seeds, every other one on slow disks; on fast ones there is more that a restart brings back."""
    for scenario in scenarios(protocols()["skeen"], first):
        yield msgspec.structs.replace(scenario, sync_ns=SLOW_DISK_NS) if scenario.seed % 2 else scenario


@pytest.mark.parametrize("slip", MUTANTS, ids=lambda slip: slip.name)
def test_every_mutant_of_the_host_is_caught(slip: Slip) -> None:
    known = first_seeds().get(("host", slip.name), 0)
    for scenario in chain(islice(with_slow_disks(known), 1), islice(with_slow_disks(0), SEEDS)):
        with slip.made():
            if simulate(scenario).violations:
                return
    pytest.fail(f"{slip.name} survived {SEEDS} seeds")


def test_the_same_runs_break_nothing_without_a_mistake() -> None:
    for seed in sorted({seed for (protocol, _), seed in first_seeds().items() if protocol == "host"}):
        assert simulate(next(with_slow_disks(seed))).violations == []
