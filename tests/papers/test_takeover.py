"""Skeen goes on without the dead: what slide 9 asks for, and the runs that each line of the takeover is there for."""

from __future__ import annotations

import pytest

from antiphon.core import Buffers, Process, ProcessId, Topology
from antiphon.core.errors import BadFrame
from antiphon.core.inputs import Receive
from antiphon.core.model import GroupId, Message, MessageId
from antiphon.core.requests import encode_request
from antiphon.protocols.skeen import Final, Know, Propose, Skeen, Start, TakeOver
from antiphon.services.timestamp import TIME_MAX, Timestamp
from antiphon.simulation import MILLISECOND, Crash, Outcome, Plan, Scenario, simulate
from mutants.skeen import (
    DoesNotAskAgain,
    DoesNotBuryThoseBeforeTheLeader,
    ForgetsThatItKnowsTheFinalTimestamp,
    ProposesTheSameAgain,
    TakesAnOldProposalForANewOne,
)
from papers.wires import Wires

TAKEOVER = {"takeover": "true"}


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", range(1, 6))
def test_takeover_costs_one_more_step_in_which_all_say_that_they_know(d: int, n: int) -> None:
    groups = {f"g{i}": n for i in range(4)}
    plans = (Plan("c1", 0, tuple(groups)[:d]),)
    k = d * n
    for options, messages, steps in (({}, 3 * k, 3), (TAKEOVER, 3 * k + k * (k - 1), 4 if k > 1 else 3)):
        outcome = simulate(Scenario(protocol="skeen", options=options, groups=groups, plans=plans, steps=True))
        assert (outcome.messages_sent, outcome.steps_max, outcome.deliveries) == (messages, steps, k)


def crashed(crash: Crash, **others: object) -> Outcome:
    scenario = Scenario(
        protocol="skeen",
        options=TAKEOVER,
        groups={"a": 2, "b": 2},
        plans=(Plan("c1", MILLISECOND, ("a", "b")), Plan("c2", 500 * MILLISECOND, ("a", "b"))),
        faults=(crash,),
        sent_survives=True,
        **others,  # type: ignore[arg-type]
    )
    outcome = simulate(scenario)
    assert outcome.violations == []
    return outcome


@pytest.mark.parametrize("effects", [1, 2, 3])
def test_a_message_that_reached_only_some_destinations_is_brought_to_all(effects: int) -> None:
    """c1 dies when so many of its four STARTs have left."""
    assert crashed(Crash("c1", at=0, effects=effects)).deliveries == 8


@pytest.mark.parametrize("at", [2.5, 3.5])
def test_the_failure_of_the_sender_during_protocol_execution_is_handled(at: float) -> None:
    """c1 dies between the rounds, or when all FINALs have left."""
    assert crashed(Crash("c1", at=int(at * MILLISECOND))).deliveries == 8


@pytest.mark.parametrize("at", [0.5, 1.5, 2.5, 3.5, 4.5])
@pytest.mark.parametrize("destination", ["a.1", "b.2"])
def test_the_failure_of_any_destination_is_tolerated(destination: str, at: float) -> None:
    outcome = crashed(Crash(destination, at=int(at * MILLISECOND)))
    assert {row.process for row in outcome.rows if row.kind == "deliver"} >= {"a.1", "a.2", "b.1", "b.2"} - {
        destination
    }
    assert outcome.deliveries in (6, 7)


@pytest.mark.parametrize(
    ("kind", "order"),
    [
        (Skeen, ["d:1", "c:1"]),
        (DoesNotAskAgain, ["c:1", "d:1"]),
        (ProposesTheSameAgain, ["c:1", "d:1"]),
    ],
)
def test_who_leaves_out_a_destination_asks_again(kind: type[Skeen], order: list[str]) -> None:
    """g.1 delivers the message of d and dies; the message of c, which it never had, must come behind that."""
    wires = Wires(kind, 2, "c", "d", options=TAKEOVER)
    wires.multicast("c")
    wires.drain("c", "g.2")
    wires.multicast("d")
    first = wires.drain("d", "g.1", "g.2")
    assert first == {"d": [], "g.1": ["d:1"], "g.2": []}, "at g.2 that of c is before it"
    for survivor in ("c", "d", "g.2"):
        wires.suspect(survivor, "g.1")
    assert wires.drain("c", "g.2")["g.2"] == order


@pytest.mark.parametrize(("kind", "order"), [(Skeen, ["d:1", "c:1"]), (TakesAnOldProposalForANewOne, ["c:1", "d:1"])])
def test_a_proposal_that_was_under_way_does_not_count(kind: type[Skeen], order: list[str]) -> None:
    """The same, but the proposal of g.2 has not reached c when c asks again."""
    wires = Wires(kind, 2, "c", "d", options=TAKEOVER)
    wires.multicast("c")
    wires.arrive("c", "g.2")
    wires.multicast("d")
    assert wires.drain("d", "g.1", "g.2")["g.1"] == ["d:1"]
    for survivor in ("c", "d", "g.2"):
        wires.suspect(survivor, "g.1")
    assert wires.drain("c", "g.2")["g.2"] == order


@pytest.mark.parametrize(("kind", "agree"), [(Skeen, True), (DoesNotBuryThoseBeforeTheLeader, False)])
def test_a_final_timestamp_of_the_dead_that_comes_late_does_no_harm(kind: type[Skeen], agree: bool) -> None:
    """Only g.1 knows that c is dead, and asks g.2; then the FINAL of c reaches g.2."""
    wires = Wires(kind, 2, "c", options=TAKEOVER)
    wires.multicast("c")
    wires.arrive("c", "g.1")
    wires.arrive("c", "g.2")
    wires.arrive("g.1", "c")
    wires.arrive("g.2", "c")
    wires.suspect("g.1", "c")
    wires.arrive("g.1", "g.2")
    wires.arrive("c", "g.2")
    wires.drain("g.1", "g.2")
    assert wires.keys["g.1"].keys() == wires.keys["g.2"].keys() == {"c:1"}
    assert (wires.keys["g.1"] == wires.keys["g.2"]) is agree


@pytest.mark.parametrize(("kind", "agree"), [(Skeen, True), (ForgetsThatItKnowsTheFinalTimestamp, False)])
def test_who_knows_the_final_timestamp_answers_with_it(kind: type[Skeen], agree: bool) -> None:
    """g.4 alone knows it, and has said so to g.2, which delivers when the new leader has decided; then g.4 is left."""
    wires = Wires(kind, 4, "c", options=TAKEOVER)
    wires.multicast("c")
    for member in ("g.1", "g.2", "g.3", "g.4"):
        wires.arrive("c", member)
        wires.arrive(member, "c")
    wires.arrive("c", "g.4")
    wires.arrive("g.4", "g.2")
    wires.suspect("g.1", "c")
    wires.arrive("g.1", "g.4")
    wires.drain("g.1", "g.2", "g.3")
    while wires.under_way["g.4", "g.1"]:
        wires.arrive("g.4", "g.1")
    assert wires.drain("g.1", "g.2", "g.3")["g.2"] == ["c:1"]
    for dead in ("c", "g.1", "g.2", "g.3"):
        wires.suspect("g.4", dead)
    assert wires.keys["g.4"].keys() == {"c:1"}
    assert (wires.keys["g.4"] == wires.keys["g.2"]) is agree


# Frames that no honest process sends ---------------------------------------------------------------------------------

TOPOLOGY = Topology.sized({"g": 3, "h": 1})
NAME = MessageId(ProcessId("c"), 1)
STAMP = Timestamp(1, ProcessId("g.1"))


def message(group: str) -> Message:
    return Message(NAME, (GroupId(group),), 1, Buffers(encode_request("c", 1, 0, (b"x",))))


GOOD = [Start(message("g")), TakeOver(message("g")), Propose(NAME, STAMP), Final(NAME, STAMP), Know(NAME)]
BAD = [
    Start(message("h")),
    TakeOver(message("h")),
    *(
        kind(NAME, Timestamp(time, ProcessId(process)))
        for kind in (Propose, Final)
        for time, process in ((0, "g.1"), (-1, "g.1"), (TIME_MAX, "g.1"), (1, "c"), (1, "g.1\0"))
    ),
]


def test_frames_that_no_process_sends_are_refused() -> None:
    process = Process(ProcessId("g.1"), TOPOLOGY, Skeen)
    for good in GOOD:
        process.checks.frame(process.encode(process.protocol, good))
    for bad in BAD:
        with pytest.raises(BadFrame):
            process.checks.frame(process.encode(process.protocol, bad))


@pytest.mark.parametrize("takeover", ["false", "true"])
@pytest.mark.parametrize("sender", ["c", "g.1", "g.2", "h.1", "squatter"])
def test_whoever_sends_what_and_however_often_nothing_is_raised(sender: str, takeover: str) -> None:
    """In any order: every message is once the first, and once comes after each other one."""
    for first in range(len(GOOD)):
        process = Process(ProcessId("g.1"), TOPOLOGY, Skeen, {"takeover": takeover})
        frames = [process.encode(process.protocol, m) for m in (GOOD[first:] + GOOD[:first]) * 2]
        for number, frame in enumerate(frames, 1):
            process.step(Receive(0, ProcessId(sender), process.protocol.transport, number, frame))
