"""The fixed sequencer (slides.txt, "Sequencer"): one member numbers the messages of its group.

L1-L12 are the lines of docs/protocols/sequencer.md, C1-C4 what causal order across groups adds. Where a number must be
known to be everywhere, or frames get lost, services/stability.py sees to it; where the sequencer is gone for good,
services/takeover.py.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from antiphon.core import (
    Assumptions,
    Declaration,
    Detector,
    Failures,
    FaultModel,
    GroupId,
    Message,
    MessageId,
    ProcessId,
    Promise,
    Table,
    Transport,
    Wire,
)
from antiphon.core.errors import UsageError
from antiphon.services.stability import Ordered, Taken
from antiphon.services.takeover import Takeover


class Number(Wire, frozen=True, tag=1):
    """Sender to sequencer, or to all: number this, the ``index``-th message that its origin sends to the group."""

    index: int
    message: Message


class Numbered(Wire, frozen=True, tag=3):
    """Sequencer to the group: like Ordered, but without the message, which its sender has sent to all."""

    epoch: int
    number: int
    index: int
    id: MessageId


class SequencerOptions(msgspec.Struct, frozen=True):
    variant: Literal["relay", "broadcast"] = "relay"  # who sends a message to the group: the sequencer, or its sender
    numbering: Literal["plain", "uniform"] = "plain"  # deliver what is here, or only what every member has
    takeover: bool = False  # whether the next member goes on when the sequencer is gone for good
    transport: Literal["reliable", "datagram"] = "reliable"
    causal: bool = False  # whether causal order is kept across groups, too


class Sequencer(Takeover):
    declaration = Declaration(
        name="sequencer",
        title="Fixed sequencer",
        source="lecture slides, Totally ordered multicast 2 and 3",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY, one_group=True),
        promises=(Promise.VALIDITY, Promise.INTEGRITY, Promise.FIFO),
    )
    Options = SequencerOptions
    options: SequencerOptions
    added_options = ("causal",)

    transport = Transport.FIFO

    sent: Table[GroupId, int]  # at a sender: how many messages it has sent to a group
    requests: dict[ProcessId, dict[int, Message]]  # at a member, by origin and index: messages without a number
    announced: Table[int, Numbered]  # numbers whose messages may not be here
    delivered: int
    # At a sender, with causal order
    waiting: list[Message]  # until other groups have answered its earlier messages
    answered_by: Table[GroupId, int]  # up to which index a group has answered its messages

    def initialise(self) -> None:
        self.transport = Transport.DATAGRAM if self.options.transport == "datagram" else Transport.FIFO
        super().initialise()
        self.sent, self.requests, self.announced = {}, {}, {}
        self.delivered = 0
        self.waiting, self.answered_by = [], {}

    @classmethod
    def assumes(cls, options: Any) -> Assumptions:
        if options.takeover:
            return Assumptions(failures=Failures.ALL_BUT_ONE, detector=Detector.PERFECT, one_group=True)
        return cls.declaration.assumes

    @classmethod
    def own_promises(cls, options: Any) -> tuple[Promise, ...]:
        promised = super().own_promises(options)
        if options.causal:
            promised = (*promised, Promise.CAUSAL)
        if options.takeover and options.numbering == "plain":  # contamination: see the page
            return (*promised, Promise.AGREEMENT)
        promised = (*promised, Promise.UNIFORM_AGREEMENT, Promise.TOTAL_ORDER, Promise.ACYCLIC_ORDER)
        return promised if options.takeover else (*promised, Promise.GENUINENESS)

    @classmethod
    def check(cls, options: Any, model: FaultModel) -> None:
        if options.causal and options.takeover and options.numbering == "plain" and model.permanent:
            raise UsageError(
                "Where a process never returns, the sequencer keeps causal order with numbering=uniform only: "
                "what the dead delivered under plain numbering may get another number."
            )

    def validate(self, message: Wire) -> None:
        super().validate(message)
        if isinstance(message, Number):
            self.check_numbers(message.index)
            self.check_group(message.message)
        elif isinstance(message, Numbered):
            self.check_numbers(message.number, message.index)

    # From the sender to the sequencer -------------------------------------------------------------------------------

    def multicast(self, m: Message) -> None:
        if self.options.causal:
            self.waiting.append(m)  # C1
            self.request_waiting()
        else:
            self.request(m)

    def request(self, m: Message) -> None:  # L1
        (group,) = m.destinations
        self.sent[group] = index = self.sent.get(group, 0) + 1
        if self.options.variant == "broadcast" and self.sequencer(group) != self.me:
            self.send(self.topology.members(group), Number(index, m))  # L2
        else:
            self.ask_for_number(group, index, m)  # L3
        self.keep(group, index, m)

    def ask_for_number(self, group: GroupId, index: int, m: Message) -> None:
        self.send(self.sequencer(group), Number(index, m))

    def sequencer(self, group: GroupId) -> ProcessId:
        members = self.topology.members(group)
        left = [p for p in members[self.epoch if members == self.members else 0 :] if p not in self.suspects]
        return left[0] if left else members[-1]

    def on_number(self, sender: ProcessId, number: Number) -> None:  # L4
        origin = number.message.id.origin
        if number.index > self.counted.get(origin, 0):
            self.requests.setdefault(origin, {})[number.index] = number.message  # L5
            if self.leading:
                self.number_all_of(origin)
            self.advance()
        self.answer(origin, number.index)

    # Causal order across groups -------------------------------------------------------------------------------------
    #
    # When a message has a number, so has all that precedes it: what its sender sent to the same group by L6, what it
    # sent to others because it waited for that, and what it delivered anyway. Within a group, numbers are the order.

    def request_waiting(self) -> None:
        while self.waiting and not self.awaited():  # C2
            self.request(self.waiting.pop(0))

    def awaited(self) -> list[GroupId]:
        """The groups that have not answered all that was sent to them before the next message, which is for another."""
        (following,) = self.waiting[0].destinations
        return [g for g in self.topology.groups if g != following and self.answered_by.get(g, 0) < self.sent.get(g, 0)]

    def answers(self) -> bool:
        return self.options.causal or super().answers()  # C3

    def on_taken(self, sender: ProcessId, taken: Taken) -> None:
        super().on_taken(sender, taken)
        group = self.topology.group_of.get(sender)
        if self.options.causal and group is not None:
            self.answered_by[group] = max(taken.index, self.answered_by.get(group, 0))  # C4
            self.request_waiting()

    # From the sequencer to the group --------------------------------------------------------------------------------

    def number_all_of(self, origin: ProcessId) -> None:
        """A sender's messages in the order in which it sent them: one that comes early waits for its predecessor."""
        requests = self.requests[origin]
        while (m := requests.get(index := self.counted.get(origin, 0) + 1)) is not None:  # L6
            self.counted[origin] = index
            self.numbered += 1  # L7
            if self.options.variant == "broadcast" and origin != self.me:
                self.send(self.remaining(), Numbered(self.epoch, self.numbered, index, m.id))  # L8
            else:
                self.send(self.remaining(), Ordered(self.epoch, self.numbered, index, m))  # L9
            self.repeat_later()

    def number_all(self) -> None:
        for origin in list(self.requests):
            self.number_all_of(origin)

    def on_ordered(self, sender: ProcessId, ordered: Ordered) -> None:  # L10
        if ordered.epoch == self.epoch and ordered.number > self.received:
            self.held[ordered.number] = ordered
            self.newest = max(self.newest, ordered.number)
            self.advance()

    def on_numbered(self, sender: ProcessId, numbered: Numbered) -> None:  # L11
        if numbered.epoch == self.epoch and numbered.number > self.received:
            self.announced[numbered.number] = numbered
            self.newest = max(self.newest, numbered.number)
            self.advance()

    def advance(self) -> None:
        before = self.received
        while (following := self.following()) is not None:
            self.received += 1
            self.held[self.received] = following
            self.count(following.message.id.origin, following.index)
            self.announced.pop(self.received, None)
        if self.received > before:
            self.received_more()
        self.look_for_missing()
        self.deliver_all()

    def following(self) -> Ordered | None:
        """The message after the last one received, if it is here with its number."""
        number = self.received + 1
        if number in self.held or number not in self.announced:
            return self.held.get(number)
        announced = self.announced[number]
        m = self.requests.get(announced.id.origin, {}).get(announced.index)
        return None if m is None else Ordered(announced.epoch, number, announced.index, m)

    def count(self, origin: ProcessId, index: int) -> None:
        """The message has a number here, and is no request any more."""
        self.counted[origin] = max(index, self.counted.get(origin, 0))
        requests = self.requests.get(origin, {})
        requests.pop(index, None)
        if not requests:
            self.requests.pop(origin, None)

    def deliver_all(self) -> None:
        """Stable is what every member has, as services/stability.py finds out, with uniform numbering for this line."""
        while self.delivered < (self.stable if self.uniform else self.received):  # L12
            self.delivered += 1
            self.deliver(self.held[self.delivered].message, (self.delivered, self.group))
            if not self.acknowledges:  # else somebody may ask for it until it is stable
                del self.held[self.delivered]

    def enter(self, epoch: int) -> None:
        super().enter(epoch)
        self.announced = {}  # they, too, were numbers of a sequencer that is gone

    # What the host asks ---------------------------------------------------------------------------------------------

    def pending(self) -> int:
        unnumbered = sum(len(requests) for requests in self.requests.values())
        return len(self.waiting) + unnumbered + sum(number > self.delivered for number in self.held)

    def waits_for(self) -> tuple[ProcessId, ...]:
        if not self.pending():
            return ()
        if self.waiting:
            return tuple(self.sequencer(group) for group in self.awaited())
        if self.leading:
            return tuple(p for p in self.remaining() if self.acknowledged.get(p, 0) < self.numbered)
        return (self.members[self.epoch],)
