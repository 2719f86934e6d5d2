"""Thousands of small random runs of one protocol, on all cores, with everything that its fault model allows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice

import msgspec

from antiphon.core.component import OrderingProtocol
from antiphon.protocols import protocol_named
from antiphon.simulation.generate import random_scenario
from antiphon.simulation.run import Outcome, simulate
from antiphon.simulation.values import Scenario, kind_of

MULTICASTS_MIN = 20
FAULTS_MIN = 3
SEEDS_AT_ONCE = 50
NO_FIFO = "No FIFO"
ROUNDS_TOLD_APART = 5


class Tally(msgspec.Struct):
    """Of one kind of fault: how many were placed, how many took effect; and in how many runs each happened."""

    placed: int = 0
    effective: int = 0
    runs_placed: int = 0
    runs_effective: int = 0

    def __str__(self) -> str:
        return f"{self.effective:,} of {self.placed:,}"

    def add(self, placed: int, effective: int) -> None:
        self.merge(Tally(placed, effective, placed > 0, effective > 0))

    def merge(self, other: Tally) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Campaign(msgspec.Struct, kw_only=True):
    """What came of it. A run counts when it had enough multicasts and enough faults that took effect."""

    protocol: str
    first_seed: int
    seeds: int = 0  # tried
    runs: int = 0  # that counted
    events: int = 0
    multicasts: int = 0
    deliveries: int = 0
    payloads: int = 0  # delivered
    faults: dict[str, Tally] = {}  # by kind, of all seeds; a run without FIFO channels counts as one, too
    rounds: dict[str, int] = {}  # instances of consensus by the highest round in which anybody was, of all seeds
    highest_round: int = 0
    options: dict[str, int] = {}  # runs by option value
    failures: list[Scenario] = []

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        if outcome.violations:
            self.failures.append(outcome.scenario)
        self._add_faults(outcome)
        self._add_rounds(outcome)
        if not counts(outcome):
            return
        self.runs += 1
        self.events += outcome.events
        self.multicasts += outcome.multicasts
        self.deliveries += outcome.deliveries
        self.payloads += outcome.payloads
        for name, value in outcome.scenario.options.items():
            choice = f"{name}={value}"
            self.options[choice] = self.options.get(choice, 0) + 1

    def _add_faults(self, outcome: Outcome) -> None:
        placed = Counter(kind_of(fault) for fault in outcome.scenario.faults)
        effective = Counter(kind_of(fault) for fault in outcome.faults_effective)
        if not outcome.scenario.fifo:
            placed[NO_FIFO] = 1
            effective[NO_FIFO] = int(outcome.overtakings > 0)
        for name in placed:
            self.faults.setdefault(name, Tally()).add(placed[name], effective[name])

    def _add_rounds(self, outcome: Outcome) -> None:
        for round in outcome.rounds.values():
            name = str(round) if round <= ROUNDS_TOLD_APART else f"more than {ROUNDS_TOLD_APART}"
            self.rounds[name] = self.rounds.get(name, 0) + 1
            self.highest_round = max(self.highest_round, round)

    def merge(self, other: Campaign) -> None:
        for name in ("seeds", "runs", "events", "multicasts", "deliveries", "payloads"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, tally in sorted(other.faults.items()):
            self.faults.setdefault(name, Tally()).merge(tally)
        self.rounds = dict(sorted((Counter(self.rounds) + Counter(other.rounds)).items()))
        self.highest_round = max(self.highest_round, other.highest_round)
        self.options = dict(Counter(self.options) + Counter(other.options))
        self.failures += other.failures


def counts(outcome: Outcome) -> bool:
    return outcome.multicasts >= MULTICASTS_MIN and len(outcome.faults_effective) >= FAULTS_MIN


def scenarios(
    protocol: type[OrderingProtocol], first_seed: int, options: Mapping[str, str] | None = None
) -> Iterator[Scenario]:
    """Scenarios from a seed on; ``options`` fixes some of the options that would be drawn."""
    return (random_scenario(protocol, seed, options) for seed in count(first_seed))


def run_chunk(protocol: str, first_seed: int, runs: int, options: dict[str, str]) -> Campaign:
    campaign = Campaign(protocol=protocol, first_seed=first_seed)
    for scenario in islice(scenarios(protocol_named(protocol), first_seed, options), runs):
        campaign.add(simulate(scenario))
    return campaign


def run_campaign(
    protocol: str,
    first_seed: int,
    runs: int,
    options: dict[str, str],
    on_progress: Callable[[int], None] = lambda runs: None,
) -> Campaign:
    """Run seeds from ``first_seed`` on until so many runs counted, or one failed."""
    total = Campaign(protocol=protocol, first_seed=first_seed)
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers) as pool:
        seed = first_seed
        while total.runs < runs and not total.failures:
            ahead = max(1, min(workers * 4, -(-(runs - total.runs) // SEEDS_AT_ONCE)))
            firsts = range(seed, seed + ahead * SEEDS_AT_ONCE, SEEDS_AT_ONCE)
            # Chunks are added in the order of their seeds: the result does not depend on the number of cores.
            for part in pool.map(run_chunk, [protocol] * ahead, firsts, [SEEDS_AT_ONCE] * ahead, [options] * ahead):
                if total.runs < runs and not total.failures:
                    total.merge(part)
                    on_progress(total.runs)
            seed = firsts[-1] + SEEDS_AT_ONCE
    return total
