"""The state-machine contract: what a component declares is all that it is."""

from __future__ import annotations

import random
from itertools import islice

import msgspec
import pytest

from antiphon.core import (
    Assumptions,
    Component,
    Declaration,
    Failures,
    Message,
    OrderingProtocol,
    Process,
    ProcessId,
    Topology,
    Wire,
)
from antiphon.core.effects import CancelTimer, Record, Reply, Send, SetTimer
from antiphon.core.errors import BadFrame, UsageError
from antiphon.core.inputs import (
    Begin,
    Fire,
    Multicast,
    Receive,
    Recover,
    Submit,
    Suspect,
    decode_input,
    encode_input,
)
from antiphon.protocols import protocols
from antiphon.simulation.campaign import scenarios
from antiphon.simulation.disk import Disk
from antiphon.simulation.run import simulate

TOPOLOGY = Topology.sized({"a": 2, "b": 1})


class Ping(Wire, frozen=True, tag=1):
    count: int


class Echo(Component):
    """A part that answers, counts, and reports upwards."""

    counted: int

    def initialise(self) -> None:
        self.counted = 0

    def on_ping(self, sender: ProcessId, ping: Ping) -> None:
        self.counted += ping.count
        self.heard(self.counted)
        if sender != self.me:
            self.set_timer("answer", 5)

    def on_answer_timer(self) -> None:
        self.send(self.topology.processes, Ping(1))


class Toy(OrderingProtocol):
    declaration = Declaration(
        name="toy", title="", source="", assumes=Assumptions(failures=Failures.MINORITY), promises=()
    )
    reports: list[int]
    disliked: set[str]

    def initialise(self) -> None:
        self.first = self.part(Echo, "echo", heard=self.on_heard)
        self.second = self.part(Echo, "echo", heard=self.on_heard)
        self.reports = []
        self.disliked = set()

    def on_heard(self, counted: int) -> None:
        self.reports.append(counted)

    def on_suspect(self, process: ProcessId) -> None:
        self.disliked.add(process)

    def multicast(self, m: Message) -> None:
        self.second.send(ProcessId("b.1"), Ping(7))
        self.deliver(m)

    def pending(self) -> int:
        return 0


def toy(me: str) -> Process:
    return Process(ProcessId(me), TOPOLOGY, Toy)


def test_parts_have_their_own_messages_timers_and_names() -> None:
    sender, receiver = toy("a.1"), toy("b.1")
    effects = sender.step(Multicast(10, TOPOLOGY.destinations({"a"}), b"x"))
    (send,) = [e for e in effects if isinstance(e, Send)]
    assert (send.layer, send.number) == ("toy/echo", 1)
    effects = receiver.step(Receive(20, sender.me, 1, send.frame))
    assert receiver.protocol.second.counted == 7
    assert receiver.protocol.first.counted == 0
    (timer,) = [e for e in effects if isinstance(e, SetTimer)]
    assert timer.due == 25
    effects = receiver.step(Fire(25, timer.timer, timer.due))
    assert [e.to for e in effects if isinstance(e, Send)] == ["a.1", "a.2"]
    assert receiver.protocol.reports == [7, 8], "what it sends to itself arrives at once"


def test_a_timer_that_was_set_anew_or_cancelled_does_not_fire() -> None:
    process = toy("a.1")
    process.protocol.first.set_timer("answer", 5)
    process.protocol.first.set_timer("answer", 9)
    assert process.step(Fire(5, "1.answer", 5)) == []
    process.protocol.first.cancel_timer("answer")
    assert process.step(Fire(9, "1.answer", 9)) == []
    process.protocol.second.set_timer("answer", 1)
    process._effects = []
    process.protocol.second.cancel_timer("answer")
    assert process._effects == [CancelTimer("2.answer")]


@pytest.mark.parametrize("frame", [b"", b"\x00", b"\x01", b"\x01\x92\x01", b"\x01\x92\x02\x05", b"\xff\x92\x01\x05"])
def test_bytes_that_are_no_message_are_refused_and_change_nothing(frame: bytes) -> None:
    process = toy("a.1")
    before = process.snapshot()
    with pytest.raises(BadFrame):
        process.check_frame(frame)
    assert process.snapshot() == before


def test_the_clock_of_a_process_never_goes_back() -> None:
    process = toy("a.1")
    process.step(Begin(100))
    process.step(Begin(50))
    assert process.now == 100


def test_a_client_is_served_once_per_number() -> None:
    process = toy("a.1")
    request = Submit(1, "me", 1, 1, TOPOLOGY.destinations({"a"}), b"x")
    assert sum(isinstance(e, Record) for e in process.step(request)) == 1
    again = process.step(request)
    assert again == [Reply("me", 1)]


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (("me", 1, 1, ["b"], b""), "in none of the destination groups"),
        (("me", 1, 1, [], b""), "at least one destination"),
        (("me", 1, 1, ["zebra"], b""), "no group zebra"),
        (("me", 1, 1, ["a"], bytes(2**20 + 1)), "at most 1048576 bytes"),
        (("me too", 1, 1, ["a"], b""), "client's name"),
        (("me", 1, 2, ["a"], b""), "settled mark"),
        (("me", 10**6, 0, ["a"], b""), "settled mark"),
    ],
)
def test_a_bad_request_is_refused_in_a_sentence(request_, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        toy("a.1").check_request(*request_)


def test_inputs_survive_the_journal() -> None:
    for value in (
        Begin(1),
        Receive(2, ProcessId("p"), 3, b"frame"),
        Multicast(4, TOPOLOGY.destinations({"a"}), b"x"),
        Submit(5, "c", 6, 7, TOPOLOGY.destinations({"a", "b"}), b"y"),
        Fire(8, "0.t", 9),
        Suspect(10, ProcessId("p")),
        Recover(11, 12),
    ):
        assert decode_input(encode_input(value)) == value
    with pytest.raises(BadFrame):
        decode_input(b"\x93\x63\x01\x02")


def test_a_snapshot_of_other_parts_is_refused() -> None:
    process = toy("a.1")
    state = msgspec.msgpack.decode(process.snapshot())
    state[-1].pop()
    with pytest.raises(UsageError, match="another version"):
        toy("a.1").restore(msgspec.msgpack.encode(state))


class Journals:
    """Runs scenarios and keeps every input of every process."""

    def __init__(self, protocol: type[OrderingProtocol], seed: int) -> None:
        self.inputs: dict[str, list[bytes]] = {}
        spy = self

        class Spied(Disk):
            def append(self, happened) -> None:
                super().append(happened)
                spy.inputs.setdefault(id(self), []).append(self.records[-1])

        self.scenario = msgspec.structs.replace(
            next(islice(scenarios(protocol, seed), 1)), faults=(), journal=True, through_members=False
        )
        from antiphon.simulation import world

        original, world.Disk = world.Disk, Spied
        try:
            self.outcome = simulate(self.scenario, protocol)
        finally:
            world.Disk = original


@pytest.mark.parametrize("name", sorted(protocols()))
@pytest.mark.parametrize("seed", range(5))
def test_snapshot_and_replay_equal_full_replay_effect_by_effect(name: str, seed: int) -> None:
    protocol = protocols()[name]
    journals = Journals(protocol, seed)
    topology = Topology.sized(journals.scenario.groups)
    processes = [*topology.processes, *dict.fromkeys(plan.sender for plan in journals.scenario.plans)]
    owners = dict(zip(journals.inputs, dict.fromkeys(processes), strict=True))
    rng = random.Random(seed)
    for key, records in journals.inputs.items():
        me = ProcessId(owners[key])
        inputs = [decode_input(record) for record in records]
        whole = Process(me, topology, protocol, journals.scenario.options)
        expected = [whole.step(happened) for happened in inputs]
        cut = rng.randrange(len(inputs) + 1)
        first = Process(me, topology, protocol, journals.scenario.options)
        assert [first.step(happened) for happened in inputs[:cut]] == expected[:cut]
        second = Process(me, topology, protocol, journals.scenario.options)
        second.restore(first.snapshot())
        assert [second.step(happened) for happened in inputs[cut:]] == expected[cut:]
        assert msgspec.msgpack.decode(second.snapshot()) == msgspec.msgpack.decode(whole.snapshot())
        assert_declared(whole)


def assert_declared(process: Process) -> None:
    """No component holds a variable that its snapshot would lose."""
    wiring = {"process", "layer", "channel", "options", "me", "topology", "contract", "index", "handlers"}
    for part in process.parts:
        declared = set(part.contract.state.__struct_fields__)
        others = set(vars(part)) - wiring - declared
        assert all(isinstance(getattr(part, n), Component) or callable(getattr(part, n)) for n in others), others
