"""Numbered multicast under fifo and causal: losses, memory, silence, and what no honest peer sends."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from antiphon.core import Buffers, Message, MessageId, OrderingProtocol, Process, ProcessId, Topology
from antiphon.core.errors import BadFrame, UsageError
from antiphon.core.inputs import Fire, Multicast
from antiphon.core.requests import encode_request
from antiphon.protocols import protocol_named
from antiphon.protocols.causal import Causal
from antiphon.protocols.fifo import Fifo
from antiphon.services.numbered import MISSING_MAX, OUTSIDE_MAX, Copy, Have, NumberedMulticast, Stream
from antiphon.simulation import (
    MILLISECOND,
    Constant,
    Crash,
    Partition,
    Plan,
    Scenario,
    Uniform,
    random_scenario,
    simulate,
)
from mutants.numbered import LEAKING
from mutants.parts import with_parts

PROTOCOLS = ["fifo", "causal"]
SECOND = 1_000 * MILLISECOND


def spied(kind: type[OrderingProtocol], seen: list[Process]) -> type[OrderingProtocol]:
    """The protocol, with its processes shown."""

    class Spied(kind):  # type: ignore[misc,valid-type]
        def initialise(self) -> None:
            super().initialise()
            seen.append(self.process)

    return Spied


def lossy(protocol: str, plans: tuple[Plan, ...], **rest: Any) -> Scenario:
    settings: dict[str, Any] = {
        "groups": {"a": 3, "b": 2},
        "latency": Uniform(MILLISECOND // 10, 3 * MILLISECOND),
        "loss": 0.3,
        "duplication": 0.3,
        **rest,
    }
    return Scenario(protocol=protocol, options={"transport": "datagram"}, plans=plans, **settings)


def stream(count: int, *, gap_ns: int = MILLISECOND) -> tuple[Plan, ...]:
    """From a client and two members, to one group or both."""
    sets = (("a",), ("a", "b"), ("b",), ("a", "b"))
    return tuple(Plan(("c", "a.1", "b.2")[i % 3], i * gap_ns, sets[i % 4]) for i in range(count))


# Losses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("loss", [0.0, 0.5, 0.8])
def test_however_much_is_lost_everything_arrives(protocol: str, loss: float) -> None:
    outcome = simulate(lossy(protocol, stream(60), loss=loss, duplication=0.2))
    assert outcome.violations == []
    assert outcome.deliveries == 15 * 3 + 15 * 2 + 30 * 5


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_sent_twice_where_nothing_is_lost(protocol: str) -> None:
    """One copy for each addressee; and one answer covers what came within 5 ms."""
    plans = tuple(Plan("c", i * MILLISECOND // 10, ("a",)) for i in range(40))
    outcome = simulate(lossy(protocol, plans, loss=0.0, duplication=0.0))
    copies = [row for row in outcome.rows if row.kind == "send" and row.about]
    answers = [row for row in outcome.rows if row.kind == "send" and not row.about]
    assert sum(len(row.peers or ()) for row in copies) == 40 * 3
    assert len(answers) <= 3 * 2


def test_a_lost_message_is_fetched_and_the_others_are_not_sent_again() -> None:
    """c is cut off from a.1 for one of its messages."""
    plans = tuple(Plan("c", i * 2 * MILLISECOND, ("a",)) for i in range(10))
    cut = Partition(("c",), at=5 * MILLISECOND + 1, for_ns=2 * MILLISECOND, one_way=True)
    calm = {"groups": {"a": 1}, "latency": Constant(), "loss": 0.0, "duplication": 0.0}
    outcome = simulate(lossy("fifo", plans, faults=(cut,), **calm))
    sent = [row.about for row in outcome.rows if row.kind == "send" and row.about]
    assert sorted(sent) == sorted([(f"c:{i}",) for i in range(1, 11)] + [("c:4",)])
    assert outcome.deliveries == 10


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_silent_peer_is_asked_less_and_less_often(protocol: str) -> None:
    cut = Partition(("a.2",), at=1, for_ns=20 * SECOND)
    outcome = simulate(
        lossy(protocol, (Plan("c", 2, ("a",)),), groups={"a": 2}, loss=0.0, duplication=0.0, faults=(cut,))
    )
    repeats = [row.time_ns for row in outcome.rows if row.kind == "send" and row.peers == ("a.2",)]
    gaps = [later - earlier for earlier, later in pairwise(repeats)]
    assert gaps[:6] == [2**k * 20 * MILLISECOND for k in range(1, 7)]
    assert set(gaps[6:-1]) == {1_280 * MILLISECOND}
    assert outcome.violations == []
    assert outcome.deliveries == 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_when_all_is_everywhere_there_is_silence(protocol: str) -> None:
    outcome = simulate(lossy(protocol, stream(30)))
    assert outcome.violations == []
    assert outcome.virtual_ns < 3 * SECOND, "the world ended because nothing was left to happen"


def test_a_timestamp_makes_a_loss_known_before_its_sender_does() -> None:
    """a.3 hears of a.1's lost message from a.2's answer to it, and asks a.1, who would wait 20 ms."""
    plans = (Plan("a.1", 2, ("a",)), Plan("a.2", 3 * MILLISECOND, ("a",)))
    cut = Partition(("a.1",), at=1, for_ns=MILLISECOND, bridge="a.2")
    outcome = simulate(
        lossy(
            "causal",
            plans,
            groups={"a": 3},
            latency=Uniform(MILLISECOND, MILLISECOND + 1),
            loss=0.0,
            duplication=0.0,
            faults=(cut,),
        )
    )
    late = max(row.time_ns for row in outcome.rows if row.kind == "deliver" and row.process == "a.3")
    assert outcome.deliveries == 6
    assert late < 12 * MILLISECOND


# Memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("transport", ["reliable", "datagram"])
def test_memory_does_not_grow_with_the_number_of_messages(protocol: str, transport: str) -> None:
    """Neither afterwards nor while they are sent, at senders and receivers."""
    sizes, peaks = [], []
    for count in (150, 1500):
        seen: list[Process] = []
        peak = 0

        class Watched(spied(protocol_named(protocol), seen)):  # type: ignore[misc]
            def deliver(self, *arguments: Any) -> None:
                nonlocal peak
                super().deliver(*arguments)
                peak = max(peak, self.pending())

        scenario = lossy(protocol, stream(count), loss=0.1, duplication=0.1, seed=3)
        options = {"transport": transport}
        outcome = simulate(Scenario(**{**_fields(scenario), "options": options}), Watched)
        assert outcome.violations == []
        assert [process.protocol.pending() for process in seen] == [0] * 6
        sizes.append(max(sum(len(part.snapshot()) for part in process.parts) for process in seen))
        peaks.append(peak)
    assert sizes[1] <= sizes[0] + 40, "numbers above 127 and 255 take a byte or two more"
    assert peaks[1] <= 3 * peaks[0]


def _fields(scenario: Scenario) -> dict[str, Any]:
    return {name: getattr(scenario, name) for name in scenario.__struct_fields__}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_left_behind(protocol: str) -> None:
    """In random runs with all faults: in the end nothing is held back, kept or missing anywhere."""
    for seed in range(3000, 3030):
        seen: list[Process] = []
        outcome = simulate(random_scenario(protocol_named(protocol), seed), spied(protocol_named(protocol), seen))
        assert outcome.violations == []
        last = {process.me: process for process in seen}  # a process that returned was made again
        assert [process.protocol.pending() for process in last.values()] == [0] * len(last)


@pytest.mark.parametrize("kind", LEAKING)
@pytest.mark.parametrize("protocol", [Fifo, Causal])
def test_a_double_that_is_taken_for_new_would_be_left_behind(
    protocol: type[OrderingProtocol], kind: type[NumberedMulticast]
) -> None:
    def left_behind(seed: int) -> int:
        seen: list[Process] = []
        simulate(random_scenario(protocol, seed, {"transport": "datagram"}), spied(with_parts(protocol, kind), seen))
        return sum(process.protocol.pending() for process in {p.me: p for p in seen}.values())

    assert any(left_behind(seed) for seed in range(3000, 3060))


def test_a_sender_that_crashes_goes_on_repeating() -> None:
    """c dies when one of three copies has left it, and nobody hears of the others before it is back."""
    plans = (Plan("c", 1, ("a",)),)
    crash = Crash("c", at=0, down_ns=3 * SECOND, effects=1)
    outcome = simulate(
        lossy("fifo", plans, loss=0.0, duplication=0.0, faults=(crash,), journal=True, sent_survives=True)
    )
    assert outcome.violations == []
    times = sorted(row.time_ns for row in outcome.rows if row.kind == "deliver")
    assert len(times) == 3
    assert times[0] < SECOND < 3 * SECOND < times[1]


# What no honest peer sends -----------------------------------------------------------------------------------------

TOPOLOGY = Topology.sized({"a": 2, "b": 2})
A, B = (TOPOLOGY.destinations({name}) for name in ("a", "b"))
AB = TOPOLOGY.destinations({"a", "b"})
BODY = Buffers(encode_request("c", 1, 0, (b"x",)))
NAME = MessageId(ProcessId("c"), 1)


def copy(destinations: Any, numbers: tuple[int, ...], past: Any = None) -> Copy:
    return Copy(Message(NAME, destinations, 1, BODY), numbers, past or {})


BAD = [
    copy(B, (1,)),
    copy(A, ()),
    copy(A, (0,)),
    copy(A, (-1,)),
    copy(A, (1, 2)),
    copy(AB, (1,)),
    copy(AB, (1, 0)),
    copy(("b", "a"), (1, 1)),
    copy(("a", "x"), (1, 1)),
    copy((), ()),
    copy(A, (1,), {"x": {"c": 1}}),
    copy(A, (1,), {"a": {"c": 0}}),
    copy(A, (1,), {"b": {"c": -5}}),
    copy(A, (1,), {"b": {f"c{i}": 1 for i in range(OUTSIDE_MAX + 5)}}),
    Have(-1, []),
    Have(0, [0]),
    Have(0, [3, -1]),
    Have(0, list(range(1, MISSING_MAX + 2))),
]


def member(protocol: str, transport: str = "datagram") -> Process:
    return Process(ProcessId("a.1"), TOPOLOGY, protocol_named(protocol), {"transport": transport})


def test_in_a_large_system_every_member_may_precede_a_message() -> None:
    topology = Topology.sized({f"g{i}": 1024 for i in range(1, 6)})
    process = Process(topology.processes[0], topology, protocol_named("causal"))
    past = {topology.processes[0].partition(".")[0]: dict.fromkeys(topology.processes, 1)}
    message = copy(topology.destinations({"g1"}), (1,), past)
    process.checks.frame(process.encode(process.protocol.numbered, message))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("message", BAD, ids=range(len(BAD)))
def test_what_no_honest_peer_sends_is_refused(protocol: str, message: Copy | Have) -> None:
    process = member(protocol)
    with pytest.raises(BadFrame):
        process.checks.frame(process.encode(process.protocol.numbered, message))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "message",
    [
        copy(A, (1 << 60,)),
        copy(AB, (7, 1 << 60), {"a": {"c2": 1 << 60, "a.2": 9, "a.1": 5}, "b": {"zz": 4}}),
        Have(1 << 60, []),
        Have(0, [1, 1 << 60]),
    ],
    ids=range(4),
)
@pytest.mark.parametrize("sender", ["a.2", "b.1", "c"])
@pytest.mark.parametrize("transport", ["reliable", "datagram"])
def test_what_has_the_right_form_does_no_harm(protocol: str, message: Copy | Have, sender: str, transport: str) -> None:
    """Whoever sends it, before this process has sent anything and after, and whenever its timers come due."""
    process = member(protocol, transport)
    numbered = process.protocol.numbered
    process.checks.frame(process.encode(numbered, message))
    for now in range(3):
        numbered.handlers[type(message)](ProcessId(sender), message)
        for (part, timer), due in list(process.state.timers.items()):
            process.step(Fire(due, part, timer, due))
        process.step(Multicast(now, AB, (b"x",)))
    assert numbered.sent == {"a": 3, "b": 3}
    assert process.protocol.counters()["unstable"] <= 2 * 3


def test_what_is_missing_is_named_up_to_a_limit_however_much_it_is() -> None:
    stream = Stream(known=1 << 60)
    stream.inbox.take(3)
    assert stream.missing_count() == (1 << 60) - 1
    missing = stream.missing_up_to(stream.known)
    assert [next(missing) for _ in range(3)] == [1, 2, 4]


def test_another_transport_is_refused_in_a_sentence() -> None:
    scenario = Scenario(protocol="fifo", options={"transport": "pigeon"}, groups={"a": 1}, plans=())
    with pytest.raises(UsageError, match="transport must be reliable or datagram, not 'pigeon'"):
        simulate(scenario)
