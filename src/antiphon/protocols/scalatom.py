"""SCALATOM, scalable atomic multicast (scalatom.txt, Figure 5).

L1-L22 are the lines of docs/protocols/scalatom.md; "step" is a step of the figure.
"""

from __future__ import annotations

from heapq import heappop, heappush

import msgspec

from antiphon.core import (
    Assumptions,
    Declaration,
    Detector,
    Failures,
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
from antiphon.services.label import Label, Labels, check_numbers, has_qualified_majority, majority
from antiphon.services.stack import StackedProtocol, StackOptions

HistoryEvent = tuple[MessageId, Label, int]  # R-deliver(m) in a history, with rec-ts(m)


class History(Wire, frozen=True, tag=1):
    """The ``index``-th increment of a history: its new entries, and the clock after them."""

    index: int
    events: list[HistoryEvent]
    clock: int
    id: MessageId  # the message for which it was time to show it


class RecTs(Wire, frozen=True, tag=2):
    """Step 2: the timestamp that I gave m when it was R-delivered. My history may travel along, within my group."""

    id: MessageId
    label: Label
    rec_ts: int
    history: History | None = None


class KnownHistory(msgspec.Struct):
    """How far the history of one process of the own group is known."""

    known: int = 0  # increments, without a gap
    clock: int = 0  # its clock after them: no later entry has a lower timestamp
    early: Table[int, History] = {}  # increments that overtook others, by index


class Buffered(msgspec.Struct, frozen=True):
    """A message that was R-delivered, in whichever buffer."""

    message: Message
    label: Label
    rec_ts: int  # mine; the lower, the older


class ScalatomOptions(StackOptions, frozen=True):
    piggyback: bool = False  # whether histories also travel with timestamps (footnote 4)


class Scalatom(StackedProtocol):
    declaration = Declaration(
        name="scalatom",
        title="SCALATOM (Rodrigues, Guerraoui, Schiper)",
        source="Rodrigues, Guerraoui, Schiper: Scalable Atomic Multicast, Figure 5",
        assumes=Assumptions(failures=Failures.MINORITY, detector=Detector.EVENTUALLY_STRONG),
        promises=(
            Promise.VALIDITY,
            Promise.INTEGRITY,
            Promise.UNIFORM_AGREEMENT,
            Promise.TOTAL_ORDER,
            Promise.ACYCLIC_ORDER,
            Promise.GENUINENESS,
        ),
    )
    Options = ScalatomOptions
    options: ScalatomOptions
    Value = tuple[MessageId, int]
    advances = True

    ts: int  # the logical clock
    entries: Table[MessageId, Buffered]  # R-delivered; without a sequence number, they are the pending buffer
    rec_ts: Table[MessageId, Table[ProcessId, int]]  # timestamps received
    proposed: set[MessageId]
    history: list[HistoryEvent]  # own entries that are not gossiped yet
    gossiped: int  # increments sent
    gossiped_clock: int
    views: Table[ProcessId, KnownHistory]
    predecessors: Heap[tuple[int, MessageId, Label]]  # of all messages: what PPS are made of, by rec-ts
    sn: Table[MessageId, int]  # sequence numbers of messages not TO-delivered; some may not be R-delivered here yet
    computing: Heap[tuple[int, MessageId]]  # the compute-PPS buffer, by sn
    queue: Heap[tuple[int, MessageId]]  # the delivery queue, by sn
    done: Labels  # what was TO-delivered

    def initialise(self) -> None:
        super().initialise()
        self.ts = self.gossiped = self.gossiped_clock = 0
        self.entries, self.rec_ts, self.views, self.sn = {}, {}, {}, {}
        self.proposed = set()
        self.history, self.predecessors, self.computing, self.queue = [], [], [], []
        self.done = Labels()

    def validate(self, message: Wire) -> None:
        history = message.history if isinstance(message, RecTs) else message
        if isinstance(message, RecTs):
            message.label.check(self.topology, self.me)
            check_numbers((message.rec_ts,))
        if isinstance(history, History):
            if self.me not in self.topology.group_of:
                raise BadFrame(f"{self.me} is in no group, and has no history.")
            check_numbers((history.index, history.clock))
            for _, label, rec_ts in history.events:
                label.check(self.topology, self.me)
                check_numbers((rec_ts,))

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        assert isinstance(message, RecTs | History)
        history = message.history if isinstance(message, RecTs) else message
        shown = [id for id, _, _ in history.events] if history is not None else []
        return tuple(dict.fromkeys((message.id, *shown)))

    @staticmethod
    def ids_of(value: tuple[MessageId, int]) -> tuple[MessageId, ...]:
        return value[:1]

    @staticmethod
    def numbers_of(value: tuple[MessageId, int]) -> tuple[int, ...]:
        return value[1:]

    def multicast(self, m: Message) -> None:  # L1: step 1
        self.reliable.multicast(m)

    # Step 2: timestamps -----------------------------------------------------------------------------------------

    def when_r_delivered(self, m: Message, label: Label) -> None:  # L2
        rec_ts = max(self.ts, least_number(m))  # L3
        self.ts = rec_ts + 1
        self.entries[m.id] = Buffered(m, label, rec_ts)  # L4
        self.history.append((m.id, label, rec_ts))  # L5
        self.send_timestamp(m, RecTs(m.id, label, rec_ts))  # L6
        self.start(m.id)
        self.deliver_in_order()

    def send_timestamp(self, m: Message, message: RecTs) -> None:
        if not self.options.piggyback:
            self.send(self.topology.addressees(m.destinations), message)
            return
        own = self.topology.members(self.group)
        self.send([p for p in self.topology.addressees(m.destinations) if p not in own], message)
        self.send(own, msgspec.structs.replace(message, history=self.increment(m.id)))

    def on_rec_ts(self, sender: ProcessId, message: RecTs) -> None:  # L7
        if message.history is not None:
            self.on_history(sender, message.history)
        if not self.has_number(message.id, message.label):
            self.rec_ts.setdefault(message.id, {})[sender] = message.rec_ts
            self.start(message.id)

    # Step 3: consensus on the sequence number -------------------------------------------------------------------

    def start(self, id: MessageId) -> None:
        entry, received = self.entries.get(id), self.rec_ts.get(id, {})
        if entry is None or id in self.proposed or id in self.sn:
            return
        if has_qualified_majority(set(received), entry.label.groups, self.topology):  # L8
            self.proposed.add(id)
            value = _encoder.encode((id, max(received.values())))  # L9
            self.consensus.propose(entry.label, value)  # L10

    # Step 4: the sequence number, and gossip --------------------------------------------------------------------

    def when_decided(self, instance: Label, value: bytes) -> None:  # L11
        self.number(*self.decode(value))

    def number(self, id: MessageId, sn: int) -> None:
        self.sn[id] = sn
        self.rec_ts.pop(id, None)
        self.proposed.discard(id)
        self.ts = max(self.ts, sn) + 1  # L12
        heappush(self.computing, (sn, id))  # L13
        if self.gossiped_clock <= sn:  # else the group has this history already, as far as m needs it
            self.send(self.topology.members(self.group), self.increment(id))  # L14
        self.compute_pps()
        self.deliver_in_order()

    def has_number(self, id: MessageId, label: Label) -> bool:
        return id in self.sn or self.done.has(label, self.group)

    def increment(self, id: MessageId) -> History:
        """What the group does not have of the own history."""
        self.gossiped += 1
        self.gossiped_clock = self.ts
        events, self.history = self.history, []
        return History(self.gossiped, events, self.ts, id)

    # Step 5: potential predecessors, and delivery -----------------------------------------------------------------

    def on_history(self, sender: ProcessId, increment: History) -> None:  # L15
        view = self.views.setdefault(sender, KnownHistory())
        view.early[increment.index] = increment
        while (following := view.early.pop(view.known + 1, None)) is not None:  # L16
            view.known += 1
            view.clock = following.clock
            for id, label, rec_ts in following.events:
                if not self.has_number(id, label):
                    heappush(self.predecessors, (rec_ts, id, label))
        self.compute_pps()
        self.deliver_in_order()

    def compute_pps(self) -> None:
        """All is known of PPS(m) when a majority of the group has shown history(p, sn(m)): a clock beyond sn(m)."""
        needed = majority(self.topology.members(self.group))
        clocks = sorted((view.clock for view in self.views.values()), reverse=True)
        shown = clocks[needed - 1] if len(clocks) >= needed else 0
        while self.computing and self.computing[0][0] < shown:  # L17
            heappush(self.queue, heappop(self.computing))  # L19

    def pps(self, sn: int) -> set[tuple[MessageId, Label]]:  # L18
        """PPS(m), by sn(m): what the histories give a rec-ts not above it, less what has its own number by now."""
        return {
            (id, label) for rec_ts, id, label in self.predecessors if rec_ts <= sn and not self.has_number(id, label)
        }

    def deliver_in_order(self) -> None:  # L20
        while self.queue:
            sn, id = self.queue[0]
            if id not in self.entries or self.has_predecessor(sn):  # L21
                return
            heappop(self.queue)
            self.hand_over(id)

    def has_predecessor(self, sn: int) -> bool:
        """Whether PPS(m) has any message: the lowest tells, so that the set need not be made for each m that waits."""
        while self.predecessors and self.has_number(*self.predecessors[0][1:]):
            heappop(self.predecessors)
        return bool(self.predecessors) and self.predecessors[0][0] <= sn

    def hand_over(self, id: MessageId) -> None:
        entry, sn = self.entries.pop(id), self.sn.pop(id)
        self.done.add(entry.label, self.group)
        self.deliver(entry.message, (sn, *id))  # L22

    def pending(self) -> int:
        return len(self.entries) + self.reliable.pending()

    def waits_for(self) -> tuple[ProcessId, ...]:
        oldest = min(self.entries.values(), key=lambda entry: entry.rec_ts, default=None)
        if oldest is None:
            return ()
        id, addressees = oldest.message.id, self.topology.addressees(oldest.label.groups)
        if id in self.proposed:  # the decision is missing
            return tuple(p for p in addressees if p != self.me)
        if id not in self.sn:
            return tuple(p for p in addressees if p not in self.rec_ts.get(id, {}))
        if (self.sn[id], id) in self.computing:
            shown = {p for p, view in self.views.items() if view.clock > self.sn[id]}
            return tuple(p for p in self.topology.members(self.group) if p not in shown)
        undecided = {group for _, label in self.pps(self.sn[id]) for group in label.groups}
        return tuple(p for p in self.topology.addressees(tuple(sorted(undecided))) if p != self.me)


_encoder = msgspec.msgpack.Encoder()
