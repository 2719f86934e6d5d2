"""The symmetric protocol: Lamport's timestamps, acknowledged by everybody (scalatom.txt, section 5.2, "Symmetric").

L1-L15 are the lines of docs/protocols/symmetric.md; D1-D15 those with which members go on without the dead
(``-o leave_out=true``).
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import msgspec

from antiphon.core import (
    Assumptions,
    Declaration,
    Detector,
    Failures,
    GroupId,
    Heap,
    Message,
    MessageId,
    OrderingProtocol,
    ProcessId,
    Promise,
    Table,
    Transport,
    Wire,
)
from antiphon.core.errors import BadFrame
from antiphon.services.timestamp import TIME_MAX, Timestamp


class Hand(Wire, frozen=True, tag=1):
    """Sender outside the group to one member: multicast this for me."""

    message: Message


class Stamped(Wire, frozen=True, tag=2):
    """Member to members: m, with the time of my clock. All that I send after it is later."""

    time: int
    message: Message


class Acknowledge(Wire, frozen=True, tag=3):
    """Member to members: what I send after this is later than ``time``.

    Where the dead are left out also: of these members I newly have all messages up to these times.
    """

    time: int
    holds: dict[ProcessId, int]


class Relay(Wire, frozen=True, tag=4):
    """Survivor to survivors: a message of a dead member, with its timestamp."""

    process: ProcessId
    time: int
    message: Message


class Flush(Wire, frozen=True, tag=5):
    """Survivor to survivors: I take nothing more from these dead; what I have of them went before this."""

    dead: list[ProcessId]


class Done(Wire, frozen=True, tag=6):
    """Member to a sender outside: m is delivered."""

    id: MessageId


class SymmetricOptions(msgspec.Struct, frozen=True):
    leave_out: bool = False  # whether members that never return are no longer waited for


class Symmetric(OrderingProtocol):
    declaration = Declaration(
        name="symmetric",
        title="Symmetric (Lamport, all-ack)",
        source="Rodrigues, Guerraoui, Schiper, section 5.2; Lamport, Time, Clocks, and the Ordering of Events",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY, one_group=True),
        promises=(
            Promise.VALIDITY,
            Promise.INTEGRITY,
            Promise.UNIFORM_AGREEMENT,
            Promise.FIFO,
            Promise.TOTAL_ORDER,
            Promise.ACYCLIC_ORDER,
            Promise.GENUINENESS,
        ),
    )
    Options = SymmetricOptions
    options: SymmetricOptions

    transport = Transport.FIFO

    clock: int
    told: int  # the other members know that this one sends nothing up to this time any more
    latest: Table[ProcessId, int]  # by other member: all that it will send is later than this
    queue: Heap[Timestamp]
    holdback: Table[Timestamp, Message]
    # The rest is needed only where the dead are left out.
    holds: Table[ProcessId, Table[ProcessId, int]]  # by member: up to which time it has the messages of each member
    untold: dict[ProcessId, int]  # what is new in the own row of ``holds``
    numbers: Table[ProcessId, int]  # by origin: the number of its newest message delivered here
    handed: dict[GroupId, list[Message]]  # this process's messages to other groups that may not be delivered yet
    dead: list[ProcessId]  # members of the group that never return: nothing more is taken from them
    flushed: Table[ProcessId, list[ProcessId]]  # by member: the dead in its newest FLUSH
    left_out: list[ProcessId]  # the dead for whom this process no longer waits

    def initialise(self) -> None:
        self.clock = self.told = 0
        self.latest = {p: 0 for p in self.members if p != self.me}
        self.queue = []
        self.holdback = {}
        self.holds = {p: {} for p in self.members}
        self.untold = {}
        self.numbers = {}
        self.handed = {}
        self.dead = []
        self.flushed = {}
        self.left_out = []

    @classmethod
    def assumes(cls, options: Any) -> Assumptions:
        if not options.leave_out:
            return cls.declaration.assumes
        return Assumptions(failures=Failures.ALL_BUT_ONE, detector=Detector.PERFECT, one_group=True)

    def begin(self) -> None:
        if self.options.leave_out:
            self.monitor(self.topology.processes)

    def others(self) -> list[ProcessId]:
        return [p for p in self.members if p != self.me and p not in self.dead]

    def is_heard(self, sender: ProcessId) -> bool:
        """Whether what a process sends is taken: it is another member, and not known to be dead."""
        return sender in self.latest and sender not in self.dead

    def validate(self, message: Wire) -> None:
        if not isinstance(message, Done) and not self.members:
            raise BadFrame(f"{self.me} is in no group, and orders nothing.")
        if isinstance(message, Relay | Flush | Done) and not self.options.leave_out:
            raise BadFrame("With these options nobody is left out.")
        if isinstance(message, Hand | Stamped | Relay) and message.message.destinations != (self.group,):
            raise BadFrame(f"A message to {', '.join(message.message.destinations)} is not for {self.me}.")
        times = [message.time] if isinstance(message, Stamped | Acknowledge | Relay) else []
        named: list[ProcessId] = []
        if isinstance(message, Acknowledge):
            times += message.holds.values()
            named += message.holds
        elif isinstance(message, Relay):
            named.append(message.process)
        elif isinstance(message, Flush):
            named += message.dead
        if not all(0 < time < TIME_MAX for time in times):
            raise BadFrame("A member's clock shows times from 1 on, and none of the next million years.")
        if not all(process in self.holds for process in named) or len(set(named)) != len(named):
            raise BadFrame("Members of the group are named, each once, and nobody else.")

    # A message and its acknowledgements --------------------------------------------------------------------------

    def multicast(self, m: Message) -> None:  # L1
        (group,) = m.destinations
        if self.topology.group_of.get(self.me) == group:
            self.stamp(m)  # L2
        else:
            if self.options.leave_out:
                self.handed.setdefault(group, []).append(m)  # D11
            self.send(self.contact(group), Hand(m))  # L3

    def contact(self, group: GroupId) -> ProcessId:
        """The member to which a process outside hands its messages: the first that is not known to be dead."""
        members = self.topology.members(group)
        return next((p for p in members if p not in self.suspects), members[-1])

    def on_hand(self, sender: ProcessId, hand: Hand) -> None:  # L4
        if self.is_new(hand.message):
            self.stamp(hand.message)
        else:
            self.send(sender, Done(hand.message.id))  # a contact that is dead now had multicast it

    def stamp(self, m: Message) -> None:
        self.clock += 1  # L5
        self.told = self.clock
        self.send(self.others(), Stamped(self.clock, m))  # L6
        self.hold(Timestamp(self.clock, self.me), m)

    def on_stamped(self, sender: ProcessId, stamped: Stamped) -> None:  # L7
        if self.is_heard(sender):
            self.learn(sender, stamped.time, {sender: stamped.time})
            self.take(Timestamp(stamped.time, sender), stamped.message)

    def take(self, timestamp: Timestamp, m: Message) -> None:
        """A message of another member is here, from itself or from a survivor. The first of the two counts."""
        if timestamp.time > self.holds[self.me].get(timestamp.process, 0):
            self.clock = max(self.clock, timestamp.time)  # L8
            self.untold[timestamp.process] = timestamp.time
            self.at_turn_end()
            self.hold(timestamp, m)

    def hold(self, timestamp: Timestamp, m: Message) -> None:
        self.holds[self.me][timestamp.process] = timestamp.time
        self.holdback[timestamp] = m  # L9
        heappush(self.queue, timestamp)
        self.flush()
        self.deliver_ready()

    def on_turn_end(self) -> None:  # L10
        if self.options.leave_out:
            self.acknowledge(self.untold)  # D1
        elif self.told < self.clock:  # else a message of its own has said as much
            self.acknowledge({})
        self.untold = {}

    def acknowledge(self, holds: dict[ProcessId, int]) -> None:
        self.told = self.clock
        self.send(self.others(), Acknowledge(self.clock, holds))  # L11

    def on_acknowledge(self, sender: ProcessId, acknowledge: Acknowledge) -> None:  # L12
        if self.is_heard(sender):
            self.learn(sender, acknowledge.time, acknowledge.holds)
            self.deliver_ready()

    def learn(self, member: ProcessId, time: int, times: dict[ProcessId, int]) -> None:
        """All that a member will send is later than ``time``, and it has the messages up to ``times``."""
        self.latest[member] = max(self.latest[member], time)
        holds = self.holds[member]
        for process, until in times.items():
            holds[process] = max(holds.get(process, 0), until)

    def deliver_ready(self) -> None:
        while self.queue and not self.missing(self.queue[0]):  # L13
            timestamp = heappop(self.queue)
            m = self.holdback.pop(timestamp)
            if self.is_new(m):
                self.deliver(m, timestamp)  # L14
            if self.options.leave_out:
                self.settle(timestamp, m)

    def missing(self, timestamp: Timestamp) -> list[ProcessId]:
        """The members that keep a message from being delivered."""
        time, process = timestamp
        waited_for = [p for p in self.members if p != self.me and p not in self.left_out]
        if self.options.leave_out:
            return [p for p in waited_for if self.latest[p] < time or self.holds[p].get(process, 0) < time]  # D2
        return [p for p in waited_for if self.latest[p] < time]  # L15

    # Going on without the dead -----------------------------------------------------------------------------------
    #
    # What anybody delivers, every survivor has (D2). So a survivor lacks nothing that matters once all survivors have
    # said what of the dead they have and have not delivered, and have closed their ears to them before they said it.

    def on_suspect(self, process: ProcessId) -> None:  # D3
        if process in self.latest:
            self.dead.append(process)  # D4
            self.flush()
            self.leave_out()
        else:
            self.hand_again(process)

    def flush(self) -> None:
        """In a group that has had no message yet this waits for the first one: until then nobody is concerned."""
        if self.clock and self.flushed.get(self.me, []) != self.dead:
            for timestamp in sorted(t for t in self.holdback if t.process in self.dead):
                self.send(self.others(), Relay(timestamp.process, timestamp.time, self.holdback[timestamp]))  # D5
            self.send(self.others(), Flush(list(self.dead)))  # D6
            self.flushed[self.me] = list(self.dead)

    def on_relay(self, sender: ProcessId, relay: Relay) -> None:  # D7
        if self.is_heard(sender) and relay.process in self.latest and relay.process not in self.left_out:
            self.learn(relay.process, relay.time, {})
            self.take(Timestamp(relay.time, relay.process), relay.message)  # D8

    def on_flush(self, sender: ProcessId, flush: Flush) -> None:  # D9
        if self.is_heard(sender):
            self.flushed[sender] = flush.dead
            self.leave_out()

    def leave_out(self) -> None:
        """A FLUSH for some of the dead is not enough: its sender may have had more from the others before they died."""
        if all(set(self.dead) <= set(self.flushed.get(p, ())) for p in self.others()):  # D10
            self.left_out = list(self.dead)
            self.deliver_ready()

    def hand_again(self, process: ProcessId) -> None:
        """The contact of another group is dead: what it may not have multicast is handed to the next, in order."""
        group = self.topology.group_of[process]
        members = self.topology.members(group)
        if members.index(process) < members.index(self.contact(group)):
            for m in self.handed.get(group, ()):
                self.send(self.contact(group), Hand(m))  # D12

    def is_new(self, m: Message) -> bool:
        """Whether m was not delivered before, with a timestamp of another contact. Each origin's come in order."""
        return m.id.number > self.numbers.get(m.id.origin, 0)

    def settle(self, timestamp: Timestamp, m: Message) -> None:
        self.numbers[m.id.origin] = max(self.numbers.get(m.id.origin, 0), m.id.number)  # D13
        if timestamp.process == self.me != m.id.origin:
            self.send(m.id.origin, Done(m.id))  # D14

    def on_done(self, sender: ProcessId, done: Done) -> None:  # D15
        for messages in self.handed.values():
            messages[:] = [m for m in messages if m.id != done.id]

    def pending(self) -> int:
        return len(self.holdback)

    def waits_for(self) -> tuple[ProcessId, ...]:
        return tuple(self.missing(self.queue[0])) if self.queue else ()
