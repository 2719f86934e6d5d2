"""The fixed sequencer (slides.txt, "Sequencer"): one member numbers the messages of its group.

L1-L12 are the lines of docs/protocols/sequencer.md, A1-A8 what is added where a number must be known to be everywhere,
R1-R5 where frames get lost, T1-T8 where another member takes over from a sequencer that is gone for good.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from antiphon.core import (
    Assumptions,
    Declaration,
    Detector,
    Failures,
    GroupId,
    Message,
    MessageId,
    OrderingProtocol,
    ProcessId,
    Promise,
    Table,
    Timer,
    Transport,
    Wire,
)
from antiphon.core.errors import BadFrame


class Number(Wire, frozen=True, tag=1):
    """Sender to sequencer, or to all: number this, the ``index``-th message that its origin sends to the group."""

    index: int
    message: Message


class Ordered(Wire, frozen=True, tag=2):
    """Sequencer to the group: this is message ``number``. ``epoch``: who numbers, by its place in the group."""

    epoch: int
    number: int
    index: int
    message: Message


class Numbered(Wire, frozen=True, tag=3):
    """The same without the message, which its sender has sent to all."""

    epoch: int
    number: int
    index: int
    id: MessageId


class Have(Wire, frozen=True, tag=4):
    """Member to sequencer: I hold every message up to this number."""

    epoch: int
    received: int


class Stable(Wire, frozen=True, tag=5):
    """Sequencer to the group: every member that is left holds everything up to ``stable``; ``newest`` is the newest."""

    epoch: int
    stable: int
    newest: int


class Taken(Wire, frozen=True, tag=6):
    """Sequencer to a sender: your messages up to this index cannot get lost any more."""

    index: int


class Fetch(Wire, frozen=True, tag=7):
    """Member to sequencer: I hold every message up to this number, and miss the next."""

    epoch: int
    received: int


class Collect(Wire, frozen=True, tag=8):
    """The next sequencer to the group: I take over, and hold everything up to ``received``. What do you hold?"""

    epoch: int
    received: int


class Report(Wire, frozen=True, tag=9):
    """Member to the next sequencer: I hold everything up to ``received``, and here is what you miss of it."""

    epoch: int
    received: int
    more: list[Ordered]


class Again(Timer, frozen=True):
    """Something that this process sent, or should have got, seems to be lost."""


class SequencerOptions(msgspec.Struct, frozen=True):
    variant: Literal["relay", "broadcast"] = "relay"  # who sends a message to the group: the sequencer, or its sender
    numbering: Literal["plain", "uniform"] = "plain"  # deliver what is here, or only what every member has
    takeover: bool = False  # whether the next member goes on when the sequencer is gone for good
    transport: Literal["reliable", "datagram"] = "reliable"


class Sequencer(OrderingProtocol):
    declaration = Declaration(
        name="sequencer",
        title="Fixed sequencer",
        source="lecture slides, Totally ordered multicast 2 and 3",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY, one_group=True),
        promises=(Promise.VALIDITY, Promise.INTEGRITY, Promise.FIFO),
    )
    Options = SequencerOptions
    options: SequencerOptions

    transport = Transport.FIFO
    AGAIN_NS, AGAIN_NS_MAX = 20_000_000, 1_000_000_000  # before the first repeat, and between later ones at most
    REPEATED_MAX = 32  # messages that are sent again at a time

    # At a sender
    sent: Table[GroupId, int]  # how many messages it has sent to a group
    outbox: dict[GroupId, dict[int, Message]]  # those of them that may still get lost, by index
    # At a member
    epoch: int  # the place of the sequencer in the group: all before it are gone
    requests: dict[ProcessId, dict[int, Message]]  # by origin and index: messages without a number
    taken: dict[ProcessId, int]  # by origin: up to this index its messages have numbers
    safe: dict[ProcessId, int]  # and up to this one, every member that is left holds them
    newest: int  # the largest number heard of
    received: int  # every message up to this number is or was held
    stable: int  # and up to this one, by every member that is left
    delivered: int
    held: Table[int, Ordered]  # the hold-back queue and, where somebody may ask for them, the messages before it
    announced: Table[int, Numbered]  # numbers whose messages may not be here
    # At the sequencer
    leading: bool
    numbered: int  # the timestamp of the newest message
    acknowledged: Table[ProcessId, int]  # up to which number each member holds every message
    # Everywhere
    again_ns: int  # how long to wait between two repeats at present; 0: nothing is to be repeated
    moved: bool  # whether anything has come that was waited for, since the last repeat

    def initialise(self) -> None:
        self.transport = Transport.DATAGRAM if self.options.transport == "datagram" else Transport.FIFO
        self.sent, self.outbox = {}, {}
        self.requests, self.taken, self.safe, self.held, self.announced = {}, {}, {}, {}, {}
        self.epoch = self.newest = self.received = self.stable = self.delivered = self.numbered = 0
        self.leading = self.members[:1] == (self.me,)
        self.acknowledged = dict.fromkeys(self.members, 0) if self.leading else {}
        self.again_ns, self.moved = 0, False

    @property
    def lossy(self) -> bool:
        return self.transport is Transport.DATAGRAM

    @property
    def uniform(self) -> bool:
        return self.options.numbering == "uniform"

    @property
    def keeps(self) -> bool:
        """Whether senders keep what may get lost."""
        return self.lossy or self.options.takeover

    @property
    def acknowledges(self) -> bool:
        """Whether the sequencer finds out what all members have."""
        return self.keeps or self.uniform

    @classmethod
    def assumes(cls, options: Any) -> Assumptions:
        if options.takeover:
            return Assumptions(failures=Failures.ALL_BUT_ONE, detector=Detector.PERFECT, one_group=True)
        return cls.declaration.assumes

    @classmethod
    def own_promises(cls, options: Any) -> tuple[Promise, ...]:
        promised = super().own_promises(options)
        if options.takeover and options.numbering == "plain":  # contamination: see the page
            return (*promised, Promise.AGREEMENT)
        promised = (*promised, Promise.UNIFORM_AGREEMENT, Promise.TOTAL_ORDER, Promise.ACYCLIC_ORDER)
        return promised if options.takeover else (*promised, Promise.GENUINENESS)

    def validate(self, message: Wire) -> None:
        if isinstance(message, Taken):
            if message.index < 1:
                raise BadFrame("The messages of a sender count from 1.")
            return
        if not self.members:
            raise BadFrame(f"{self.me} is in no group, and orders nothing.")
        if not 0 <= getattr(message, "epoch", 0) < len(self.members):
            raise BadFrame("An epoch is the place of a member in its group.")
        if min(getattr(message, name, 0) for name in ("received", "stable", "newest")) < 0:
            raise BadFrame("Messages are numbered from 1.")
        for each in (*getattr(message, "more", ()), message):
            if isinstance(each, Number | Ordered | Numbered) and min(each.index, getattr(each, "number", 1)) < 1:
                raise BadFrame("Messages are numbered from 1.")
            if isinstance(each, Number | Ordered) and each.message.destinations != (self.group,):
                raise BadFrame(f"A message for other groups is not for {self.me}.")
            if isinstance(message, Report) and isinstance(each, Ordered):
                self.process.check_body(each.message)

    def begin(self) -> None:
        if self.options.takeover:
            self.monitor(self.topology.processes)  # T1

    # From the sender to the group -----------------------------------------------------------------------------------

    def multicast(self, m: Message) -> None:  # L1
        (group,) = m.destinations
        self.sent[group] = index = self.sent.get(group, 0) + 1
        sequencer = self.sequencer(group)  # L2
        to_all = self.options.variant == "broadcast" and sequencer != self.me
        self.send(self.topology.members(group) if to_all else sequencer, Number(index, m))  # L3
        if self.keeps:
            self.outbox.setdefault(group, {})[index] = m
            self.repeat_later()

    def sequencer(self, group: GroupId) -> ProcessId:
        """The first member that is left, as far as this process knows."""
        members = self.topology.members(group)
        left = [p for p in members[self.epoch if members == self.members else 0 :] if p not in self.suspects]
        return left[0] if left else members[-1]

    def on_number(self, sender: ProcessId, number: Number) -> None:  # L4
        origin = number.message.id.origin
        if number.index > self.taken.get(origin, 0):
            self.requests.setdefault(origin, {})[number.index] = number.message  # L5
            if self.leading:
                self.number_all_of(origin)
            self.advance()
        if self.leading and self.keeps and number.index <= (known := self.known(origin)):
            self.send(origin, Taken(known))  # R1

    def number_all_of(self, origin: ProcessId) -> None:
        """A sender's messages in the order in which it sent them: one that comes early waits for its predecessor."""
        requests = self.requests[origin]
        while (m := requests.get(index := self.taken.get(origin, 0) + 1)) is not None:  # L6
            self.taken[origin] = index
            self.numbered += 1  # L7
            if self.options.variant == "broadcast" and origin != self.me:
                self.send(self.remaining(), Numbered(self.epoch, self.numbered, index, m.id))  # L8
            else:
                self.send(self.remaining(), Ordered(self.epoch, self.numbered, index, m))  # L9
            self.repeat_later()

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
        """Go on as far as there is no gap."""
        before = self.received
        while (following := self.following()) is not None:
            self.received += 1
            self.held[self.received] = following
            origin, index = following.message.id.origin, following.index
            self.taken[origin] = max(index, self.taken.get(origin, 0))
            self.announced.pop(self.received, None)
            requests = self.requests.get(origin, {})
            requests.pop(index, None)
            if not requests:
                self.requests.pop(origin, None)
        if self.received > before:
            self.moved = True
            if self.acknowledges:
                self.at_turn_end()
        if self.is_missing():
            self.repeat_later()
        self.deliver_all()

    def following(self) -> Ordered | None:
        """The message after the last one received, if it is here with its number."""
        number = self.received + 1
        if number in self.held or number not in self.announced:
            return self.held.get(number)
        announced = self.announced[number]
        m = self.requests.get(announced.id.origin, {}).get(announced.index)
        return None if m is None else Ordered(announced.epoch, number, announced.index, m)

    def deliver_all(self) -> None:
        while self.delivered < (self.stable if self.uniform else self.received):  # L12
            self.delivered += 1
            self.deliver(self.held[self.delivered].message, (self.delivered, self.group))
            if not self.acknowledges:
                del self.held[self.delivered]

    # What every member has ------------------------------------------------------------------------------------------

    def on_turn_end(self) -> None:
        if self.leading:
            self.settle()
        else:
            self.send(self.members[self.epoch], Have(self.epoch, self.received))  # A1
            self.repeat_later()

    def on_have(self, sender: ProcessId, have: Have) -> None:
        if self.leading and have.epoch == self.epoch and sender in self.acknowledged:
            if have.received <= self.acknowledged[sender]:  # it asks again: what it should have heard was lost
                self.send(sender, Stable(self.epoch, self.stable, self.numbered))  # R2
            self.acknowledge(sender, have.received)

    def acknowledge(self, member: ProcessId, received: int) -> None:
        if received > self.acknowledged[member]:
            self.acknowledged[member] = received  # A2
            self.moved = True
            self.at_turn_end()

    def settle(self) -> None:
        """Stable is what every member that is left holds: no crash that may still come can take it away."""
        self.acknowledged[self.me] = self.received
        stable = min(self.acknowledged.get(p, 0) for p in self.remaining())  # A3
        if stable > self.stable:
            self.send(self.remaining(), Stable(self.epoch, stable, self.numbered))  # A4

    def on_stable(self, sender: ProcessId, told: Stable) -> None:  # A5
        if told.epoch != self.epoch:
            return
        before, self.stable = self.stable, max(self.stable, min(told.stable, self.received))
        self.deliver_all()
        origins: dict[ProcessId, None] = {}
        for number in range(before + 1, self.stable + 1):
            entry = self.held.pop(number)  # A6
            origins[entry.message.id.origin] = None
            self.safe[entry.message.id.origin] = entry.index
            self.moved = True
        if self.leading and self.options.takeover:
            for origin in origins:
                self.send(origin, Taken(self.safe[origin]))  # A7
        self.newest = max(self.newest, told.newest)
        if self.is_missing():
            self.repeat_later()

    def known(self, origin: ProcessId) -> int:
        """Up to which index a sender's messages cannot get lost: the sequencer returns, or every member has them."""
        return (self.safe if self.options.takeover else self.taken).get(origin, 0)

    def on_taken(self, sender: ProcessId, taken: Taken) -> None:  # A8
        group = self.topology.group_of.get(sender)
        kept = self.outbox.get(group, {}) if group is not None else {}
        for index in [index for index in kept if index <= taken.index]:
            del kept[index]
            self.moved = True

    def remaining(self) -> list[ProcessId]:
        return [p for p in self.members[self.epoch :] if p not in self.suspects]

    # What got lost --------------------------------------------------------------------------------------------------

    def is_missing(self) -> bool:
        """Whether something is known to be numbered that has not come, and that somebody keeps to be asked for."""
        return self.acknowledges and self.received < self.newest

    def repeat_later(self) -> None:
        """Have everything repeated, after a while, that is still open then. On reliable channels little ever is."""
        if not self.again_ns and (self.lossy or self.is_missing()):
            self.again_ns = self.AGAIN_NS
            self.set_timer(Again(), self.again_ns)

    def on_again(self, timer: Again) -> None:
        """Ever more seldom, as long as nothing comes."""
        later_ns = self.AGAIN_NS if self.moved else min(2 * self.again_ns, self.AGAIN_NS_MAX)
        self.again_ns, self.moved = 0, False
        opened = [self.repeat_requests(), self.repeat_as_member(), self.lossy and self.repeat_as_sequencer()]
        if any(opened):
            self.again_ns = later_ns
            self.set_timer(Again(), later_ns)

    def repeat_requests(self) -> bool:
        """Only the sequencer needs them: others fetch from it what they miss."""
        for group, kept in self.outbox.items():
            if self.lossy:
                for index in list(kept)[: self.REPEATED_MAX]:
                    self.send(self.sequencer(group), Number(index, kept[index]))  # R3
        return self.lossy and any(self.outbox.values())

    def repeat_as_member(self) -> bool:
        if self.leading or not (self.is_missing() or (self.lossy and self.stable < self.received)):
            return False
        message = Fetch if self.is_missing() else Have
        self.send(self.members[self.epoch], message(self.epoch, self.received))  # R4
        return True

    def on_fetch(self, sender: ProcessId, fetch: Fetch) -> None:
        if self.leading and fetch.epoch == self.epoch and sender in self.acknowledged:
            self.acknowledge(sender, fetch.received)
            self.repeat_to(sender, fetch.received, self.REPEATED_MAX)  # R5

    def repeat_to(self, member: ProcessId, received: int, most: int) -> None:
        for number in range(received + 1, min(received + most, self.received) + 1):
            if number in self.held:  # else every member has it, and this is an old request
                self.send(member, msgspec.structs.replace(self.held[number], epoch=self.epoch))

    def repeat_as_sequencer(self) -> bool:
        if self.leading:
            behind = [p for p in self.remaining() if self.acknowledged.get(p, 0) < self.numbered]
            self.send(behind, Stable(self.epoch, self.stable, self.numbered))  # R6
            return bool(behind)
        unheard = self.unheard() if self.members[self.epoch :][:1] == (self.me,) else []
        self.send(unheard, Collect(self.epoch, self.received))  # R7
        return bool(unheard)

    # When the sequencer is gone -------------------------------------------------------------------------------------

    def on_suspect(self, process: ProcessId) -> None:
        """The failure detector is perfect: the process is gone for good, though frames of it may still arrive."""
        for group, kept in self.outbox.items():
            members = self.topology.members(group)
            sequencer = self.sequencer(group)
            if process in members[: members.index(sequencer)]:
                for index, m in kept.items():
                    self.send(sequencer, Number(index, m))  # T2
        if process not in self.members:
            return
        place = self.members.index(self.me)
        if self.leading:
            self.at_turn_end()  # it is no longer waited for
        elif self.epoch == place:
            self.lead()
        elif all(p in self.suspects for p in self.members[:place]):
            self.enter(place)  # T3
            self.acknowledged = {self.me: self.received}
            self.send(self.unheard(), Collect(self.epoch, self.received))  # T4
            self.repeat_later()
            self.lead()

    def enter(self, epoch: int) -> None:
        """Take nothing from earlier sequencers from now on, and keep nothing of theirs that has a gap before it.

        So what the members that are left hold when all have entered differs in length only: where two of them have a
        message of the same number, it is the same message. The next sequencer goes on with the longest of these.
        """
        self.epoch, self.leading = epoch, False
        self.newest = self.received
        self.held = {number: entry for number, entry in self.held.items() if number <= self.received}
        self.announced = {}

    def on_collect(self, sender: ProcessId, collect: Collect) -> None:  # T5
        if collect.epoch < self.epoch or self.members[collect.epoch] != sender:
            return
        if collect.epoch > self.epoch:
            self.enter(collect.epoch)
        more = [self.held[n] for n in range(collect.received + 1, self.received + 1) if n in self.held]
        self.send(sender, Report(self.epoch, self.received, more))

    def on_report(self, sender: ProcessId, report: Report) -> None:  # T6
        if self.leading or report.epoch != self.epoch or sender not in self.remaining():
            return
        self.acknowledged[sender] = report.received
        for entry in report.more:
            if entry.number > self.received:
                self.held[entry.number] = entry
        self.advance()
        self.lead()

    def unheard(self) -> list[ProcessId]:
        return [p for p in self.remaining() if p not in self.acknowledged]

    def lead(self) -> None:
        """Begin to number when every member that is left has said what it holds."""
        if self.unheard():
            return
        self.leading = True  # T7
        self.numbered = self.newest = self.received
        for p in self.remaining():
            self.repeat_to(p, self.acknowledged[p], self.received)  # T8
        # What its predecessor told it may have reached nobody else.
        self.send(self.remaining(), Stable(self.epoch, self.stable, self.numbered))  # T9
        for origin, index in self.safe.items():
            self.send(origin, Taken(index))
        for origin in list(self.requests):
            self.number_all_of(origin)  # T10
        self.at_turn_end()

    # What the host asks ---------------------------------------------------------------------------------------------

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        return tuple(e.message.id for e in message.more) if isinstance(message, Report) else super().about(message)

    def pending(self) -> int:
        unnumbered = sum(len(requests) for requests in self.requests.values())
        return unnumbered + sum(number > self.delivered for number in self.held)

    def waits_for(self) -> tuple[ProcessId, ...]:
        if not self.pending():
            return ()
        if self.leading:
            return tuple(p for p in self.remaining() if self.acknowledged.get(p, 0) < self.numbered)
        return (self.members[self.epoch],)
