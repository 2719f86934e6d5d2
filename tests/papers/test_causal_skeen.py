"""Skeen with causal order: what it costs, and the runs that its lines are there for."""

from __future__ import annotations

import pytest

from antiphon.core import Buffers, Process, ProcessId, Topology
from antiphon.core.errors import BadFrame
from antiphon.core.inputs import Receive
from antiphon.core.model import GroupId, Message, MessageId
from antiphon.core.requests import encode_request
from antiphon.protocols.skeen import Final, Know, Propose, Skeen, Start, TakeOver
from antiphon.services.timestamp import Timestamp
from antiphon.simulation import Plan, Scenario, simulate
from mutants.skeen import (
    CausalBeginsAtOnce,
    CausalBeginsWhenItHasDecided,
    CausalBeginsWhenOneKnows,
    CausalDecidesInAnyOrder,
    CausalIgnoresWhatItDecided,
    CausalIgnoresWhatItDelivered,
    CausalTakesATimeTwice,
)
from papers.wires import Wires

CAUSAL = {"causal": "true"}
BOTH = {"causal": "true", "takeover": "true"}


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", range(1, 6))
def test_causal_order_costs_no_message_and_no_step_and_with_takeover_one_message_to_the_sender(d: int, n: int) -> None:
    groups = {f"g{i}": n for i in range(4)}
    k = d * n
    for options, messages, steps in ((CAUSAL, 3 * k, 3), (BOTH, 3 * k + k * k, 4 if k > 1 else 3)):
        plans = (Plan("c1", 0, tuple(groups)[:d]),)
        outcome = simulate(Scenario(protocol="skeen", options=options, groups=groups, plans=plans, steps=True))
        assert (outcome.messages_sent, outcome.steps_max, outcome.deliveries) == (messages, steps, k)


def test_without_takeover_a_message_does_not_wait_to_begin() -> None:
    groups = {"g": 3}
    plans = tuple(Plan("c1", 0, ("g",)) for _ in range(5))
    runs = [simulate(Scenario(protocol="skeen", options=o, groups=groups, plans=plans)) for o in ({}, CAUSAL)]
    assert [run.messages_sent for run in runs] == [45, 45]
    assert len({max(row.time_ns for row in run.rows) for run in runs}) == 1


@pytest.mark.parametrize(
    ("kind", "order"), [(Skeen, ["d:1", "a.1:1"]), (CausalIgnoresWhatItDelivered, ["a.1:1", "d:1"])]
)
def test_a_final_timestamp_is_later_than_what_the_sender_delivered(kind: type[Skeen], order: list[str]) -> None:
    """The clock of a.1 is ahead. It delivers d:1, whose final timestamp is under way to b.1, and multicasts to b."""
    wires = Wires(kind, {"a": 1, "b": 1}, "c", "d", options=CAUSAL)
    for _ in range(3):
        wires.multicast("c", "a")
        wires.drain("c", "a.1")
    wires.multicast("d", "a", "b")
    wires.arrive("d", "b.1")
    wires.arrive("b.1", "d")
    assert wires.drain("d", "a.1")["a.1"] == ["d:1"]
    wires.multicast("a.1", "b")
    first = wires.drain("a.1", "b.1")["b.1"]
    assert first == [], "that of d is before it, and undecided"
    assert wires.drain("a.1", "b.1", "d")["b.1"] == order


@pytest.mark.parametrize(("kind", "order"), [(Skeen, ["c:4", "c:5"]), (CausalIgnoresWhatItDecided, ["c:5", "c:4"])])
def test_a_final_timestamp_is_later_than_those_of_earlier_messages(kind: type[Skeen], order: list[str]) -> None:
    """The clock of a.1 is ahead, so c:4 to both groups gets a later timestamp than b.1 proposes for c:5."""
    wires = Wires(kind, {"a": 1, "b": 1}, "c", options=CAUSAL)
    for _ in range(3):
        wires.multicast("c", "a")
        wires.drain("c", "a.1")
    wires.multicast("c", "a", "b")
    wires.multicast("c", "b")
    assert wires.drain("c", "a.1", "b.1")["b.1"] == order


@pytest.mark.parametrize(("kind", "order"), [(Skeen, ["c:1", "c:2"]), (CausalDecidesInAnyOrder, ["c:2", "c:1"])])
def test_final_timestamps_are_decided_in_the_order_of_the_multicasts(kind: type[Skeen], order: list[str]) -> None:
    """c:2 has its proposal when that of a.1 for c:1 is still to come."""
    wires = Wires(kind, {"a": 1, "b": 1}, "c", "d", options=CAUSAL)
    for _ in range(3):
        wires.multicast("d", "a")
        wires.drain("d", "a.1")
    wires.multicast("c", "a", "b")
    wires.multicast("c", "b")
    delivered = wires.drain("c", "b.1")["b.1"]
    assert delivered + wires.drain("c", "a.1", "b.1")["b.1"] == order


@pytest.mark.parametrize(("kind", "different"), [(Skeen, True), (CausalTakesATimeTwice, False)])
def test_no_two_messages_have_the_same_timestamp(kind: type[Skeen], different: bool) -> None:
    """a.1 has proposed 2.a.1 for d:1 when it decides that its own message to b must be later than 1.a.1. Were they the
    same, the order would still be one, by the messages' names; but Spark would have to prove it the long way."""
    wires = Wires(kind, {"a": 1, "b": 1}, "c", "d", options=CAUSAL)
    wires.multicast("c", "a")
    wires.drain("c", "a.1")
    wires.multicast("d", "a")
    wires.arrive("d", "a.1")
    wires.multicast("a.1", "b")
    wires.drain("a.1", "b.1")
    wires.drain("a.1", "d")
    assert (wires.keys["a.1"]["d:1"] != wires.keys["b.1"]["a.1:1"]) is different


# With takeover -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "order"),
    [(Skeen, ["c:1"]), (CausalBeginsAtOnce, ["c:2", "c:1"]), (CausalBeginsWhenItHasDecided, ["c:2", "c:1"])],
)
def test_who_takes_over_may_decide_anew(kind: type[Skeen], order: list[str]) -> None:
    """c has decided c:1 and dies before anybody knows. Were c:2 at a.1 by now, a.1 would ask b.1 about it first."""
    wires = Wires(kind, {"a": 1, "b": 1}, "c", options=BOTH)
    wires.multicast("c", "b")
    wires.multicast("c", "a", "b")
    wires.arrive("c", "b.1")
    wires.arrive("b.1", "c")
    if wires.under_way.get(("c", "a.1")):
        wires.arrive("c", "a.1")
    wires.suspect("a.1", "c")
    wires.drain("a.1", "b.1")
    wires.suspect("b.1", "c")
    wires.drain("a.1", "b.1")
    assert list(wires.keys["b.1"]) == order


@pytest.mark.parametrize(("kind", "order"), [(Skeen, ["c:1"]), (CausalBeginsWhenOneKnows, ["c:2", "c:1"])])
def test_who_knows_the_final_timestamp_may_die_too(kind: type[Skeen], order: list[str]) -> None:
    """The same, but b.1 knows the final timestamp of c:1, says so to c, and dies with it."""
    wires = Wires(kind, {"a": 1, "b": 2}, "c", options=BOTH)
    wires.multicast("c", "b")
    wires.multicast("c", "a", "b")
    for member in ("b.1", "b.2"):
        wires.arrive("c", member)
        wires.arrive(member, "c")
    wires.arrive("c", "b.1")
    wires.arrive("b.1", "c")
    if wires.under_way.get(("c", "a.1")):
        wires.arrive("c", "a.1")
    for survivor in ("a.1", "b.2"):
        wires.suspect(survivor, "b.1")
    wires.suspect("a.1", "c")
    wires.drain("a.1", "b.2")
    wires.suspect("b.2", "c")
    wires.drain("a.1", "b.2")
    assert list(wires.keys["b.2"]) == order


# Frames that no honest process sends ---------------------------------------------------------------------------------

TOPOLOGY = Topology.sized({"g": 3, "h": 1})
NAME = MessageId(ProcessId("c"), 1)
STAMP = Timestamp(1, ProcessId("g.1"))
OF_ITS_SENDER = Timestamp(1, ProcessId("c"))


def test_a_final_timestamp_may_be_of_its_senders_clock() -> None:
    process = Process(ProcessId("g.1"), TOPOLOGY, Skeen, CAUSAL)
    process.checks.frame(process.encode(process.protocol, Final(NAME, OF_ITS_SENDER)))
    for bad in (Propose(NAME, OF_ITS_SENDER), Final(NAME, Timestamp(1, ProcessId("d")))):
        with pytest.raises(BadFrame):
            process.checks.frame(process.encode(process.protocol, bad))


@pytest.mark.parametrize("options", [CAUSAL, BOTH])
@pytest.mark.parametrize("sender", ["c", "g.1", "g.2", "h.1", "squatter"])
def test_whoever_sends_what_and_however_often_nothing_is_raised(sender: str, options: dict[str, str]) -> None:
    message = Message(NAME, (GroupId("g"),), 1, Buffers(encode_request("c", 1, 0, (b"x",))))
    good = [Start(message), TakeOver(message), Propose(NAME, STAMP), Final(NAME, OF_ITS_SENDER), Know(NAME)]
    for me in ("g.1", "c"):
        for first in range(len(good)):
            wires = Wires(Skeen, {"g": 3, "h": 1}, "c", options=options)
            wires.multicast("c", "g")
            wires.multicast("c", "g")
            process = wires.processes[me]
            frames = [process.encode(process.protocol, m) for m in (good[first:] + good[:first]) * 2]
            for number, frame in enumerate(frames, 1):
                if me != "c" or good[(first + number - 1) % len(good)] not in good[:2]:
                    process.step(Receive(0, ProcessId(sender), process.protocol.transport, number, frame))
