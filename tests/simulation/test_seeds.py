"""The suite's slice of the campaigns: every protocol under its whole fault model."""

from __future__ import annotations

import time
from itertools import islice

import msgspec
import pytest

from antiphon.checks import check_run
from antiphon.core import Detector, Promise, Transport
from antiphon.protocols import protocols
from antiphon.services.configuration import GraphProtocol
from antiphon.services.stack import StackedProtocol
from antiphon.simulation import as_code, random_scenario, simulate
from antiphon.simulation.campaign import NO_FIFO, Campaign, scenarios

PROTOCOLS = sorted(protocols())
FIXED_SEEDS = 80
SLOW = {"mto": 40, "scalatom": 50, "tom": 50, "ctbroadcast": 100, "nonminimal": 50}  # their runs take longest
SLOW |= {"transis": 60, "allack": 60, "toto": 60}  # every machine hears of everything
SLOW |= {"reliable": 300}  # few of its runs suspect anybody
SLOW |= {"primcast": 120}  # many ways to lead, and to lose the lead
ROTATING_SEEDS = 240 // len(PROTOCOLS)  # shared out: more protocols, fewer seeds each
CRASHES = {"Crash", "Crash after a delivery", "Crash amid a release"}
FAULTS = {*CRASHES, "Pause", "Slow", "Partition", NO_FIFO}
SUSPICIONS = {"WrongSuspicion", "Distrust", "Distrust for ever"}
DEPOSED = {f"Depose by {how}" for how in ("crash", "pause", "cut", "mute", "suspicion")}  # those who lead a group
DAY = int(time.time()) // 86_400  # other seeds every day


def run_seeds(name: str, first: int, count: int) -> Campaign:
    campaign = Campaign(protocol=name, first_seed=first)
    for scenario in islice(scenarios(protocols()[name], first), count):
        outcome = simulate(scenario)
        assert not outcome.violations, f"{outcome.violations}\n{as_code(scenario)}"
        campaign.add(outcome)
    return campaign


@pytest.mark.parametrize("name", PROTOCOLS)
def test_no_promise_is_broken_on_the_fixed_seeds(name: str) -> None:
    """And the seeds are harsh: every kind of fault takes effect, and a consensus does not end in its first round."""
    seeds = SLOW.get(name, FIXED_SEEDS)
    campaign = run_seeds(name, 0, seeds)
    assert campaign.runs > 0.7 * seeds  # the others had too few multicasts or faults
    watches = protocols()[name].declaration.assumes.detector is not Detector.NONE
    always_fifo = {NO_FIFO} if protocols()[name].transport is Transport.FIFO else set()
    if issubclass(protocols()[name], GraphProtocol):  # with membership: a timeout is wrong at times, but not for ever
        assert campaign.faults.keys() == (FAULTS | SUSPICIONS) - {"Distrust for ever"} - always_fifo
    else:
        leaders = DEPOSED if protocols()[name].led else set()
        receipts = (
            {"Crash after a receipt"} if Promise.DURABLE_RECEIPTS in protocols()[name].declaration.promises else set()
        )
        replaced = {"Replace"} if protocols()[name].replaces else set()
        expected = (FAULTS | SUSPICIONS if watches else FAULTS) | leaders | receipts | replaced
        assert campaign.faults.keys() == expected - always_fifo
    for kind, tally in campaign.faults.items():
        seldom = kind in SUSPICIONS and not watches  # only with an option that every second run has
        assert 2 * tally.runs_effective >= tally.runs_placed > (2 if seldom else 10), (kind, tally)
    if issubclass(protocols()[name], StackedProtocol):
        later = sum(campaign.rounds.values()) - campaign.rounds["1"]
        assert later > 0.1 * sum(campaign.rounds.values())
        assert min(campaign.rounds[str(round)] for round in range(2, 6)) > 0


@pytest.mark.parametrize("name", PROTOCOLS)
def test_no_promise_is_broken_on_the_seeds_of_the_day(name: str) -> None:
    assert run_seeds(name, 1_000_000 + DAY * ROTATING_SEEDS, ROTATING_SEEDS).runs > 0


def test_the_sequencer_is_not_causal_across_groups() -> None:
    """A run that keeps the promise of causal order away from the sequencer."""
    outcome = simulate(random_scenario(protocols()["sequencer"], 26, {"takeover": "false", "causal": "false"}))
    facts = msgspec.structs.replace(outcome.facts, promises=["causal"])
    (violation, *_) = check_run(facts, outcome.rows)
    assert violation.property == "causal"
