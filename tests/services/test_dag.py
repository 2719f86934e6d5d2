"""The causal graph of Transis: losses, storms, memory, silence, and what no honest peer sends."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from antiphon.checks import check_run
from antiphon.core import Buffers, Message, MessageId, Process, ProcessId, Topology, Wire
from antiphon.core.errors import BadFrame
from antiphon.core.inputs import Fire, Multicast
from antiphon.core.requests import encode_request
from antiphon.protocols import protocol_named
from antiphon.protocols.toto import ToTo
from antiphon.protocols.transis import Transis
from antiphon.services.causal_graph import HELD_MAX, MISSING_MAX, CausalGraph, Have, Missing
from antiphon.services.dag import Ack, Cast, Name
from antiphon.simulation import (
    LIVELOCK,
    MILLISECOND,
    Constant,
    Crash,
    Outcome,
    Partition,
    Plan,
    Scenario,
    Uniform,
    simulate,
)
from mutants.dag import AcknowledgesAcknowledgements, ForgetsTheLeavesOnRestart, TellsNobodyWhatExists
from mutants.parts import with_parts

PROTOCOLS = ["transis", "allack", "toto"]
SECOND = 1_000 * MILLISECOND


def lossy(protocol: str, plans: tuple[Plan, ...], **rest: Any) -> Scenario:
    settings: dict[str, Any] = {
        "groups": {"a": 3, "b": 2},
        "latency": Uniform(MILLISECOND // 10, 3 * MILLISECOND),
        "loss": 0.3,
        "duplication": 0.3,
        **rest,
    }
    return Scenario(protocol=protocol, plans=plans, **settings)


def calm(protocol: str, plans: tuple[Plan, ...], **rest: Any) -> Scenario:
    return lossy(protocol, plans, **{"latency": Constant(), "loss": 0.0, "duplication": 0.0, **rest})


def stream(count: int, *, gap_ns: int = MILLISECOND) -> tuple[Plan, ...]:
    """From a client and two members, to one group or both."""
    sets = (("a",), ("a", "b"), ("b",), ("a", "b"))
    return tuple(Plan(("c", "a.1", "b.2")[i % 3], i * gap_ns, sets[i % 4]) for i in range(count))


class Seen:
    """Every process of a run, as it was in the end, and each frame of its graph."""

    def __init__(self, protocol: str, scenario: Scenario) -> None:
        self.last: dict[str, Process] = {}
        self.frames: list[tuple[int, str, Wire]] = []
        self.kept_max = 0
        seen = self

        class Spied(CausalGraph):
            def send(self, to: Any, message: Wire) -> None:
                super().send(to, message)
                seen.frames.append((self.now, self.me, message))
                seen.kept_max = max(seen.kept_max, sum(len(row) for row in self.dag.rows.values()))

        class SpiedProtocol(with_parts(protocol_named(protocol), Spied)):  # type: ignore[misc]
            def initialise(self) -> None:
                super().initialise()
                seen.last[self.me] = self.process

        self.outcome: Outcome = simulate(scenario, SpiedProtocol)

    def sent(self, kind: type[Wire]) -> list[tuple[int, str, Any]]:
        return [frame for frame in self.frames if isinstance(frame[2], kind)]


# Losses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("loss", [0.0, 0.3, 0.6])
def test_however_much_is_lost_everything_arrives(protocol: str, loss: float) -> None:
    outcome = simulate(lossy(protocol, stream(40), loss=loss, duplication=0.2))
    assert outcome.violations == []
    assert outcome.deliveries == 10 * 3 + 10 * 2 + 20 * 5


def test_nothing_is_sent_twice_where_nothing_is_lost() -> None:
    """A message for each other machine, and one acknowledgement of each when all is quiet. Nothing else."""
    seen = Seen("toto", calm("toto", stream(30, gap_ns=MILLISECOND // 2)))
    assert len(seen.sent(Cast)) == 30
    assert len(seen.sent(Ack)) <= 5 * 3
    assert not seen.sent(Missing)
    assert not seen.sent(Have)


def test_what_is_missing_comes_from_whoever_has_it() -> None:
    """a.1 reaches a.2 only, and is then cut off from all; a.3 has its message from a.2."""
    cuts = (
        Partition(("a.1",), at=0, for_ns=2 * MILLISECOND, bridge="a.2"),
        Partition(("a.1",), at=2 * MILLISECOND, for_ns=SECOND),
    )
    plans = (Plan("a.1", 1, ("a",)), Plan("a.2", 3 * MILLISECOND, ("a",)))
    seen = Seen("transis", calm("transis", plans, groups={"a": 3}, faults=cuts))
    times = {row.message: row.time_ns for row in seen.outcome.rows if row.kind == "deliver" and row.process == "a.3"}
    assert times["a.1:1"] == times["a.2:1"] < 20 * MILLISECOND
    assert seen.outcome.violations == []


def test_a_loss_does_not_make_a_storm() -> None:
    """Three of five miss the first message, and have the second one: one of them asks, one machine answers."""
    cut = Partition(("b.1", "b.2", "b.3"), at=0, for_ns=2 * MILLISECOND)
    plans = (Plan("a.1", 1, ("a",)), Plan("a.1", 3 * MILLISECOND, ("a",)))
    seen = Seen("transis", calm("transis", plans, groups={"a": 2, "b": 3}, faults=(cut,)))
    assert [(who, asked.names) for _, who, asked in seen.sent(Missing)] == [("b.1", [Name(ProcessId("a.1"), 1)])]
    assert [who for _, who, cast in seen.sent(Cast) if cast.name.number == 1] == ["a.1", "a.1"]
    assert seen.outcome.violations == []


def test_the_last_message_of_a_burst_is_missed() -> None:
    """It reaches nobody. Its sender hears no acknowledgement, and says that it exists."""
    cut = Partition(("a.1",), at=0, for_ns=2 * MILLISECOND)
    seen = Seen("toto", calm("toto", (Plan("a.1", 1, ("a",)),), groups={"a": 4}, faults=(cut,)))
    assert seen.outcome.violations == []
    assert seen.outcome.deliveries == 4
    assert seen.outcome.virtual_ns < 200 * MILLISECOND


def test_the_last_acknowledgement_is_missed() -> None:
    """It is lost. Who sent it has all that it needs, and rests; who waits for it asks, and must be told."""
    cut = Partition(("a.2",), at=5 * MILLISECOND, for_ns=4 * MILLISECOND, one_way=True)
    scenario = calm("toto", (Plan("a.1", 1, ("a",)),), groups={"a": 2}, faults=(cut,), limit_ns=20 * SECOND)
    assert simulate(scenario).violations == []
    broken = simulate(scenario, with_parts(ToTo, TellsNobodyWhatExists)).violations
    assert {violation.property for violation in broken} == {"uniform_agreement"}


def test_a_silent_machine_is_asked_less_and_less_often() -> None:
    cut = Partition(("a.2",), at=0, for_ns=20 * SECOND)
    seen = Seen("toto", calm("toto", (Plan("a.1", 2, ("a",)),), groups={"a": 2}, faults=(cut,)))
    times = [at for at, who, _ in seen.sent(Have) if who == "a.1"]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[:5] == [2**k * 30 * MILLISECOND for k in range(1, 6)]
    assert set(gaps[5:14]) == {1_280 * MILLISECOND}
    assert seen.outcome.violations == []
    assert seen.outcome.deliveries == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_when_all_is_everywhere_there_is_silence(protocol: str) -> None:
    seen = Seen(protocol, lossy(protocol, stream(30)))
    assert seen.outcome.violations == []
    assert seen.outcome.virtual_ns < 4 * SECOND, "the world ended because nothing was left to happen"
    assert not any(process.state.timers for process in seen.last.values())


def test_there_would_be_no_end_to_acknowledgements_of_acknowledgements() -> None:
    scenario = calm("transis", stream(2), events_max=2_000)
    assert simulate(scenario).violations == []
    (violation,) = simulate(scenario, with_parts(Transis, AcknowledgesAcknowledgements)).violations
    assert violation.property == LIVELOCK


def test_what_a_restart_must_bring_back() -> None:
    """a.2 has a.1's message, which a.3 has not; it crashes, returns, and sends one that follows it."""
    cut = Partition(("a.1",), at=0, for_ns=SECOND, bridge="a.2")
    crash = Crash("a.2", at=5 * MILLISECOND, down_ns=5 * MILLISECOND)
    plans = (Plan("a.1", 1, ("a",)), Plan("a.2", 20 * MILLISECOND, ("a",)))
    rest: dict[str, Any] = {"groups": {"a": 3}, "faults": (cut, crash), "journal": True, "snapshot_every": 1}
    scenario = calm("transis", plans, **rest)
    assert simulate(scenario).violations == []
    broken = simulate(scenario, with_parts(Transis, ForgetsTheLeavesOnRestart)).violations
    assert {violation.property for violation in broken} == {"causal"}


# Memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_memory_does_not_grow_with_the_number_of_messages(protocol: str) -> None:
    """Neither afterwards nor while they are sent."""
    sizes, most = [], []
    for count in (60, 600):
        seen = Seen(protocol, lossy(protocol, stream(count), loss=0.1, duplication=0.1, seed=3))
        assert seen.outcome.violations == []
        assert [process.protocol.pending() for process in seen.last.values()] == [0] * 6
        sizes.append(max(sum(len(part.snapshot()) for part in process.parts) for process in seen.last.values()))
        most.append(seen.kept_max)
    assert sizes[1] <= sizes[0] + 600, "a few acknowledgements more are left, and numbers take a byte or two more"
    assert most[1] <= 3 * most[0]


# What no honest peer sends -----------------------------------------------------------------------------------------

TOPOLOGY = Topology.sized({"a": 2, "b": 2})
A = TOPOLOGY.destinations({"a"})
BODY = Buffers(encode_request("c", 1, 0, (b"x",)))
MESSAGE = Message(MessageId(ProcessId("c"), 1), A, 1, BODY)


def named(sender: str, number: int) -> Name:
    return Name(ProcessId(sender), number)


def cast(name: Name, follows: tuple[Name, ...] = (), service: Any = "agreed", message: Message = MESSAGE) -> Cast:
    return Cast(name, service, follows, message)


BAD: list[Wire] = [
    cast(named("x", 1)),
    cast(named("c", 1)),
    cast(named("a.1", 0)),
    cast(named("a.1", -1)),
    cast(named("a.1", 1), (named("x", 1),)),
    cast(named("a.1", 1), (named("a.2", 0),)),
    cast(named("a.1", 1), (named("a.1", 1),)),
    cast(named("a.1", 1), tuple(named("a.2", i) for i in range(1, 6))),
    cast(named("a.1", 1), service="ack"),
    cast(named("a.1", 1), message=Message(MESSAGE.id, A, 2, BODY)),
    Ack(named("x", 1), ()),
    Ack(named("a.1", 2), (named("a.1", 2),)),
    Missing([named("x", 1)]),
    Missing([named("a.1", 0)]),
    Missing([named("a.1", i) for i in range(1, MISSING_MAX + 2)]),
    Have([]),
    Have([1, 2, 3]),
    Have([1, 2, 3, -1]),
    Have([1, 2, 3, 4, 5]),
]


def machine(me: str = "a.1") -> Process:
    return Process(ProcessId(me), TOPOLOGY, protocol_named("toto"), {})


def graph_of(process: Process) -> CausalGraph:
    protocol: Any = process.protocol
    found: CausalGraph = protocol.graph
    return found


@pytest.mark.parametrize("message", BAD, ids=range(len(BAD)))
def test_what_no_honest_peer_sends_is_refused(message: Wire) -> None:
    process = machine()
    with pytest.raises(BadFrame):
        process.checks.frame(process.encode(graph_of(process), message))


def test_a_sender_outside_takes_nothing() -> None:
    process = machine("c")
    with pytest.raises(BadFrame, match="c is in no group"):
        process.checks.frame(process.encode(graph_of(process), Have([0, 0, 0, 0])))


FAR = 1 << 60


@pytest.mark.parametrize("sender", ["a.2", "b.1", "c"])
@pytest.mark.parametrize(
    "message",
    [
        cast(named("a.2", FAR)),
        cast(named("a.2", 1), (named("b.1", FAR), named("a.1", 7))),
        cast(named("a.1", 5)),
        Ack(named("b.2", 3), (named("a.1", FAR),)),
        Missing([named("a.1", 1), named("a.1", FAR), named("b.2", 9)]),
        Have([FAR, FAR, 0, 3]),
    ],
    ids=range(6),
)
def test_what_has_the_right_form_does_no_harm(message: Wire, sender: str) -> None:
    """Whoever sends it, before this machine has sent anything and after, and whenever its timers come due."""
    process = machine()
    graph = graph_of(process)
    process.checks.frame(process.encode(graph, message))
    for now in range(3):
        graph.handlers[type(message)](ProcessId(sender), message)
        for (part, timer), due in list(process.state.timers.items()):
            process.step(Fire(due, part, timer, due))
        process.step(Multicast(now, A, (b"x",)))
    assert graph.pending() <= 2
    assert len(graph.requested) <= 2 * MISSING_MAX


def test_what_is_held_is_bounded() -> None:
    process = machine()
    graph = graph_of(process)
    for number in range(2, 2 * HELD_MAX):
        graph.on_ack(ProcessId("a.2"), Ack(named("a.2", number), ()))
        graph.on_ack(ProcessId("a.2"), Ack(named("a.2", FAR + number), ()))
    assert graph.pending() == HELD_MAX - 1


# What is not promised ----------------------------------------------------------------------------------------------


def breaks(outcome: Outcome, promise: str) -> bool:
    facts = msgspec.structs.replace(outcome.facts, promises=[promise])
    return outcome.violations == [] and bool(check_run(facts, outcome.rows))


def test_transis_is_not_totally_ordered() -> None:
    plans = (Plan("a.1", 0, ("a",)), Plan("a.2", 0, ("a",)))
    outcome = simulate(calm("transis", plans))
    assert breaks(outcome, "total_order")
    assert breaks(outcome, "acyclic_order")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_graph_protocols_are_not_genuine(protocol: str) -> None:
    assert breaks(simulate(calm(protocol, (Plan("a.1", 0, ("a",)),))), "genuineness")
