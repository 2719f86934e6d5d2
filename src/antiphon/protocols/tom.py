"""TOM, the total order multicast of Fritzke, Ingels, Mostéfaoui and Raynal (tom.txt, section 3.1).

L1-L15 are the lines of docs/protocols/tom.md. With sets, a consensus decides all that waits; without, one message.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import islice
from typing import NamedTuple

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
    ProcessId,
    Promise,
    Table,
    Wire,
)
from antiphon.core.errors import BadFrame
from antiphon.core.floors import least_number
from antiphon.services.label import Label, Labels, check_numbers
from antiphon.services.stack import StackedProtocol, StackOptions


class Stamp(NamedTuple):
    """A timestamp: a group's clock, and the group."""

    clock: int
    group: GroupId


class GroupTimestamp(Wire, frozen=True, tag=1):
    """Step 2, to the other destination groups: my group's timestamp for m."""

    id: MessageId
    label: Label
    stamp: Stamp


class GroupTimestamps(Wire, frozen=True, tag=2):
    """Step 2 for a set: several at once."""

    timestamps: list[GroupTimestamp]


class Decision(msgspec.Struct, frozen=True, array_like=True):
    """What a consensus decides: messages to be timestamped, and definitive timestamps to catch up with."""

    new: list[MessageId]
    definitive: list[tuple[MessageId, Stamp]]


class Queued(msgspec.Struct):
    """A message in the reception queue."""

    message: Message
    label: Label
    age: int
    stamp: Stamp | None = None  # its group's proposal, then the definitive timestamp
    definitive: bool = False
    resynchronised: bool = False  # a consensus has raised the group's clock to the definitive timestamp


class TomOptions(StackOptions, frozen=True):
    sets: bool = True


class Tom(StackedProtocol):
    declaration = Declaration(
        name="tom",
        title="TOM (Fritzke et al.)",
        source="Fritzke: Implementation and Performance of a Total Order Multicast to Multiple Groups, 3.1",
        assumes=Assumptions(failures=Failures.MINORITY, detector=Detector.EVENTUALLY_STRONG),
        promises=(
            Promise.VALIDITY,
            Promise.INTEGRITY,
            Promise.UNIFORM_AGREEMENT,
            Promise.TOTAL_ORDER,
            Promise.ACYCLIC_ORDER,
            Promise.GENUINENESS,
            Promise.LOCALITY,
        ),
    )
    Options = TomOptions
    options: TomOptions
    Value = Decision
    advances = True

    clock: int  # the group clock
    age: int  # counts R-deliveries
    queue: Table[MessageId, Queued]  # the reception queue
    fresh: dict[MessageId, None]  # those of it that have no timestamp, oldest first
    lagging: dict[MessageId, Stamp]  # those with a definitive timestamp that are not synchronised
    order: Heap[tuple[Stamp, MessageId]]  # over the timestamps of the queue; outdated ones are skipped
    stamps: Table[MessageId, Table[GroupId, Stamp]]  # the destination groups' timestamps
    applied: int  # the number of the newest decision carried out
    proposed: int  # the number of the newest consensus proposed to
    decisions: Table[int, Decision]  # those that wait for an earlier one, or for messages not R-delivered here yet
    unsent: dict[tuple[GroupId, ...], list[GroupTimestamp]]  # for other groups, of the decision being carried out
    present: int  # how many messages of the next decision are known to be here
    done: Labels  # what was TO-delivered

    def initialise(self) -> None:
        super().initialise()
        self.clock = self.age = self.applied = self.proposed = self.present = 0
        self.queue, self.fresh, self.lagging, self.stamps, self.decisions, self.unsent = {}, {}, {}, {}, {}, {}
        self.order = []
        self.done = Labels()

    def validate(self, message: Wire) -> None:
        for timestamp in message.timestamps if isinstance(message, GroupTimestamps) else (message,):
            assert isinstance(timestamp, GroupTimestamp)
            timestamp.label.check(self.topology, self.me)
            check_numbers((timestamp.stamp.clock,))

    def accept(self, instance: Label, value: bytes) -> None:
        if instance.groups != (self.group,):
            raise BadFrame("A group decides alone.")
        super().accept(instance, value)

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        if isinstance(message, GroupTimestamps):
            return tuple(timestamp.id for timestamp in message.timestamps)
        return super().about(message)

    @staticmethod
    def ids_of(value: Decision) -> list[MessageId]:
        return [*value.new, *(id for id, _ in value.definitive)]

    @staticmethod
    def numbers_of(value: Decision) -> list[int]:
        return [stamp.clock for _, stamp in value.definitive]

    def multicast(self, m: Message) -> None:  # L1
        self.reliable.multicast(m)

    def when_r_delivered(self, m: Message, label: Label) -> None:  # L2
        self.age += 1
        self.queue[m.id] = Queued(m, label, self.age)
        self.fresh[m.id] = None
        self.apply()
        self.start()

    # Steps 1 and 3: the k-th consensus of the group ---------------------------------------------------------------

    def start(self) -> None:  # L3
        """Propose what waits to the next consensus: all of it, or the oldest message alone."""
        number = self.applied + 1
        if self.proposed == number or number in self.decisions or not (self.fresh or self.lagging):
            return
        self.proposed = number
        waiting = Decision(list(self.fresh), list(self.lagging.items())) if self.options.sets else self.oldest()
        self.consensus.propose(Label("", (self.group,), (number,)), _encoder.encode(waiting))  # L4

    def oldest(self) -> Decision:
        waiting = [*islice(self.fresh, 1), *self.lagging]  # those without a timestamp are in the order of their age
        id = min(waiting, key=lambda id: self.queue[id].age)
        return Decision([], [(id, self.lagging[id])]) if id in self.lagging else Decision([id], [])

    def when_decided(self, instance: Label, value: bytes) -> None:  # L5
        (number,) = instance.numbers
        self.decisions[number] = self.decode(value)
        self.apply()
        self.start()

    def apply(self) -> None:
        """Carry out decisions in their order, each once all of its messages are here."""
        while (decision := self.decisions.get(self.applied + 1)) is not None:
            while self.present < len(decision.new) and decision.new[self.present] in self.queue:
                self.present += 1
            if self.present < len(decision.new):
                return
            self.present = 0
            self.applied += 1
            del self.decisions[self.applied]
            if decision.new:
                self.clock = max(self.clock + 1, *[least_number(self.queue[id].message) for id in decision.new])  # L6
            for id in decision.new:
                self.timestamp(id)
            self.announce()
            for id, stamp in decision.definitive:
                self.clock = max(self.clock, stamp.clock)  # L9
                self.resynchronise(id, stamp)
            self.lagging = {id: s for id, s in self.lagging.items() if not self.is_synchronised(self.queue[id])}
            for id in decision.new:
                self.settle(id)
            self.deliver_lowest()

    def timestamp(self, id: MessageId) -> None:
        entry, stamp = self.queue[id], Stamp(self.clock, self.group)
        assert entry.stamp is None, "a group timestamps a message once"
        self.place(id, entry, stamp)  # L7
        del self.fresh[id]
        self.stamps.setdefault(id, {})[self.group] = stamp
        others = tuple(g for g in entry.message.destinations if g != self.group)
        self.unsent.setdefault(others, []).append(GroupTimestamp(id, entry.label, stamp))

    def announce(self) -> None:
        """The timestamps of one decision travel together, to each set of groups that wants them."""
        for others, timestamps in self.unsent.items():
            alone = len(timestamps) == 1
            self.send(self.topology.addressees(others), timestamps[0] if alone else GroupTimestamps(timestamps))  # L8
        self.unsent.clear()

    def resynchronise(self, id: MessageId, stamp: Stamp) -> None:
        entry = self.queue.get(id)
        if entry is not None:  # else the clock was far enough without this decision, and it is delivered
            entry.resynchronised = True  # L10
            self.define(id, entry, stamp)

    # Step 2: the timestamps of the other groups -----------------------------------------------------------------

    def on_group_timestamp(self, sender: ProcessId, timestamp: GroupTimestamp) -> None:  # L11
        self.note(timestamp)
        self.deliver_lowest()
        self.start()

    def on_group_timestamps(self, sender: ProcessId, several: GroupTimestamps) -> None:
        for timestamp in several.timestamps:
            self.note(timestamp)
        self.deliver_lowest()
        self.start()

    def note(self, timestamp: GroupTimestamp) -> None:
        if self.done.has(timestamp.label, self.group):
            return
        stamps, stamp = self.stamps.setdefault(timestamp.id, {}), timestamp.stamp
        assert stamps.get(stamp.group, stamp) == stamp, "a group agrees on its timestamp"
        stamps[stamp.group] = stamp
        self.settle(timestamp.id)

    def settle(self, id: MessageId) -> None:
        """The greatest of all groups' timestamps is the definitive one."""
        entry, stamps = self.queue.get(id), self.stamps.get(id, {})
        if entry is None or entry.definitive or len(stamps) < len(entry.message.destinations):
            return
        self.define(id, entry, max(stamps.values()))  # L12

    def define(self, id: MessageId, entry: Queued, stamp: Stamp) -> None:
        entry.definitive = True
        self.place(id, entry, stamp)
        if not self.is_synchronised(entry):
            self.lagging[id] = stamp

    def is_synchronised(self, entry: Queued) -> bool:  # L13
        """Whether the group's clock is known to have reached the definitive timestamp: nothing lower can follow.

        A consensus says so, the same at all members. With sets none is needed where the clock is there already, for it
        moves by decisions alone: all members see that, or none.
        """
        has_reached = entry.stamp is not None and entry.stamp.clock <= self.clock
        return entry.resynchronised or (self.options.sets and entry.definitive and has_reached)

    # Step 4 -----------------------------------------------------------------------------------------------------

    def place(self, id: MessageId, entry: Queued, stamp: Stamp) -> None:
        assert entry.stamp is None or stamp >= entry.stamp, "a definitive timestamp is never below a proposal"
        if stamp != entry.stamp:
            entry.stamp = stamp
            heappush(self.order, (stamp, id))

    def deliver_lowest(self) -> None:  # L14
        while self.order:
            stamp, id = self.order[0]
            entry = self.queue.get(id)
            if entry is not None and entry.stamp == stamp and not self.is_synchronised(entry):
                return  # the lowest timestamp is not known to stay the lowest
            heappop(self.order)
            if entry is None or entry.stamp != stamp:
                continue
            del self.queue[id]
            del self.stamps[id]
            self.done.add(entry.label, self.group)
            self.deliver(entry.message, (*stamp, *id))  # L15

    def counters(self) -> dict[str, int]:
        return {"consensus executions": self.applied}

    def pending(self) -> int:
        return len(self.queue) + self.reliable.pending()

    def waits_for(self) -> tuple[ProcessId, ...]:
        """The groups whose timestamp is missing, or the own one, which has to agree on something."""
        entry = min(self.queue.values(), key=lambda entry: entry.age, default=None)
        if entry is not None and self.is_synchronised(entry):
            entry = self.queue.get(self.order[0][1])  # what is before it
        if entry is None:
            return self.reliable.waits_for()
        stamps = self.stamps.get(entry.message.id, {})
        missing = tuple(g for g in entry.message.destinations if g not in stamps) or (self.group,)
        return tuple(p for p in self.topology.addressees(missing) if p != self.me)


_encoder = msgspec.msgpack.Encoder()
