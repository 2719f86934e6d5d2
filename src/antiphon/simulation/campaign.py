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
from antiphon.simulation.values import Scenario

MULTICASTS_MIN = 20
FAULTS_MIN = 3
CHUNK = 50


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
    faults: dict[str, int] = {}  # that took effect, by kind
    options: dict[str, int] = {}  # runs by option value
    failures: list[Scenario] = []

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        if outcome.violations:
            self.failures.append(outcome.scenario)
        if not counts(outcome):
            return
        self.runs += 1
        self.events += outcome.events
        self.multicasts += outcome.multicasts
        self.deliveries += outcome.deliveries
        self.payloads += outcome.payloads
        for fault in outcome.faults_effective:
            name = type(fault).__name__
            self.faults[name] = self.faults.get(name, 0) + 1
        for name, value in outcome.scenario.options.items():
            choice = f"{name}={value}"
            self.options[choice] = self.options.get(choice, 0) + 1

    def merge(self, other: Campaign) -> None:
        for name in ("seeds", "runs", "events", "multicasts", "deliveries", "payloads"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults = dict(Counter(self.faults) + Counter(other.faults))
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
            ahead = max(1, min(workers * 4, -(-(runs - total.runs) // CHUNK)))
            firsts = range(seed, seed + ahead * CHUNK, CHUNK)
            # Chunks are added in the order of their seeds: the result does not depend on the number of cores.
            for part in pool.map(run_chunk, [protocol] * ahead, firsts, [CHUNK] * ahead, [options] * ahead):
                if total.runs < runs and not total.failures:
                    total.merge(part)
                    on_progress(total.runs)
            seed = firsts[-1] + CHUNK
    return total
