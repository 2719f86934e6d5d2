"""A process is a function of its journal: snapshot and replay give what a full replay gives, for every protocol."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import count, islice
from typing import Any

import msgspec
import pytest

from antiphon.core import Component, Gather, Host, OrderingProtocol, Process, Topology
from antiphon.core.effects import AnyEffect
from antiphon.core.host import Turn
from antiphon.core.inputs import Submit, TurnEnd, decode_input
from antiphon.core.model import ProcessId
from antiphon.protocols import protocols
from antiphon.simulation import Scenario, random_scenario, run, simulate
from antiphon.simulation.world import World

Journal = list[tuple[int, bytes]]  # records with their indices


class Replayed:
    """The outside of a host that only replays."""

    def __init__(self) -> None:
        self.effects: list[list[AnyEffect]] = []

    def on_turns(self, turns: Sequence[Turn], *, replayed: bool) -> None:
        assert replayed
        self.effects += [turn.effects for turn in turns]

    def on_event(self, event: Any) -> None:
        pass


def scenarios(protocol: type[OrderingProtocol]) -> list[Scenario]:
    """With everything that can be in a journal: clients of members, turns with many requests, crashes and returns."""
    drawn = (msgspec.structs.replace(random_scenario(protocol, seed), snapshot_every=0) for seed in count(5000))
    journaled = (scenario for scenario in drawn if scenario.journal)
    first = list(islice(journaled, 3))
    return [*first, *islice((s for s in journaled if s.through_members and s.turn_ns and s.gather > 1), 2)]


@cache
def journals(name: str) -> list[tuple[Scenario, dict[ProcessId, Journal]]]:
    kept: list[World] = []

    class Kept(World):
        def __init__(self, *arguments: Any) -> None:
            kept.append(self)
            super().__init__(*arguments)

    found = []
    original, run.World = run.World, Kept  # type: ignore[misc]
    try:
        for scenario in scenarios(protocols()[name]):
            assert simulate(scenario).violations == []
            sites = kept.pop().sites.values()
            found.append((scenario, {site.id: list(site.disk.replay()) for site in sites if site.disk is not None}))
    finally:
        run.World = original  # type: ignore[misc]
    return found


def host(me: ProcessId, scenario: Scenario) -> tuple[Host, Replayed]:
    protocol, outside = protocols()[scenario.protocol], Replayed()
    gather = Gather(requests=scenario.gather)
    process = Process(me, Topology.sized(scenario.groups), protocol, scenario.options, gather)
    return Host(process, None, outside), outside  # type: ignore[arg-type]


def cuts(rng: random.Random, me: ProcessId, scenario: Scenario, journal: Journal) -> list[tuple[int, bytes]]:
    """Snapshots at some places between two turns, each with the index of the record behind it."""
    wanted = {0, len(journal), *rng.sample(range(len(journal)), min(3, len(journal)))}
    first, _ = host(me, scenario)
    found = []
    for index in range(len(journal) + 1):
        if index in wanted and not first.process.turn_is_open:
            found.append((index, first.snapshot()))
        first.replay(iter(journal[index : index + 1]))
    return found


@pytest.mark.parametrize("name", sorted(protocols()))
def test_snapshot_and_replay_equal_full_replay_effect_by_effect(name: str) -> None:
    rng = random.Random(name)
    snapshots, kinds = 0, Counter[type]()
    for scenario, by_process in journals(name):
        for me, journal in by_process.items():
            kinds.update(type(decode_input(record)) for _, record in journal)
            whole, expected = host(me, scenario)
            whole.replay(iter(journal))
            for cut, state in cuts(rng, me, scenario, journal):
                second, effects = host(me, scenario)
                second.restore(state)
                second.replay(iter(journal[cut:]))
                assert effects.effects == expected.effects[cut:]
                assert {c: list(box.frames_from(1)) for c, box in second.outboxes.items()} == {
                    c: list(box.frames_from(1)) for c, box in whole.outboxes.items()
                }
                assert state_of(second.process) == state_of(whole.process)
                snapshots += 0 < cut < len(journal)
            assert_declared(whole.process)
    assert snapshots > 20
    assert min(kinds[Submit], kinds[TurnEnd]) > 10


def state_of(process: Process) -> tuple[object, ...]:
    """All that a snapshot holds, as values: how a set is encoded depends on how it came to be."""
    parts = [[getattr(part, name) for name in part.contract.state.__struct_fields__] for part in process.parts]
    return process.now, msgspec.structs.replace(process.state, now=0, parts=[]), parts


def assert_declared(process: Process) -> None:
    """No component holds a variable that its snapshot would lose."""
    wiring = {"process", "layer", "channel", "options", "me", "contract", "index", "handlers", "transport"}
    for part in process.parts:
        declared = set(part.contract.state.__struct_fields__)
        others = set(vars(part)) - wiring - declared
        assert all(isinstance(getattr(part, n), Component) or callable(getattr(part, n)) for n in others), others


def test_a_turn_end_that_is_not_in_the_journal_would_show() -> None:
    """The comparison can fail: without its turn ends a journal gives other effects."""
    scenario, by_process = journals("reliable")[-1]
    differing = 0
    for me, journal in by_process.items():
        whole, expected = host(me, scenario)
        whole.replay(iter(journal))
        cut = [(index, record) for index, record in journal if type(decode_input(record)) is not TurnEnd]
        without, effects = host(me, scenario)
        without.replay(iter(cut))
        differing += len(cut) < len(journal) and sum(map(len, effects.effects)) < sum(map(len, expected.effects))
    assert differing
