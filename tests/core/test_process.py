"""The state machine: inputs in, effects out; what a component declares is all that it is."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.core import (
    Assumptions,
    Buffers,
    Component,
    Declaration,
    Failures,
    Gather,
    Message,
    MessageId,
    OrderingProtocol,
    Process,
    ProcessId,
    Promise,
    Timer,
    Topology,
    Transport,
    ViewId,
    Wire,
)
from antiphon.core.buffers import encode_inside
from antiphon.core.channel import ChannelId
from antiphon.core.effects import AnyEffect, CancelTimer, Log, Monitor, Record, Reply, Send, SetTimer
from antiphon.core.errors import BadFrame, UsageError
from antiphon.core.events import Gap, View, decode_event, encode_event
from antiphon.core.host import Turn
from antiphon.core.inputs import (
    Begin,
    Fire,
    Multicast,
    Receive,
    Recover,
    Submit,
    Suspect,
    Tell,
    Trust,
    TurnEnd,
    decode_input,
    encode_input,
)
from antiphon.core.keys import encode_key
from antiphon.core.requests import encode_request, requests_in
from antiphon.trace import Row, rows_of

TOPOLOGY = Topology.sized({"a": 2, "b": 1})
A, AB = TOPOLOGY.destinations({"a"}), TOPOLOGY.destinations({"a", "b"})


class Ping(Wire, frozen=True, tag=1):
    count: int


class Answer(Timer, frozen=True):
    to: ProcessId
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
            self.set_timer(Answer(sender, ping.count), 5)

    def on_answer(self, timer: Answer) -> None:
        self.send((timer.to, self.me), Ping(timer.count + 1))


class Shout(Echo):
    transport = Transport.DATAGRAM


class Line(Echo):
    transport = Transport.FIFO


class Toy(OrderingProtocol):
    """Delivers at once, and counts the turns in which it multicast."""

    declaration = Declaration(
        name="toy",
        title="",
        source="",
        assumes=Assumptions(failures=Failures.MINORITY),
        promises=(Promise.TOTAL_ORDER,),
    )
    reports: list[int]
    disliked: list[str]
    turns: list[int]  # of each turn: how many messages it had
    in_turn: int

    def initialise(self) -> None:
        self.first = self.part(Echo, "echo", heard=self.when_heard)
        self.second = self.part(Echo, "echo", heard=self.when_heard)
        self.shout = self.part(Shout, "shout", heard=self.when_heard)
        self.line = self.part(Line, "line", heard=self.when_heard)
        self.reports, self.disliked, self.turns = [], [], []
        self.in_turn = 0

    def when_heard(self, counted: int) -> None:
        self.reports.append(counted)

    def on_suspect(self, process: ProcessId) -> None:
        self.disliked.append(process)

    def multicast(self, m: Message) -> None:
        self.in_turn += 1
        self.at_turn_end()
        self.deliver(m, (self.in_turn, *m.id))

    def on_turn_end(self) -> None:
        self.turns.append(self.in_turn)
        self.in_turn = 0

    def pending(self) -> int:
        return 0


def toy(me: str = "a.1", gather: Gather | None = None) -> Process:
    return Process(ProcessId(me), TOPOLOGY, Toy, gather=gather)


def sends(effects: list[AnyEffect]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send)]


def sent_by(part: Component, to: tuple[str, ...], message: Wire) -> Send:
    """Have a part send something, outside any input."""
    part.process._effects = []
    part.send(tuple(ProcessId(p) for p in to), message)
    (send,) = sends(part.process._effects)
    return send


# Parts, messages and timers -----------------------------------------------------------------------------------------


def test_parts_have_their_own_messages_timers_and_names() -> None:
    sender, receiver = toy("a.1"), toy("b.1")
    send = sent_by(sender.protocol.second, ("b.1", "a.2"), Ping(7))
    assert (send.layer, send.to, send.numbers, send.transport) == (
        "toy/echo",
        ("b.1", "a.2"),
        (1, 1),
        Transport.RELIABLE,
    )
    effects = receiver.step(Receive(20, sender.me, Transport.RELIABLE, 1, send.frame))
    assert (receiver.protocol.first.counted, receiver.protocol.second.counted) == (0, 7)
    (timer,) = [e for e in effects if isinstance(e, SetTimer)]
    assert timer.due == 25
    effects = receiver.step(Fire(25, timer.part, timer.timer, timer.due))
    assert [e.to for e in sends(effects)] == [("a.1",)], "the timer's values came with it"
    assert receiver.protocol.reports == [7, 15], "what it sends to itself arrives at once"


def test_timers_of_one_type_are_the_same_only_if_their_values_are() -> None:
    process = toy()
    echo = process.protocol.first
    echo.set_timer(Answer(ProcessId("a.2"), 1), 5)
    echo.set_timer(Answer(ProcessId("b.1"), 1), 6)
    echo.set_timer(Answer(ProcessId("a.2"), 1), 7)
    assert sorted(process.state.timers.values()) == [6, 7]
    fire = Fire(7, echo.index, encode_inside(Answer(ProcessId("a.2"), 1)), 7)
    assert [e.to for e in sends(process.step(fire))] == [("a.2",)]
    assert list(process.state.timers.values()) == [6]


def test_a_timer_that_was_set_anew_or_cancelled_does_not_fire() -> None:
    process = toy()
    timer, data = Answer(ProcessId("a.2"), 1), encode_inside(Answer(ProcessId("a.2"), 1))
    process.protocol.first.set_timer(timer, 5)
    process.protocol.first.set_timer(timer, 9)
    assert process.step(Fire(5, 1, data, 5)) == []
    process.protocol.first.cancel_timer(timer)
    assert process.step(Fire(9, 1, data, 9)) == []
    process.protocol.second.set_timer(timer, 1)
    process._effects = []
    process.protocol.second.cancel_timer(timer)
    process.protocol.second.cancel_timer(timer)
    assert process._effects == [CancelTimer(2, data)]


def test_a_timer_of_another_component_is_refused() -> None:
    with pytest.raises(AssertionError, match="no handler for Answer"):
        toy().protocol.set_timer(Answer(ProcessId("a.2"), 1), 5)


def test_each_transport_between_two_processes_is_a_channel_of_its_own() -> None:
    sender, receiver = toy("a.1"), toy("b.1")
    protocol = sender.protocol
    assert sent_by(protocol.first, ("b.1",), Ping(1)).numbers == (1,)
    assert sent_by(protocol.line, ("b.1",), Ping(1)).numbers == (1,)
    assert sent_by(protocol.line, ("a.2", "b.1"), Ping(1)).numbers == (1, 2)
    datagram = sent_by(protocol.shout, ("b.1",), Ping(1))
    assert (datagram.numbers, datagram.transport) == ((), Transport.DATAGRAM)
    for _ in range(2):  # it may be doubled, and nobody notices
        receiver.step(Receive(1, sender.me, Transport.DATAGRAM, 0, datagram.frame))
    assert receiver.protocol.shout.counted == 2
    assert receiver.state.inboxes == {}
    assert {(channel.peer, channel.transport): number for channel, number in sender.state.sent.items()} == {
        ("b.1", Transport.RELIABLE): 1,
        ("b.1", Transport.FIFO): 2,
        ("a.2", Transport.FIFO): 1,
    }


def test_a_reliable_channel_has_no_order_and_takes_a_frame_once() -> None:
    sender, receiver = toy("a.1"), toy("b.1")
    one, two = (sent_by(sender.protocol.first, ("b.1",), Ping(n)) for n in (1, 2))
    receiver.step(Receive(1, sender.me, Transport.RELIABLE, 2, two.frame))
    receiver.step(Receive(1, sender.me, Transport.RELIABLE, 1, one.frame))
    assert receiver.protocol.first.counted == 3
    assert receiver.inbox(ChannelId(sender.me, Transport.RELIABLE)).received == 2
    with pytest.raises(AssertionError):
        receiver.step(Receive(1, sender.me, Transport.RELIABLE, 2, two.frame))


FRAME = bytes(sent_by(toy().protocol.first, ("b.1",), Ping(5)).frame)
NO_PART, NO_HANDLER = b"\xff" + FRAME[1:], b"\x00" + FRAME[1:]


@pytest.mark.parametrize("frame", [b"", NO_PART, NO_HANDLER, FRAME + b"x", FRAME[:1], FRAME[:3], FRAME[:-1]])
def test_bytes_that_are_no_message_are_refused_and_change_nothing(frame: bytes) -> None:
    process = toy()
    process.checks.frame(Buffers(FRAME))
    before = process.snapshot()
    with pytest.raises(BadFrame):
        process.checks.frame(Buffers(frame))
    assert process.snapshot() == before


def test_the_clock_of_a_process_never_goes_back() -> None:
    process = toy()
    process.step(Begin(100))
    process.step(Begin(50))
    assert process.now == 100


def test_suspicions_reach_the_parts_only_of_those_monitored() -> None:
    process = toy()
    assert process.step(Suspect(1, ProcessId("b.1"))) == []
    process.protocol.first.monitor([ProcessId("b.1"), process.me])
    assert process._effects == [Monitor((ProcessId("b.1"),))]
    for happened, kind in ((Suspect(2, ProcessId("b.1")), "suspect"), (Trust(3, ProcessId("b.1")), "trust")):
        (record,) = process.step(happened)
        assert isinstance(record, Record)
        assert (record.kind, record.peer) == (kind, "b.1")
        assert process.step(happened) == [], "a detector that repeats itself says nothing new"
    assert process.protocol.disliked == ["b.1"]
    assert process.state.suspects == []


# Clients, turns and positions -----------------------------------------------------------------------------------------


def submit(client: str, first: int, payloads: int = 1, groups: tuple[str, ...] = A, settled: int = 0) -> Submit:
    data = encode_request(client, first, settled, [f"{client}{first + k}".encode() for k in range(payloads)])
    return Submit(1, TOPOLOGY.destinations(groups), Buffers(data))


def events(effects: list[AnyEffect]) -> list[tuple[str, int, int, list[str]]]:
    """Every event of the application's log: the message, its position and count, and the payloads."""
    logged = [effect.event for effect in effects if isinstance(effect, Log)]
    return [
        (str(e.id), e.position, e.count, [p.decode() for request in e.requests for p in request.payloads()])
        for e in logged
    ]


def test_a_request_is_answered_at_once_and_multicast_when_the_turn_ends() -> None:
    process = toy()
    for happened, taken in ((submit("c", 0, 2), 2), (submit("d", 0), 1), (submit("c", 2), 3)):
        (reply,) = process.step(happened)
        assert isinstance(reply, Reply)
        assert (reply.client, reply.destinations, reply.taken) == (reply.requests[0].client, A, taken)
        assert process.turn_is_open
    effects = process.step(TurnEnd(2))
    (multicast,) = [e for e in effects if isinstance(e, Record)]
    assert (multicast.kind, multicast.message) == ("multicast", MessageId(process.me, 1))
    assert [(r.client, r.first, r.count) for r in multicast.requests] == [("c", 0, 2), ("d", 0, 1), ("c", 2, 1)]
    assert events(effects) == [("a.1:1", 0, 4, ["c0", "c1", "d0", "c2"])]
    assert not process.turn_is_open


def test_requests_for_several_sets_are_multicast_in_the_order_of_their_client() -> None:
    process = toy()
    for first, groups in ((0, A), (0, AB), (1, A)):
        process.step(submit("c", first, 1, groups))
    process.step(submit("d", 0, 1, A))
    assert events(process.step(TurnEnd(2))) == [
        ("a.1:1", 0, 1, ["c0"]),
        ("a.1:2", 1, 1, ["c0"]),
        ("a.1:3", 2, 2, ["c1", "d0"]),
    ]


def test_without_gathering_every_request_is_a_message() -> None:
    process = toy(gather=Gather(requests=1))
    for number in range(3):
        process.step(submit("c", number))
    assert [(name, count) for name, _, count, _ in events(process.step(TurnEnd(2)))] == [
        ("a.1:1", 1),
        ("a.1:2", 1),
        ("a.1:3", 1),
    ]


def test_a_part_acts_once_at_the_end_of_a_turn_in_which_it_asked_for_it() -> None:
    process = toy()
    process.step(Multicast(1, A, (b"x",)))
    process.step(Multicast(1, A, (b"y",)))
    assert process.protocol.turns == []
    process.step(TurnEnd(2))
    process.step(TurnEnd(3))
    assert process.protocol.turns == [2]
    process.step(Multicast(4, A, (b"z",)))
    with pytest.raises(AssertionError, match="between two turns"):
        process.snapshot()


def test_a_repeated_request_is_answered_and_not_multicast_again() -> None:
    process = toy()
    process.step(submit("c", 0, 2))
    process.step(TurnEnd(1))
    (reply,) = process.step(submit("c", 0, 2))
    assert isinstance(reply, Reply)
    assert reply.taken == 2
    assert not process.turn_is_open


def test_positions_count_the_payloads_that_are_admitted() -> None:
    """A retry through another member is another message, which brings nothing new."""
    process, log = toy("b.1"), []
    for origin, number, client, first, count in (
        ("a.1", 1, "c", 0, 2),
        ("a.2", 1, "c", 3, 1),  # its predecessor has yet to come
        ("a.2", 2, "c", 0, 2),  # a retry
        ("a.2", 3, "d", 0, 1),
        ("a.1", 2, "c", 2, 1),
    ):
        data = encode_request(client, first, 0, [f"{client}{first + k}".encode() for k in range(count)])
        process._effects = []
        message = Message(MessageId(ProcessId(origin), number), AB, count, Buffers(data))
        process.protocol.deliver(message, (len(log),))
        log += [effect for effect in process._effects if isinstance(effect, Log)]
    assert events(log) == [
        ("a.1:1", 0, 2, ["c0", "c1"]),
        ("a.2:1", 2, 0, []),
        ("a.2:2", 2, 0, []),
        ("a.2:3", 2, 1, ["d0"]),
        ("a.1:2", 3, 2, ["c2", "c3"]),
    ]
    assert [effect.event.key for effect in log] == [encode_key((n,)) for n in range(5)]


def test_a_processs_own_multicast_is_a_request_of_its_own() -> None:
    process = toy()
    effects = process.step(Multicast(1, A, (b"x", b"y")))
    assert events(effects) == [("a.1:1", 0, 2, ["x", "y"])]
    with pytest.raises(UsageError, match="at least one payload"):
        process.step(Multicast(1, A, ()))
    with pytest.raises(UsageError, match="bytes, not str"):
        process.step(Multicast(1, A, ("x",)))  # type: ignore[arg-type]


def test_what_nobody_reads_is_not_recorded_and_numbered_all_the_same() -> None:
    traced, silent = toy(), toy()
    silent.traced = False
    for happened in (submit("c", 0), TurnEnd(1), Recover(2, 1)):
        seen, unseen = traced.step(happened), silent.step(happened)
        assert [e for e in seen if not isinstance(e, Record)] == unseen
    assert traced.state.seq == silent.state.seq


# Journal and snapshot -----------------------------------------------------------------------------------------------


def test_inputs_survive_the_journal() -> None:
    for value in (
        Begin(1),
        Receive(2, ProcessId("p"), Transport.FIFO, 3, Buffers(b"fra", b"me")),
        Receive(2, ProcessId("p"), Transport.DATAGRAM, 0, Buffers(bytes(10_000))),
        Multicast(4, A, (b"x", b"")),
        Submit(5, AB, Buffers(b"request")),
        Fire(8, 0, b"t", 9),
        Suspect(10, ProcessId("p")),
        Trust(10, ProcessId("p")),
        Recover(11, 12),
        TurnEnd(13),
        Tell(14, b"command"),
    ):
        record = bytes(encode_input(value))
        assert decode_input(record) == value
        for end in range(len(record)):
            with pytest.raises(BadFrame):
                decode_input(record[:end])
    with pytest.raises(BadFrame):
        decode_input(b"\x03\x00\x00\x00\x92\x63\x01")


def test_a_snapshot_of_other_parts_or_another_version_is_refused() -> None:
    state = msgspec.msgpack.decode(toy().snapshot(), strict=False)
    with pytest.raises(UsageError, match="another version"):
        toy().restore(msgspec.msgpack.encode([*state[:-1], state[-1][:-1]]))
    with pytest.raises(UsageError, match="another version"):
        toy().restore(msgspec.msgpack.encode([1, *state[1:]]))
    with pytest.raises(UsageError, match="another version"):
        toy().restore(b"\x93\x01\x02\x03")
    toy().restore(msgspec.msgpack.encode(state))


def test_a_body_is_opened_by_nobody_but_the_core() -> None:
    """Its pieces travel as they came: what a member gathered is not copied."""
    process = toy()
    happened = submit("c", 0)
    process.step(happened)
    bodies = []
    process.protocol.multicast = lambda m: bodies.append(m.body)  # type: ignore[method-assign]
    process.step(TurnEnd(2))
    (body,) = bodies
    assert body.pieces == happened.requests.pieces
    assert memoryview(body.pieces[0]).obj is happened.requests.pieces[0], "a view, not a copy"
    assert [request.client for request in requests_in(body)] == ["c"]


class Courtesy(Wire, frozen=True, tag=1):
    message: Message


class ActsOnItsOwnCopy(Toy):
    """Asks for the turn's end when its own copy comes, which is in the turn's end itself."""

    ends: int

    def initialise(self) -> None:
        super().initialise()
        self.ends = 0

    def multicast(self, m: Message) -> None:
        self.send(self.me, Courtesy(m))

    def on_courtesy(self, sender: ProcessId, courtesy: Courtesy) -> None:
        self.at_turn_end()

    def on_turn_end(self) -> None:
        self.ends += 1


def test_a_part_may_ask_for_the_turns_end_while_the_turn_ends() -> None:
    process = Process(ProcessId("a.1"), TOPOLOGY, ActsOnItsOwnCopy)
    process.step(submit("c", 0))
    process.step(TurnEnd(2))
    assert process.protocol.ends == 1
    assert not process.turn_is_open


def test_a_view_takes_a_position_and_survives_the_log() -> None:
    process = toy()
    view = ViewId(3, ProcessId("a.2"))
    members = TOPOLOGY.processes
    effects: list[AnyEffect] = []
    process._effects = effects
    process.protocol.announce_view(view, members)
    process.protocol.announce_gap()
    logs = [effect for effect in effects if isinstance(effect, Log)]
    assert [log.event for log in logs] == [View(view, members, 0, 0), Gap(1, 0)]
    assert [decode_event(encode_event(log.event).joined()) for log in logs] == [log.event for log in logs]
    assert process.state.position == 2
    assert [log.seq for log in logs] == [1, 2]
    happened = Turn(0, Begin(at=0), 1, 2, effects)
    shown = Row("a.1", 1, 5, "view", "3@a.2", peers=members, position=0)
    assert rows_of(process, happened, 5) == [shown, Row("a.1", 2, 5, "gap", position=1)]


def test_a_process_is_in_each_view_that_it_delivers() -> None:
    with pytest.raises(AssertionError, match="in each view"):
        toy("a.1").announce_view(ViewId(1, ProcessId("b.1")), (ProcessId("b.1"),))
