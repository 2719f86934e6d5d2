"""Multicast in numbered streams, over reliable channels or datagrams: what is missing has a number, and is fetched.

N1-N17 are the lines of docs/protocols/numbered.md. What one sender addresses to one group is a stream, numbered 1, 2,
3, ... A member of the group sees every number of its stream, so it knows which messages it misses, and of whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from typing import ClassVar, Literal

import msgspec

from antiphon.core import Component, GroupId, Message, ProcessId, Table, Timer, Transport, Wire
from antiphon.core.channel import Inbox
from antiphon.core.errors import BadFrame

TransportKind = Literal["reliable", "datagram"]
PastCounts = dict[GroupId, dict[ProcessId, int]]  # for each group: how many messages of each sender to it

MISSING_MAX = 64  # numbers named in one answer; when these have come, the next answer names more
OUTSIDE_MAX = 4096  # senders outside all groups in the past of a message, for one group


class Copy(Wire, frozen=True, tag=1):
    """Sender to addressees: m is the ``numbers[i]``-th message that I address to its i-th destination group."""

    message: Message
    numbers: tuple[int, ...]
    past: PastCounts  # what precedes m, for those who keep causal order


class Have(Wire, frozen=True, tag=2):
    """Addressee to sender: of your stream I have all up to ``received``; beyond it I miss these, which exist."""

    received: int
    missing: list[int]


class Answer(Timer, frozen=True):
    """It is time to tell a sender what of its stream is here."""

    sender: ProcessId


class Repeat(Timer, frozen=True):
    """An addressee should have answered by now."""

    receiver: ProcessId


class Stream(msgspec.Struct):
    """What one sender addresses to the group of this process."""

    inbox: Inbox = msgspec.field(default_factory=Inbox)
    known: int = 0  # the highest number that exists, as far as anybody said
    answered: int = 0  # what was known when the answer that is under way was begun; 0 if none is

    def missing_up_to(self, last: int) -> Iterator[int]:
        return (n for n in range(self.inbox.received + 1, last + 1) if n not in self.inbox.early)

    def missing_count(self) -> int:
        return self.known - self.inbox.received - len(self.inbox.early)


class NumberedOptions(msgspec.Struct, frozen=True):
    transport: TransportKind = "reliable"


class NumberedMulticast(Component):
    """Every addressee gets each message once, in any order. ``arrived`` gets the sender, the number, and the copy.

    Over datagrams a sender keeps a message until it is stable, that is, until everybody addressed has answered that it
    is there. Repeating is the sender's business alone: an answer that gets lost is answered for by the next one.
    """

    Options = NumberedOptions
    options: NumberedOptions
    arrived: Callable[[ProcessId, int, Copy], None]

    sent: Table[GroupId, int]  # the newest number of each stream of this process
    kept: Table[GroupId, dict[int, Copy]]  # what is not stable in a group, in the order of the numbers
    acknowledged: Table[ProcessId, int]  # how much of its stream each addressee has, without a gap
    silent: Table[ProcessId, int]  # how often something was repeated since an addressee answered
    streams: Table[ProcessId, Stream]

    ANSWER_NS: ClassVar[int] = 5_000_000  # one answer for all that comes meanwhile, also what was only overtaken
    REPEAT_NS: ClassVar[int] = 20_000_000
    DOUBLINGS_MAX: ClassVar[int] = 6

    def initialise(self) -> None:
        self.transport = Transport.DATAGRAM if self.options.transport == "datagram" else Transport.RELIABLE
        self.sent, self.kept, self.acknowledged, self.silent, self.streams = {}, {}, {}, {}, {}

    def validate(self, message: Wire) -> None:
        if isinstance(message, Have):
            if message.received < 0 or len(message.missing) > MISSING_MAX or min(message.missing, default=1) < 1:
                raise BadFrame(f"An answer names at most {MISSING_MAX} numbers, from 1 on.")
            return
        assert isinstance(message, Copy)
        destinations = message.message.destinations
        if self.topology.group_of.get(self.me) not in destinations:
            raise BadFrame(f"A message for {', '.join(destinations)} is not for {self.me}.")
        if len(message.numbers) != len(destinations) or min(message.numbers) < 1:
            raise BadFrame("A copy has a number from 1 on for each destination group.")
        senders_max = len(self.topology.processes) + OUTSIDE_MAX
        for group, vector in message.past.items():
            if group not in self.topology.groups or len(vector) > senders_max or min(vector.values(), default=1) < 1:
                raise BadFrame(
                    f"What precedes a message is for groups, at most {senders_max} senders to each, from 1 on."
                )

    # The sender -----------------------------------------------------------------------------------------------------

    def multicast(self, m: Message, past: PastCounts) -> Copy:  # N1
        for group in m.destinations:
            self.sent[group] = self.sent.get(group, 0) + 1  # N2
        copy = Copy(m, tuple(self.sent[group] for group in m.destinations), past)
        if self.transport is Transport.DATAGRAM:
            self.keep(copy)  # N4
        self.send([p for p in self.topology.addressees(m.destinations) if p != self.me], copy)  # N3
        return copy

    def others(self, group: GroupId) -> list[ProcessId]:
        return [p for p in self.topology.members(group) if p != self.me]

    def keep(self, copy: Copy) -> None:
        for group, number in zip(copy.message.destinations, copy.numbers, strict=True):
            receivers = self.others(group)
            if receivers:
                self.kept.setdefault(group, {})[number] = copy
            for receiver in receivers:
                if self.acknowledged.get(receiver, 0) == number - 1:  # else it is being waited for already
                    self.set_timer(Repeat(receiver), self.REPEAT_NS)

    def on_repeat(self, timer: Repeat) -> None:  # N14
        receiver = timer.receiver
        group = self.topology.group_of[receiver]
        self.silent[receiver] = silent = self.silent.get(receiver, 0) + 1
        self.send(receiver, self.kept[group][self.sent[group]])  # N15
        self.set_timer(Repeat(receiver), self.REPEAT_NS << min(silent, self.DOUBLINGS_MAX))  # N16

    def on_have(self, sender: ProcessId, have: Have) -> None:  # N10
        group = self.topology.group_of.get(sender)
        if group not in self.sent or self.transport is not Transport.DATAGRAM:
            return  # no honest process answers what was never sent, or what a channel resends
        sent = self.sent[group]
        held = max(self.acknowledged.get(sender, 0), min(have.received, sent))
        self.acknowledged[sender] = held
        self.silent.pop(sender, None)
        kept = self.kept.get(group, {})
        for number in have.missing:  # N11
            if number in kept:
                self.send(sender, kept[number])
        self.forget(group, kept)
        if held < sent:
            self.set_timer(Repeat(sender), self.REPEAT_NS)
        else:
            self.cancel_timer(Repeat(sender))  # N13

    def forget(self, group: GroupId, kept: dict[int, Copy]) -> None:
        stable = min(self.acknowledged.get(p, 0) for p in self.others(group))
        for number in list(takewhile(lambda n: n <= stable, kept)):
            del kept[number]  # N12

    def unstable(self) -> int:
        """How many of its own messages this process keeps, counted once for each group that may miss them."""
        return sum(len(kept) for kept in self.kept.values())

    # The addressee --------------------------------------------------------------------------------------------------

    def on_copy(self, sender: ProcessId, copy: Copy) -> None:  # N5
        number = copy.numbers[copy.message.destinations.index(self.group)]
        stream = self.streams.setdefault(sender, Stream())
        stream.known = max(stream.known, number)
        self.answer_soon(sender, stream)  # N8
        if stream.inbox.is_new(number):  # N6
            stream.inbox.take(number)
            self.arrived(sender, number, copy)  # N7

    def expect(self, sender: ProcessId, number: int) -> None:
        """Somebody says that the sender's stream has come so far."""
        stream = self.streams.get(sender)
        if stream is None:
            stream = self.streams[sender] = Stream()
        if number > stream.known:
            stream.known = number
            if number > stream.inbox.received and self.is_reachable(sender, stream):
                self.answer_soon(sender, stream)  # N17

    def is_reachable(self, sender: ProcessId, stream: Stream) -> bool:
        """Somebody of whom others tell may not exist: only a member does, or one from whom something came."""
        return sender in self.topology.index_of or stream.inbox.received > 0 or bool(stream.inbox.early)

    def answer_soon(self, sender: ProcessId, stream: Stream) -> None:
        if self.transport is Transport.DATAGRAM and not stream.answered:
            stream.answered = stream.known
            self.set_timer(Answer(sender), self.ANSWER_NS)

    def on_answer(self, timer: Answer) -> None:
        """What was missed when the answer was begun has had its time. What is missed since may only be overtaken."""
        stream = self.streams[timer.sender]
        answered, stream.answered = stream.answered, 0
        missing = list(islice(stream.missing_up_to(answered), MISSING_MAX))
        self.send(timer.sender, Have(stream.inbox.received, missing))  # N9
        if answered < stream.known and any(stream.missing_up_to(stream.known)):
            self.answer_soon(timer.sender, stream)

    def missing(self) -> int:
        """How many messages exist for this process that have not come."""
        return sum(stream.missing_count() for stream in self.streams.values())

    def pending(self) -> int:
        """How many messages have yet to come, here or, as far as this process must see to it, elsewhere."""
        return self.missing() + self.unstable()

    def missed_senders(self) -> tuple[ProcessId, ...]:
        """Who sent these."""
        return tuple(sorted(sender for sender, stream in self.streams.items() if stream.missing_count()))
