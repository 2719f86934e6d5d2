"""The symmetric row of scalatom.txt, Table 2 (R1), sentence by sentence, and its counts from traces for n = 2..16."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.core import Buffers, Process, ProcessId, Topology
from antiphon.core.errors import BadFrame, UsageError
from antiphon.core.inputs import Receive, TurnEnd
from antiphon.core.model import GroupId, Message, MessageId
from antiphon.core.requests import encode_request
from antiphon.protocols.symmetric import Acknowledge, Done, Flush, Hand, Relay, Stamped, Symmetric
from antiphon.runtime import cluster
from antiphon.services.timestamp import TIME_MAX
from antiphon.simulation import MILLISECOND, Crash, Outcome, Plan, Scenario, simulate
from mutants.symmetric import FlushesTheNewestDeadOnly
from papers.wires import Wires

SIZES = range(2, 17)
LEAVE_OUT = pytest.mark.parametrize("leave_out", ["false", "true"])


def run(n: int, *senders: str, leave_out: str = "false", **others: object) -> Outcome:
    plans = tuple(Plan(sender, 0, ("g",)) for sender in senders)
    options = {"leave_out": leave_out}
    outcome = simulate(
        Scenario(protocol="symmetric", options=options, groups={"g": n}, plans=plans, steps=True, **others)  # type: ignore[arg-type]
    )
    assert outcome.violations == []
    assert outcome.deliveries == n * len(senders)
    return outcome


@LEAVE_OUT
@pytest.mark.parametrize("n", SIZES)
def test_a_member_sends_and_everybody_acknowledges_to_everybody(n: int, leave_out: str) -> None:
    """n-1 messages, and n-1 acknowledgements from each but the sender, whose message is one: n(n-1) in all, 2 steps."""
    for sender in ("g.1", f"g.{n}"):
        outcome = run(n, sender, leave_out=leave_out)
        sent = [len(row.peers) for row in outcome.rows if row.kind == "send"]
        assert sent == [n - 1] * n
        assert (outcome.messages_sent, outcome.steps_max) == (n * (n - 1), 2)


@pytest.mark.parametrize("n", SIZES)
def test_total_order_can_be_established_in_a_single_step_when_all_processes_broadcast_simultaneously(n: int) -> None:
    """Then no acknowledgement is sent: each message says as much."""
    outcome = run(n, *(f"g.{i}" for i in range(1, n + 1)))
    assert (outcome.messages_sent, outcome.steps_max) == (n * (n - 1), 1)


@pytest.mark.parametrize("n", SIZES)
def test_who_leaves_out_the_dead_needs_two_steps_even_then(n: int) -> None:
    """A message that was sent before another came does not say that its sender has the other one."""
    senders = [f"g.{i}" for i in range(1, n + 1)]
    assert run(n, *senders, leave_out="true").steps_max == 2
    together = run(n, *senders, leave_out="true", turn_ns=MILLISECOND // 100)
    assert together.messages_sent == 2 * n * (n - 1), "one acknowledgement for all that a turn brought"


@pytest.mark.parametrize("n", SIZES)
def test_a_sender_outside_hands_its_message_to_a_member(n: int) -> None:
    """One message and one step more; one more to tell it of the delivery, where the member may die with the message."""
    outcome = run(n, "c1")
    assert (outcome.messages_sent, outcome.steps_max) == (1 + n * (n - 1), 3)
    assert run(n, "c1", leave_out="true").messages_sent == 1 + n * (n - 1) + 1


def test_the_size_of_a_message_is_constant() -> None:
    sizes = [{row.bytes for row in run(n, "g.1").rows if row.kind == "send"} for n in (2, 9)]
    assert sizes[0] == sizes[1]


TOPOLOGY = Topology.sized({"g": 3, "h": 1})
G, H = GroupId("g"), GroupId("h")
MEMBERS = ("g.1", "g.2", "g.3")


def test_a_process_waits_until_a_message_with_equal_or_higher_timestamp_is_received_from_every_process() -> None:
    wires = Wires(Symmetric, 3)
    assert wires.multicast("g.1") == wires.multicast("g.2") == []  # both at time 1
    assert wires.arrive("g.1", "g.3") == []
    assert wires.arrive("g.2", "g.3") == ["g.1:1", "g.2:1"], "equal is enough; the name of the process breaks the tie"
    assert wires.arrive("g.2", "g.1") == [], "g.3 has said nothing yet"
    assert wires.arrive("g.3", "g.1") == ["g.1:1", "g.2:1"]
    assert not wires.under_way["g.1", "g.3"], "its message said as much"


def test_a_later_message_does_not_overtake_an_earlier_one_that_lacks_an_acknowledgement() -> None:
    wires = Wires(Symmetric, 3)
    wires.multicast("g.2")
    wires.arrive("g.2", "g.1")
    assert wires.multicast("g.1") == []  # at time 2
    assert wires.arrive("g.1", "g.3") == [], "the acknowledgement of what g.2 sent, which is not here yet"
    assert wires.arrive("g.1", "g.3") == []
    assert wires.arrive("g.2", "g.3") == ["g.2:1"]


# A member that never returns -----------------------------------------------------------------------------------------


def test_what_a_dead_member_sent_to_one_survivor_is_delivered_by_all() -> None:
    """g.1 dies when one of its two messages has left it; g.2 has it, and g.3 gets it from g.2."""
    scenario = Scenario(
        protocol="symmetric",
        options={"leave_out": "true"},
        groups={"g": 3},
        plans=(Plan("g.1", MILLISECOND, ("g",)), Plan("g.3", 90 * MILLISECOND, ("g",))),
        faults=(Crash("g.1", at=0, effects=1),),
        sent_survives=True,
    )
    outcome = simulate(scenario)
    assert outcome.violations == []
    log = {p: [r.message for r in outcome.rows if r.kind == "deliver" and r.process == p] for p in MEMBERS}
    assert log == {"g.1": [], "g.2": ["g.1:1", "g.3:1"], "g.3": ["g.1:1", "g.3:1"]}


@pytest.mark.parametrize(("kind", "found"), [(Symmetric, ["g.1:1"]), (FlushesTheNewestDeadOnly, [])])
def test_for_every_new_dead_all_is_said_again(kind: type[Symmetric], found: list[str]) -> None:
    """Only g.2 gets the message of g.1, only g.3 gets it from g.2, and both are dead when g.4 hears of it."""
    wires = Wires(kind, 4, options={"leave_out": "true"})
    wires.multicast("g.3")
    wires.drain(*wires.processes)
    wires.multicast("g.1")
    wires.arrive("g.1", "g.2")
    for survivor in ("g.2", "g.3", "g.4"):
        wires.suspect(survivor, "g.1")
    wires.drain("g.3", "g.4")  # these two say that they have nothing of it
    wires.drain("g.2", "g.3")
    for survivor in ("g.3", "g.4"):
        wires.suspect(survivor, "g.2")
    assert wires.drain("g.3", "g.4") == {"g.3": found, "g.4": found}


def test_without_a_detector_everybody_waits_for_the_dead() -> None:
    scenario = Scenario(
        protocol="symmetric",
        groups={"g": 3},
        plans=(Plan("g.2", 9 * MILLISECOND, ("g",)),),
        faults=(Crash("g.1", at=0),),
    )
    outcome = simulate(scenario)
    assert outcome.deliveries == 0
    assert {violation.property for violation in outcome.violations} == {"validity"}


# Frames that no honest member sends ----------------------------------------------------------------------------------


def message(group: GroupId) -> Message:
    return Message(MessageId(ProcessId("c"), 1), (group,), 1, Buffers(encode_request("c", 1, 0, (b"x",))))


GOOD = [
    Hand(message(G)),
    Stamped(1, message(G)),
    Acknowledge(1, {ProcessId("g.2"): 1}),
    Relay(ProcessId("g.3"), 1, message(G)),
    Flush([ProcessId("g.3")]),
    Done(MessageId(ProcessId("c"), 1)),
]
BAD = [
    Hand(message(H)),
    Stamped(0, message(G)),
    Stamped(TIME_MAX, message(G)),
    Stamped(1, message(H)),
    Acknowledge(-1, {}),
    Acknowledge(1, {ProcessId("h.1"): 1}),
    Acknowledge(1, {ProcessId("g.2"): TIME_MAX}),
    Relay(ProcessId("x"), 1, message(G)),
    Relay(ProcessId("g.3"), 0, message(G)),
    Flush([ProcessId("h.1")]),
    Flush([ProcessId("g.3"), ProcessId("g.3")]),
]


def test_frames_that_no_member_sends_are_refused() -> None:
    process = Process(ProcessId("g.1"), TOPOLOGY, Symmetric, {"leave_out": "true"})
    for good in GOOD:
        process.checks.frame(process.encode(process.protocol, good))
    for bad in BAD:
        with pytest.raises(BadFrame):
            process.checks.frame(process.encode(process.protocol, bad))
    outside = Process(ProcessId("c9"), TOPOLOGY, Symmetric, {"leave_out": "true"})
    for bad in GOOD[:-1]:
        with pytest.raises(BadFrame):
            outside.checks.frame(outside.encode(outside.protocol, bad))


def test_where_nobody_is_left_out_nobody_speaks_for_the_dead() -> None:
    process = Process(ProcessId("g.1"), TOPOLOGY, Symmetric)
    for good in GOOD[:3]:
        process.checks.frame(process.encode(process.protocol, good))
    for bad in GOOD[3:]:
        with pytest.raises(BadFrame, match="left out"):
            process.checks.frame(process.encode(process.protocol, bad))


@LEAVE_OUT
@pytest.mark.parametrize("sender", ["g.1", "g.2", "h.1", "squatter"])
def test_whoever_sends_what_and_however_often_nothing_is_raised(sender: str, leave_out: str) -> None:
    process = Process(ProcessId("g.1"), TOPOLOGY, Symmetric, {"leave_out": leave_out})
    frames = [process.encode(process.protocol, good) for good in GOOD * 2]
    for number, frame in enumerate(frames, 1):
        process.step(Receive(0, ProcessId(sender), Symmetric.transport, number, frame))
        process.step(TurnEnd(0))


@pytest.mark.parametrize(
    ("name", "option"),
    [("sequencer", "takeover"), ("skeen", "takeover"), ("symmetric", "leave_out"), ("arrow", "gaps")],
)
def test_real_processes_have_no_perfect_detector_and_the_refusal_names_who_needs_none(
    name: str, option: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"{name} with these options needs .* primcast and tom go on here"):
        cluster.create(tmp_path / "c", {"a": 3}, protocol=name, options={option: "true"})
