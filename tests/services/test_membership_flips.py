"""Partitions that flip: before machines have agreed on one view, the network has cut them apart in another way."""

from __future__ import annotations

import random

import pytest

from antiphon.simulation import (
    MILLISECOND,
    Constant,
    Crash,
    Fault,
    Partition,
    Pause,
    Plan,
    Scenario,
    Uniform,
    WrongSuspicion,
    simulate,
)
from mutants.membership import MUTANTS
from view_scenes import OPTIONS, PROTOCOLS, named, scene, trouble, views

PERIODS = ((3, 12), (5, 40), (20, 120), (60, 300))  # milliseconds: noticing takes 5 to 30 of them, agreeing about 10


def flipping(protocol: str, seed: int) -> Scenario:
    """Five to eight machines, six to twenty-four cuts, one after the other or one on top of the other."""
    rng = random.Random(seed)
    machines = named(*range(1, rng.randint(5, 8) + 1))
    period, at = rng.choice(PERIODS), rng.randint(5, 60)
    faults: list[Fault] = []
    for _ in range(rng.randint(6, 24)):
        lasts = rng.randint(*period)
        faults.append(cut(rng, machines, at * MILLISECOND, lasts * MILLISECOND))
        at += lasts if rng.random() < 0.8 else rng.randint(1, lasts)
    for machine in rng.sample(machines, rng.choice((0, 0, 1, 2))):
        back = rng.choice((50, 300, 1000)) * MILLISECOND
        faults.append(Crash(machine, rng.randint(10, at) * MILLISECOND, down_ns=back))
    count = min(200, max(60, at // 4))
    plans = tuple(Plan(rng.choice(machines), rng.randint(0, at + 50) * MILLISECOND, ("a",)) for _ in range(count))
    return Scenario(
        protocol=protocol,
        options=OPTIONS,
        groups={"a": len(machines)},
        plans=plans,
        faults=tuple(faults),
        latency=rng.choice((Constant(), Uniform(MILLISECOND // 2, 8 * MILLISECOND))),
        loss=rng.choice((0.0, 0.1, 0.3)),
        duplication=0.1,
        journal=True,
        snapshot_every=7,
        seed=seed,
        limit_ns=60_000 * MILLISECOND,
    )


def cut(rng: random.Random, machines: tuple[str, ...], at: int, lasts: int) -> Fault:
    kind = rng.random()
    if kind < 0.1:
        return Pause(rng.choice(machines), at, lasts)
    if kind < 0.25:
        one, other = rng.sample(machines, 2)
        return WrongSuspicion(one, other, at, lasts)
    size = rng.randint(1, len(machines) - 2)
    side = machines[:size] if rng.random() < 0.5 else tuple(sorted(rng.sample(machines, size)))
    bridge = rng.choice([p for p in machines if p not in side]) if rng.random() < 0.15 else None
    return Partition(side, at, lasts, one_way=rng.random() < 0.15, bridge=bridge)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", [1, 2])
def test_views_come_together_after_cuts_that_flip(protocol: str, seed: int) -> None:
    assert trouble(simulate(flipping(protocol, seed))) == []


def flips(size: int, offset: int) -> Scenario:
    """A|BC becomes AB|C and back, four times, each so many half milliseconds after the one before."""
    half = MILLISECOND // 2
    sides = (named(1), named(*range(1, size - 1))) * 4
    faults = [Partition(side, 20 * MILLISECOND + i * offset * half, offset * half) for i, side in enumerate(sides)]
    return scene("toto", size, *faults, messages=100, loss=0.1)


@pytest.mark.parametrize("size", [5, 8])
def test_one_and_the_rest_then_all_but_two_and_back(size: int) -> None:
    for offset in (17, 71, 131):  # at different stages of an agreement
        outcome = simulate(flips(size, offset))
        assert trouble(outcome) == [], offset
        assert views(outcome, "a.2")[-1] == named(*range(1, size + 1))


@pytest.mark.parametrize(("mistake", "seed"), [("IsReadyTooEarly", 2), ("NeverMerges", 2), ("DoesNotStandStill", 3)])
def test_mistakes_show_where_cuts_flip(mistake: str, seed: int) -> None:
    (mutant,) = [mutant for mutant in MUTANTS if mutant.__name__ == mistake]
    assert trouble(simulate(flipping("toto", seed), mutant)) != []


def test_the_longest_of_them_without_a_mistake() -> None:
    assert trouble(simulate(flipping("toto", 3))) == []
