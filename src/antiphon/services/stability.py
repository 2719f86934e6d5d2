"""What the members of a group hold of its numbered messages: what every one of them has, and what got lost.

Of a protocol in which one member, the sequencer, numbers the messages of its group (protocols/sequencer.py). A1-A8 and
R1-R6 are the lines of docs/protocols/stability.md.
"""

from __future__ import annotations

import msgspec

from antiphon.core import GroupId, Message, OrderingProtocol, ProcessId, Table, Timer, Transport, Wire
from antiphon.core.errors import BadFrame

NUMBER_MAX = 1 << 62  # no honest sequencer counts so far


class Ordered(Wire, frozen=True, tag=2):
    """Sequencer to the group: this is message ``number``. ``epoch``: who numbers, by its place in the group."""

    epoch: int
    number: int
    index: int
    message: Message


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


class Again(Timer, frozen=True):
    """Something that this process sent, or should have got, seems to be lost."""


class Stability(OrderingProtocol):
    AGAIN_NS, AGAIN_NS_MAX = 20_000_000, 1_000_000_000  # before the first repeat, and between later ones at most
    REPEATED_MAX = 32  # messages that are sent again at a time

    # At a sender
    outbox: dict[GroupId, dict[int, Message]]  # those of its messages that may still get lost, by index
    # At a member
    epoch: int  # the place of the sequencer in the group: all before it are gone (services/takeover.py)
    counted: dict[ProcessId, int]  # by origin: up to this index its messages have numbers
    safe: dict[ProcessId, int]  # and up to this one, every member that is left holds them
    newest: int  # the largest number heard of
    received: int  # every message up to this number is or was held
    stable: int  # and up to this one, by every member that is left
    held: Table[int, Ordered]  # the hold-back queue and, where somebody may ask for them, the messages before it
    # At the sequencer
    leading: bool
    numbered: int  # the timestamp of the newest message
    acknowledged: Table[ProcessId, int]  # up to which number each member holds every message
    # Everywhere
    again_ns: int  # how long to wait between two repeats at present; 0: nothing is to be repeated
    moved: bool  # whether anything has come that was waited for, since the last repeat

    def initialise(self) -> None:
        self.outbox, self.counted, self.safe, self.held = {}, {}, {}, {}
        self.epoch = self.newest = self.received = self.stable = self.numbered = 0
        self.leading = self.members[:1] == (self.me,)
        self.acknowledged = dict.fromkeys(self.members, 0) if self.leading else {}
        self.again_ns, self.moved = 0, False

    @property
    def lossy(self) -> bool:
        return self.transport is Transport.DATAGRAM

    @property
    def uniform(self) -> bool:
        return bool(self.options.numbering == "uniform")

    @property
    def keeps(self) -> bool:
        """Whether senders keep what may get lost."""
        return self.lossy or self.options.takeover

    @property
    def acknowledges(self) -> bool:
        """Whether the sequencer finds out what all members have."""
        return self.keeps or self.uniform

    def validate(self, message: Wire) -> None:
        if isinstance(message, Taken):
            self.check_numbers(message.index)
            return
        if not self.members:
            raise BadFrame(f"{self.me} is in no group, and orders nothing.")
        if not 0 <= getattr(message, "epoch", 0) < len(self.members):
            raise BadFrame("An epoch is the place of a member in its group.")
        if not all(0 <= getattr(message, name, 0) < NUMBER_MAX for name in ("received", "stable", "newest")):
            raise BadFrame("Messages are numbered from 1.")
        if isinstance(message, Have | Stable | Fetch) and not self.acknowledges:
            raise BadFrame("With these options nobody asks who has what.")
        if isinstance(message, Ordered):
            self.check_numbers(message.number, message.index)
            self.check_group(message.message)

    def check_numbers(self, *numbers: int) -> None:
        if not all(0 < number < NUMBER_MAX for number in numbers):
            raise BadFrame("Messages are numbered from 1.")

    def check_group(self, m: Message) -> None:
        if m.destinations != (self.group,):
            raise BadFrame(f"A message for other groups is not for {self.me}.")

    # What the protocol does ------------------------------------------------------------------------------------------

    def ask_for_number(self, group: GroupId, index: int, m: Message) -> None:
        """Send m, this process's ``index``-th message to the group, to the group's sequencer."""
        raise NotImplementedError

    def deliver_all(self) -> None:
        """Deliver what can be delivered."""
        raise NotImplementedError

    # What every member has ------------------------------------------------------------------------------------------

    def remaining(self) -> list[ProcessId]:
        return [p for p in self.members[self.epoch :] if p not in self.suspects]

    def received_more(self) -> None:
        self.moved = True
        if self.acknowledges:
            self.at_turn_end()

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
        self.look_for_missing()

    # What a sender keeps --------------------------------------------------------------------------------------------

    def keep(self, group: GroupId, index: int, m: Message) -> None:
        if self.keeps:
            self.outbox.setdefault(group, {})[index] = m
            self.repeat_later()

    def answers(self) -> bool:
        """Whether the sequencer tells senders what cannot get lost."""
        return self.keeps

    def answer(self, origin: ProcessId, index: int) -> None:
        """A message that is asked about may be long known: then what told its sender so was lost."""
        if self.leading and self.answers() and index <= (known := self.known(origin)):
            self.send(origin, Taken(known))  # R1

    def known(self, origin: ProcessId) -> int:
        """Up to which index a sender's messages cannot get lost: the sequencer returns, or every member has them."""
        return (self.safe if self.options.takeover else self.counted).get(origin, 0)

    def on_taken(self, sender: ProcessId, taken: Taken) -> None:  # A8
        group = self.topology.group_of.get(sender)
        kept = self.outbox.get(group, {}) if group is not None else {}
        for index in [index for index in kept if index <= taken.index]:
            del kept[index]
            self.moved = True

    # What got lost --------------------------------------------------------------------------------------------------

    def is_missing(self) -> bool:
        """Whether something is known to be numbered that has not come, and that somebody keeps to be asked for."""
        return self.acknowledges and self.received < self.newest

    def look_for_missing(self) -> None:
        if self.is_missing():
            self.repeat_later()

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
                    self.ask_for_number(group, index, kept[index])  # R3
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
        if not self.leading:
            return False
        behind = [p for p in self.remaining() if self.acknowledged.get(p, 0) < self.numbered]
        self.send(behind, Stable(self.epoch, self.stable, self.numbered))  # R6
        return bool(behind)
