"""The contract between a process and its driver: nothing is seen before it is durable, and everything after it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.core import (
    Assumptions,
    Buffers,
    Declaration,
    Failures,
    Host,
    Message,
    OrderingProtocol,
    Process,
    ProcessId,
    Timer,
    Topology,
    Transport,
    Wire,
)
from antiphon.core.buffers import encode_beside
from antiphon.core.channel import NO_FRAMES, ChannelId, Prefix
from antiphon.core.effects import CancelTimer, Log, Record, Reply, Send, SetTimer
from antiphon.core.errors import BadFrame, JournalBehind, JournalFull, UsageError
from antiphon.core.events import Event
from antiphon.core.host import Turn
from antiphon.core.inputs import AnyInput, Begin, Multicast, Receive, Submit, TurnEnd, decode_input, encode_input
from antiphon.core.prompt import PromptHost
from antiphon.core.prompt import Seen as SeenTuple
from antiphon.core.requests import encode_request

TOPOLOGY = Topology.sized({"a": 3, "b": 1})
A, AB = TOPOLOGY.destinations({"a"}), TOPOLOGY.destinations({"a", "b"})
TO_B = ChannelId(ProcessId("b.1"), Transport.RELIABLE)


class Say(Wire, frozen=True, tag=1):
    message: Message


class Again(Timer, frozen=True):
    number: int


class Sayer(OrderingProtocol):
    """Sends a message to all its addressees, who deliver it as it comes; and has something of every kind to let out."""

    declaration = Declaration(
        name="sayer", title="", source="", assumes=Assumptions(failures=Failures.MINORITY), promises=()
    )
    said: int

    def initialise(self) -> None:
        self.said = 0

    def begin(self) -> None:
        self.monitor(self.topology.processes)

    def multicast(self, m: Message) -> None:
        self.said += 1
        self.send(self.topology.addressees(m.destinations), Say(m))
        self.set_timer(Again(self.said), 1000)
        self.cancel_timer(Again(self.said - 1))

    def on_say(self, sender: ProcessId, say: Say) -> None:
        self.deliver(say.message)

    def on_again(self, timer: Again) -> None:
        pass

    def pending(self) -> int:
        return 0


class Answerer(Sayer):
    """Who sends on what comes."""

    def on_say(self, sender: ProcessId, say: Say) -> None:
        self.deliver(say.message)
        self.send([p for p in self.topology.processes if p != self.me], say)


class Shouter(Sayer):
    transport = Transport.DATAGRAM


class Disk:
    """A journal that keeps everything, has room for so much, and says nothing of what is durable."""

    def __init__(self, room: int = 1000) -> None:
        self.records: list[Buffers] = []
        self.room = room

    @property
    def next_index(self) -> int:
        return len(self.records)

    def append(self, happened: AnyInput) -> int:
        if len(self.records) == self.room:
            raise JournalFull("No space is left.")
        self.records.append(encode_input(happened))
        return self.records[-1].size


class Stop(Exception):
    pass


class Seen:
    """What the world sees; it ends after so many things."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.turns: Sequence[Turn] = []
        self.received: list[SeenTuple] = []
        self.on_received = self.received.append
        self.left: int | None = None

    def note(self, *what: Any) -> None:
        if self.left is not None:
            if self.left == 0:
                raise Stop
            self.left -= 1
        self.seen.append(what)

    def on_send(self, send: Send, note: Any) -> None:
        for done, peer in enumerate(send.to):
            try:
                self.note("send", peer, send.numbers[done] if send.numbers else 0)
            except Stop:
                send.cut_to(done)
                raise

    def on_event(self, event: Event) -> None:
        self.note("event", str(event.id), event.position)

    def on_record(self, record: Record) -> None:
        self.note("record", record.kind)

    def on_reply(self, reply: Reply) -> None:
        self.note("reply", reply.client, reply.taken)

    def on_set_timer(self, timer: SetTimer) -> None:
        self.note("set", timer.due)

    def on_cancel_timer(self, timer: CancelTimer) -> None:
        self.note("cancel")

    def on_monitor(self, processes: tuple[ProcessId, ...]) -> None:
        self.note("monitor", *processes)

    def on_turns(self, turns: Sequence[Turn], *, replayed: bool) -> None:
        self.turns += turns

    def take(self) -> list[tuple[Any, ...]]:
        taken, self.seen = self.seen, []
        return taken


def host(me: str = "a.1", disk: Disk | None = None, kind: type[OrderingProtocol] = Sayer) -> tuple[Host, Seen]:
    seen = Seen()
    return Host(Process(ProcessId(me), TOPOLOGY, kind), disk, seen), seen


def prompt_host(kind: type[OrderingProtocol] = Sayer) -> tuple[PromptHost, Seen]:
    seen = Seen()
    return PromptHost(Process(ProcessId("a.1"), TOPOLOGY, kind), seen), seen


def request(first: int) -> Submit:
    return Submit(1, A, Buffers(encode_request("c", first, 0, [b"x"])))


EVERY_KIND: tuple[AnyInput, ...] = (Begin(0), request(0), TurnEnd(1), Multicast(2, AB, (b"y",)))


def test_nothing_is_released_before_the_journal_is_durable_and_then_all_in_order() -> None:
    disk = Disk()
    held, seen = host(disk=disk)
    for happened in EVERY_KIND:
        held.take(happened)
    assert seen.take() == []
    assert seen.turns == []
    assert held.held == 4
    held.durable(1)
    assert seen.take() == [("monitor", "a.2", "a.3", "b.1")]
    held.durable(1)
    assert seen.take() == []
    held.durable(4)
    assert seen.take() == [
        ("reply", "c", 1),
        ("record", "multicast"),
        ("send", "a.2", 1),
        ("send", "a.3", 1),
        ("set", 1001),
        ("event", "a.1:1", 0),
        ("record", "multicast"),
        ("send", "a.2", 2),
        ("send", "a.3", 2),
        ("send", "b.1", 1),
        ("set", 1002),
        ("cancel",),
        ("event", "a.1:2", 1),
    ]
    assert held.held == 0
    assert [turn.index for turn in seen.turns] == [0, 1, 2, 3]
    assert [decode_input(bytes(record)) for record in disk.records] == list(EVERY_KIND)


def test_the_record_of_a_frame_is_what_any_input_makes() -> None:
    """It is written out, because most inputs are frames; small and large ones alike."""
    for body in (b"", b"x", b"x" * 10_000):
        for transport in Transport:
            received = Receive(1 << 60, ProcessId("a.2"), transport, 70_000, Buffers(body[:3], body[3:]))
            assert encode_input(received) == encode_beside(b"", received)
            assert decode_input(bytes(encode_input(received))) == received


def test_without_a_journal_inputs_are_counted_all_the_same() -> None:
    held, seen = host()
    held.take(Begin(0))
    held.take(request(0))
    held.durable(held.next_index)
    assert [what[0] for what in seen.take()] == ["monitor", "reply"]


def test_at_once_is_take_the_end_of_the_turn_and_durable() -> None:
    one, seen_by_one = prompt_host()
    other, seen_by_other = host()
    came = Receive(3, ProcessId("b.1"), Transport.RELIABLE, 1, frame_of("b.1"))
    for happened in (Begin(0), request(0), Multicast(2, AB, (b"y",)), came):
        one.take_at_once(happened, "note")
        other.take(happened, "note")
        other.end_turn(happened.at, "note")
        other.durable(other.next_index)
    assert seen_by_one.take() == seen_by_other.take()
    for turn in seen_by_other.turns:
        turn.held = NO_FRAMES  # what did not wait for a disk says nothing of it
    assert seen_by_one.turns == seen_by_other.turns
    assert [type(turn.happened) for turn in seen_by_one.turns] == [Begin, Submit, TurnEnd, Multicast, Receive]
    assert one.received == other.received
    assert {channel: held.frames for channel, held in one.received.items()} == {TO_B: 1}
    assert one.snapshot() == other.snapshot()


@pytest.mark.parametrize("transport", [Transport.RELIABLE, Transport.FIFO])
def test_to_receive_at_once_is_to_ask_whether_a_frame_is_new_and_to_take_it_at_once(transport: Transport) -> None:
    one, seen_by_one = prompt_host(Answerer)
    other, seen_by_other = host(kind=Answerer)
    channel, frame = ChannelId(TO_B.peer, transport), frame_of("b.1")
    for number in (1, 1, 3, 3, 2, 4, 2, 3):
        came = Receive(number, TO_B.peer, transport, number, frame)
        taken = one.receive_at_once(channel, number, number, frame, "note")
        try:
            is_new = other.is_new(channel, number)
        except BadFrame:
            assert transport is Transport.FIFO
            is_new = False
        if is_new:
            other.take(came, "note")
            other.end_turn(number, "note")
            other.durable(other.next_index)
        assert taken == is_new
    assert seen_by_one.take() == seen_by_other.take()
    told = [
        (one.process, got.at, 0, turn.effects, turn.note, turn.seq, got.sender, got.frame)
        for turn in seen_by_other.turns
        if isinstance(got := turn.happened, Receive)
    ]
    assert seen_by_one.received == told
    assert one.released_seq == seen_by_other.turns[-1].seq_last
    assert len(seen_by_one.received) == (3 if transport is Transport.FIFO else 4)
    assert one.received == other.received
    assert list(one.take_fresh()) == list(other.take_fresh()) == [channel]
    assert one.snapshot() == other.snapshot()


def test_what_was_taken_at_once_is_held_and_what_waits_after_it_is_not() -> None:
    held, _ = prompt_host()
    frame = frame_of("b.1")
    held.receive_at_once(TO_B, 1, 1, frame)
    held.take(Receive(2, TO_B.peer, Transport.RELIABLE, 2, frame))
    assert held.received[TO_B].frames == 1
    held.durable(held.next_index)
    assert held.received[TO_B].frames == 2


def test_a_turn_is_ended_only_where_somebody_waits_for_its_end() -> None:
    disk = Disk()
    held, _ = host(disk=disk)
    held.end_turn(1)
    held.take(request(0))
    held.end_turn(2)
    held.end_turn(3)
    assert [type(decode_input(bytes(record))) for record in disk.records] == [Submit, TurnEnd]


def test_an_input_for_which_there_is_no_room_has_not_happened() -> None:
    disk = Disk(room=1)
    held, seen = host(disk=disk)
    held.take(Begin(0))
    before = held.process.snapshot()
    with pytest.raises(JournalFull):
        held.take(Multicast(1, AB, (b"x",)))
    assert held.process.snapshot() == before
    assert held.held == 1
    held.durable(disk.next_index)
    assert [what[0] for what in seen.take()] == ["monitor"]


# A crash in the middle ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said_by", [Sayer, Shouter])
@pytest.mark.parametrize("effects", range(8))
def test_a_crash_in_the_middle_keeps_exactly_what_went_out(effects: int, said_by: type[OrderingProtocol]) -> None:
    """A send to three processes ends after the first of them: the trace says so, and the outboxes do."""
    held, seen = host(disk=Disk(), kind=said_by)
    held.take(Begin(0))
    held.durable(1)
    seen.take()
    held.take(Multicast(1, AB, (b"x",)))
    seen.left = effects
    if effects < 6:  # the multicast, three copies, a timer, its own delivery
        with pytest.raises(Stop):
            held.durable(2)
    else:
        held.durable(2)
    released = seen.take()
    assert len(released) == min(effects, 6)
    turn = seen.turns[-1]
    copies = [peer for effect in turn.effects if isinstance(effect, Send) for peer in effect.to]
    assert copies == [what[1] for what in released if what[0] == "send"]
    assert any(isinstance(effect, Log) for effect in turn.effects) == (effects >= 6)
    assert turn.seq_last == turn.seq - 1 + (effects > 0) + (effects > 1) + (effects > 5)
    numbered = copies if said_by.transport is not Transport.DATAGRAM else []
    assert [e.numbers for e in turn.effects if isinstance(e, Send) and e.numbers] == (
        [(1,) * len(numbered)] if numbered else []
    )
    assert {channel.peer: box.sent for channel, box in held.outboxes.items()} == dict.fromkeys(numbered, 1)


# Channels -----------------------------------------------------------------------------------------------------------


def frame_of(peer: str) -> Buffers:
    sender, _ = host(peer)
    effects = sender.process.step(Multicast(0, AB, (b"z",)))
    (send,) = [effect for effect in effects if isinstance(effect, Send)]
    return send.frame


def test_what_is_received_may_be_acknowledged_only_when_it_is_durable() -> None:
    held, _ = host(disk=Disk())
    held.take(Receive(1, TO_B.peer, Transport.RELIABLE, 1, frame_of("b.1")))
    held.take(Receive(1, TO_B.peer, Transport.RELIABLE, 3, frame_of("b.1")))
    assert list(held.take_fresh()) == []
    held.durable(1)
    first = held.received[TO_B]
    assert first.frames == 1
    assert list(held.take_fresh()) == [TO_B]
    assert list(held.take_fresh()) == []
    held.durable(2)
    assert held.received == {TO_B: first}, "the second frame has yet to come"


def test_a_frame_is_new_once_and_a_fifo_channel_has_no_gaps() -> None:
    held, _ = host()
    fifo = ChannelId(TO_B.peer, Transport.FIFO)
    assert held.is_new(TO_B, 3), "a reliable channel has no order"
    assert held.is_new(fifo, 1)
    with pytest.raises(BadFrame, match=r"Frame 2 of b\.1 came after frame 0"):
        held.is_new(fifo, 2)
    held.take(Receive(1, TO_B.peer, Transport.RELIABLE, 3, frame_of("b.1")))
    assert not held.is_new(TO_B, 3)


def test_frames_are_kept_until_their_receiver_has_acknowledged_them() -> None:
    held, _ = host(disk=Disk())
    for at in range(3):
        held.take(Multicast(at, AB, (b"x",)))
    held.durable(3)
    box = held.outbox(TO_B)
    assert [number for number, _ in box.frames_from(1)] == [1, 2, 3]
    box.acknowledge(2)
    assert [number for number, _ in box.frames_from(1)] == [3]
    assert [number for number, _ in held.outbox(ChannelId(ProcessId("a.2"), Transport.RELIABLE)).frames_from(1)] == [
        1,
        2,
        3,
    ]


def test_a_process_that_has_forgotten_something_refuses_to_run() -> None:
    held, _ = host(disk=Disk())
    held.take(Multicast(0, AB, (b"x",)))
    held.take(Receive(1, TO_B.peer, Transport.RELIABLE, 1, frame_of("b.1")))
    held.durable(2)
    held.check_peer(TO_B, held=sent_by(held, 1), forgotten=1)
    with pytest.raises(JournalBehind, match=r"b\.1 holds 2 frames of a\.1, whose journal knows of only 1"):
        held.check_peer(TO_B, held=Prefix(2, 0))
    with pytest.raises(JournalBehind, match=r"a\.1 once acknowledged 2 frames of b\.1, but its journal holds only 1"):
        held.check_peer(TO_B, forgotten=2)


def sent_by(host: Host, frames: int) -> Prefix:
    """What a peer says that holds so many frames of this process."""
    digest = host.outbox(TO_B).digest_up_to(frames)
    assert digest is not None
    return Prefix(frames, digest)


def test_an_old_copy_that_went_on_and_has_said_more_than_it_forgot_is_uncovered_too() -> None:
    """Numbers alone would not tell; nor would the last frame, which is the same in both lives."""

    def after(*payloads: bytes) -> Host:
        lived, _ = host(disk=Disk())
        for at, payload in enumerate(payloads):
            lived.take(Multicast(at, AB, (payload,)))
        lived.durable(len(payloads))
        return lived

    known = sent_by(after(b"1", b"2", b"3"), 3)
    after(b"1", b"2", b"3", b"4").check_peer(TO_B, held=known)
    copy = after(b"1", b"other", b"3", b"4", b"5")
    with pytest.raises(JournalBehind, match=r"b\.1 holds 3 frames of a\.1, which has sent others"):
        copy.check_peer(TO_B, held=known)
    copy.outbox(TO_B).let_go(4)  # they are on disk
    with pytest.raises(JournalBehind, match="sent others"):
        copy.check_peer(TO_B, held=known, digest_on_disk=lambda number: known.digest ^ number)
    copy.check_peer(TO_B, held=known, digest_on_disk=lambda number: known.digest)
    copy.outbox(TO_B).acknowledge(3)
    copy.check_peer(TO_B, held=known)  # it was acknowledged to this journal


def test_digests_outlive_restarts() -> None:
    disk = Disk()
    held, _ = host(disk=disk)
    for at in range(4):
        held.take(Multicast(at, AB, (bytes([at]),)))
    for number in (1, 3, 4):
        held.take(Receive(5, TO_B.peer, Transport.RELIABLE, number, frame_of("b.1")))
    held.durable(disk.next_index)
    held.outbox(TO_B).let_go(2)
    again, _ = host(disk=disk)
    again.restore(held.snapshot())
    replayed, _ = host(disk=disk)
    replayed.replay((index, bytes(record)) for index, record in enumerate(disk.records))
    for lived in (again, replayed):
        assert sent_by(lived, 3) == sent_by(held, 3)
        inbox = lived.process.inbox(TO_B)
        assert inbox.prefix == held.received[TO_B]
        inbox.take_frame(2, frame_of("b.1"))
        assert (inbox.received, inbox.early_checksums) == (4, {})
    assert again.process.inbox(TO_B).prefix == replayed.process.inbox(TO_B).prefix


# Snapshot and replay ------------------------------------------------------------------------------------------------


def test_a_snapshot_has_the_frames_that_are_not_acknowledged_each_once() -> None:
    disk = Disk()
    held, _ = host(disk=disk)
    for at in range(3):
        held.take(Multicast(at, AB, (bytes(5000),)))
    with pytest.raises(AssertionError, match="only what was released"):
        held.snapshot()
    held.durable(3)
    held.end_turn(3)
    held.durable(4)
    held.outbox(TO_B).acknowledge(2)
    held.outbox(ChannelId(ProcessId("a.2"), Transport.RELIABLE)).let_go(1)  # it is on disk
    state = held.snapshot()
    assert len(state) < 4 * 5000, "three receivers share a frame"
    again, seen = host(disk=disk)
    again.restore(state)
    again.go_on()
    for channel, box in held.outboxes.items():
        copy = again.outboxes[channel]
        assert list(copy.frames_from(1)) == list(box.frames_from(1))
        assert (copy.sent, copy.first_kept, copy.size) == (box.sent, box.first_kept, box.size)
    assert seen.take() == [("set", 1002), ("monitor",)]
    with pytest.raises(UsageError, match="another version"):
        host()[0].restore(b"\x91\x01")


def test_a_replay_makes_again_what_was_not_acknowledged_and_sends_nothing_by_itself() -> None:
    disk = Disk()
    held, _ = host(disk=disk)
    for happened in (*EVERY_KIND, Receive(3, TO_B.peer, Transport.RELIABLE, 1, frame_of("b.1"))):
        held.take(happened)
    held.durable(disk.next_index)
    again, seen = host(disk=disk)
    again.replay((index, bytes(record)) for index, record in enumerate(disk.records))
    assert [what[0] for what in seen.take()] == ["event", "event", "event"]
    again.go_on()
    assert seen.take() == [("set", 1002), ("monitor", "a.2", "a.3", "b.1")]
    assert again.received == held.received
    assert again.received[TO_B].frames == 1
    assert {channel: list(box.frames_from(1)) for channel, box in again.outboxes.items()} == {
        channel: list(box.frames_from(1)) for channel, box in held.outboxes.items()
    }
