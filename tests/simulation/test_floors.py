"""Floors: what a group that was asked to advance delivers, and that nothing comes below what was said."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from antiphon.core import Buffers, GroupId, Message, MessageId, ProcessId, Topology
from antiphon.core.commands import parse_command
from antiphon.core.component import OrderingProtocol
from antiphon.core.errors import BadFrame, UsageError
from antiphon.core.floors import LEAST_MAX, floor_body, least_number
from antiphon.core.keys import Key, first_number
from antiphon.core.options import parse_options
from antiphon.core.process import Process
from antiphon.protocols import protocols
from antiphon.protocols.skeen import Skeen
from antiphon.simulation import INVARIANT, MILLISECOND, Outcome, Plan, Scenario, random_scenario, simulate
from antiphon.simulation.values import FLOOR, Instruction

ADVANCING = sorted(name for name, kind in protocols().items() if kind.can_advance(parse_options(kind, {})))
HOMES = dict.fromkeys(("toto", "allack"), "antiphon.services.configuration") | {
    "nonminimal": "antiphon.protocols.ctbroadcast"
}


def floors_asked(outcome: Outcome) -> list[str]:
    return [row.message or "" for row in outcome.rows if row.kind == "multicast" and not row.requests]


def with_advances(protocol: type[OrderingProtocol]) -> Iterator[Scenario]:
    """Random runs in which somebody is asked to advance."""
    for seed in range(400):
        scenario = random_scenario(protocol, seed)
        if scenario.commands:
            yield scenario


def test_every_protocol_with_one_order_across_groups_can_advance() -> None:
    assert ADVANCING == ["allack", "ctbroadcast", "mto", "nonminimal", "primcast", "scalatom", "skeen", "tom", "toto"]


@pytest.mark.parametrize("name", ADVANCING)
def test_an_idle_group_comes_as_far_as_it_is_asked(name: str) -> None:
    """g1 is busy, g2 is idle and is asked to go beyond it; then both get a message each, at their places."""
    kind = protocols()[name]
    everybody = kind.assumes(parse_options(kind, {})).all_groups
    to = ("g1", "g2") if everybody else ("g1",)
    busy = [Plan("c1", k * MILLISECOND, to) for k in range(12)]
    later = [Plan("c1", 900 * MILLISECOND, to), Plan("c1", 950 * MILLISECOND, ("g1", "g2") if everybody else ("g2",))]
    outcome = simulate(
        Scenario(
            protocol=name,
            groups={"g1": 2, "g2": 3},
            plans=(*busy, *later),
            commands=(Instruction("g2.2", 500 * MILLISECOND, "advance floor=1000"),),
            limit_ns=60_000 * MILLISECOND,
        )
    )
    assert outcome.violations == []
    (floor,) = floors_asked(outcome)
    numbers = {p: [] for p in ("g1.1", "g2.1", "g2.2", "g2.3")}  # type: dict[str, list[int]]
    for row in outcome.rows:
        if row.kind == "deliver" and row.process in numbers:
            numbers[row.process].append(first_number(row.order_key or b""))
            assert (row.message == floor) == (not row.requests), "it brings nothing"
    for process in ("g2.1", "g2.2", "g2.3"):
        assert [number >= 1000 for number in numbers[process][-2:]] == [True, True]
        assert numbers[process] == numbers["g2.1"]
    assert len(numbers["g1.1"]) == len([*busy, later[0]]) + 2 * everybody, "others hear of it where they always do"


@pytest.mark.parametrize("name", ADVANCING)
def test_who_does_not_heed_the_number_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: it gives the message whatever number comes next."""
    kind = protocols()[name]
    monkeypatch.setattr(importlib.import_module(HOMES.get(name, kind.__module__)), "least_number", lambda m: 0)
    found = (simulate(scenario).violations for scenario in with_advances(kind))
    assert any(violation.property == INVARIANT for violations in found for violation in violations)


class SaysTheSameKeyAlways(Skeen):
    def deliver(self, m: Message, key: Key | None = None, *, early: bool = False) -> None:
        super().deliver(m, None if key is None else (1 << 40, *key[1:]), early=early)


class SaysAnotherKeyAtEachProcess(Skeen):
    def deliver(self, m: Message, key: Key | None = None, *, early: bool = False) -> None:
        super().deliver(m, None if key is None else (*key, self.me), early=early)


class SaysNoKey(Skeen):
    def deliver(self, m: Message, key: Key | None = None, *, early: bool = False) -> None:
        super().deliver(m, early=early)


@pytest.mark.parametrize("mutant", [SaysTheSameKeyAlways, SaysAnotherKeyAtEachProcess, SaysNoKey])
def test_a_delivery_below_a_floor_is_found(mutant: type[Skeen]) -> None:
    assert FLOOR in {v.property for v in simulate(random_scenario(Skeen, 0), mutant).violations}
    assert simulate(random_scenario(Skeen, 0)).violations == []


def test_who_cannot_advance_is_not_asked_to() -> None:
    for name, options in (("sequencer", {}), ("fifo", {}), ("toto", {"membership": "true"})):
        kind = protocols()[name]
        with pytest.raises(UsageError, match="has no command 'advance'"):
            parse_command(kind, parse_options(kind, options), ["advance", "floor=3"])
    for floor in ("0", str(LEAST_MAX + 1), "x"):
        with pytest.raises(UsageError, match="A bad value for the command advance"):
            parse_command(Skeen, parse_options(Skeen, {}), ["advance", f"floor={floor}"])


def test_bytes_that_raise_no_floor_are_refused() -> None:
    topology = Topology.sized({"g1": 2, "g2": 2})
    id, to = MessageId(ProcessId("g1.1"), 1), (GroupId("g1"),)
    able, other = (Process(topology.processes[0], topology, protocols()[name]) for name in ("skeen", "sequencer"))
    good = Message(id, to, 0, floor_body(7))
    able.checks.body(good)
    assert least_number(good) == 7
    for body in (Buffers(b""), Buffers(b"\0" * 8), Buffers(b"\1" * 9), floor_body(LEAST_MAX + 1)):
        with pytest.raises(BadFrame):
            able.checks.body(Message(id, to, 0, body))
    with pytest.raises(BadFrame):
        other.checks.body(good)
