"""MTO, the multicast total order of Guerraoui and Schiper (scalatom.txt, sections 2.1 and 5.2).

L1-L14 are the lines of docs/protocols/mto.md.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import ClassVar

import msgspec

from antiphon.core import (
    Assumptions,
    Declaration,
    Detector,
    Failures,
    FaultModel,
    Heap,
    Message,
    MessageId,
    ProcessId,
    Promise,
    Table,
    Wire,
)
from antiphon.core.errors import UsageError
from antiphon.core.floors import least_number
from antiphon.services.label import Label, Labels, check_numbers, has_qualified_majority
from antiphon.services.matrix import MatrixOrder
from antiphon.services.reliable import ReliableKind
from antiphon.services.stack import StackedProtocol, StackOptions


class RecTs(Wire, frozen=True, tag=1):
    """The timestamp that I gave m when it was R-delivered."""

    id: MessageId
    label: Label
    rec_ts: int


class Received(msgspec.Struct):
    """A message that was R-delivered: still without a sequence number, or in the delivery queue."""

    message: Message
    label: Label
    rec_ts: int  # the lower, the older
    sn: int | None = None
    predecessors: list[tuple[MessageId, Label]] = []  # PPS, less what need not be waited for


class MtoOptions(StackOptions, frozen=True):
    reliable: ReliableKind = "eager"  # uniform here: mto needs in any case that what was sent survives its sender


class Mto(StackedProtocol):
    declaration = Declaration(
        name="mto",
        title="MTO (Guerraoui, Schiper)",
        source="Rodrigues, Guerraoui, Schiper: Scalable Atomic Multicast, sections 2.1 and 5.2",
        assumes=Assumptions(failures=Failures.MINORITY, detector=Detector.EVENTUALLY_STRONG, sent_survives=True),
        promises=(
            Promise.VALIDITY,
            Promise.INTEGRITY,
            Promise.UNIFORM_AGREEMENT,
            Promise.TOTAL_ORDER,
            Promise.ACYCLIC_ORDER,
            Promise.GENUINENESS,
        ),
    )
    Options: ClassVar[type[StackOptions]] = MtoOptions
    options: MtoOptions
    Value = tuple[MessageId, int]
    advances = True

    causal: MatrixOrder

    ts: int  # the logical clock, moved by every message
    heard_of: dict[MessageId, Label]  # pending: R-delivered here or, as a timestamp shows, elsewhere; not decided
    entries: Table[MessageId, Received]
    rec_ts: Table[MessageId, Table[ProcessId, int]]
    proposed: set[MessageId]
    decided: dict[MessageId, tuple[Label, int]]  # sn of messages not R-delivered here yet
    queue: Heap[tuple[int, MessageId]]  # the delivery queue
    done: Labels  # what was TO-delivered

    def initialise(self) -> None:
        self.causal = self.part(MatrixOrder, "causal", tick=self.when_ticked, time=self.time)
        self.channel = self.causal  # from here on, everything that this protocol and its parts send
        self.reliable = self.make_reliable(self.when_r_delivered)
        self.consensus = self.make_consensus(self.when_decided, qualified=True)
        self.ts = 0
        self.heard_of, self.entries, self.rec_ts, self.decided = {}, {}, {}, {}
        self.proposed = set()
        self.queue = []
        self.done = Labels()

    @classmethod
    def check(cls, options: StackOptions, model: FaultModel) -> None:
        if model.permanent and not model.sent_survives:
            raise UsageError(
                "mto needs causal order, which waits for ever for a message lost with its sender: "
                "what is sent must survive."
            )
        super().check(options, model)

    def validate(self, message: Wire) -> None:
        assert isinstance(message, RecTs)
        message.label.check(self.topology, self.me)
        check_numbers((message.rec_ts,))

    def time(self) -> int:
        return self.ts

    def when_ticked(self, time: int) -> None:  # L1
        self.ts = max(self.ts, time)

    def multicast(self, m: Message) -> None:  # L2
        self.reliable.multicast(m)

    def when_r_delivered(self, m: Message, label: Label) -> None:  # L3
        self.ts = max(self.ts + 1, least_number(m))
        self.entries[m.id] = Received(m, label, self.ts)
        self.send(self.topology.addressees(m.destinations), RecTs(m.id, label, self.ts))  # L5
        if m.id in self.decided:
            self.number(m.id, self.decided.pop(m.id)[1])
        else:
            self.heard_of[m.id] = label  # L4
            self.start(m.id)

    def on_rec_ts(self, sender: ProcessId, message: RecTs) -> None:  # L6
        if not self.done.has(message.label, self.group) and self.sn(message.id) is None:
            self.heard_of[message.id] = message.label
            self.rec_ts.setdefault(message.id, {})[sender] = message.rec_ts
            self.start(message.id)

    def start(self, id: MessageId) -> None:
        entry, received = self.entries.get(id), self.rec_ts.get(id, {})
        if entry is None or id in self.proposed or entry.sn is not None:
            return
        if has_qualified_majority(set(received), entry.label.groups, self.topology):  # L7
            self.proposed.add(id)
            self.consensus.propose(entry.label, _encoder.encode((id, max(received.values()))))  # L8

    def when_decided(self, instance: Label, value: bytes) -> None:  # L9
        id, sn = self.decode(value)
        self.heard_of.pop(id, None)
        if id in self.entries:
            self.number(id, sn)
        else:
            self.decided[id] = (instance, sn)
            self.deliver_in_order()  # what waited for it need not, if its number is higher

    def number(self, id: MessageId, sn: int) -> None:
        entry = self.entries[id]
        entry.sn = sn
        self.rec_ts.pop(id, None)
        self.proposed.discard(id)
        self.ts = max(self.ts, sn)  # L10
        entry.predecessors = self.potential_predecessors()
        heappush(self.queue, (sn, id))
        self.deliver_in_order()

    def potential_predecessors(self) -> list[tuple[MessageId, Label]]:  # L11
        return [*self.heard_of.items(), *((id, label) for id, (label, _) in self.decided.items())]

    def deliver_in_order(self) -> None:  # L12
        while self.queue:
            sn, id = self.queue[0]
            entry = self.entries[id]
            while entry.predecessors:
                if self.may_precede(*entry.predecessors[-1], (sn, id)):  # L13
                    return
                entry.predecessors.pop()
            heappop(self.queue)
            del self.entries[id]
            self.done.add(entry.label, self.group)
            self.deliver(entry.message, (sn, *id))  # L14

    def may_precede(self, other: MessageId, label: Label, key: tuple[int, MessageId]) -> bool:
        """Whether another message is neither delivered nor known to come later. Equal numbers: the id decides."""
        if self.done.has(label, self.group):
            return False
        sn = self.sn(other)
        return sn is None or (sn, other) < key

    def sn(self, id: MessageId) -> int | None:
        if id in self.entries:
            return self.entries[id].sn
        return self.decided[id][1] if id in self.decided else None

    @staticmethod
    def ids_of(value: tuple[MessageId, int]) -> tuple[MessageId, ...]:
        return value[:1]

    @staticmethod
    def numbers_of(value: tuple[MessageId, int]) -> tuple[int, ...]:
        return value[1:]

    def pending(self) -> int:
        return len(self.entries) + self.reliable.pending()

    def waits_for(self) -> tuple[ProcessId, ...]:
        oldest = min(self.entries.values(), key=lambda entry: entry.rec_ts, default=None)
        if oldest is None or oldest.sn is not None:
            return ()
        id = oldest.message.id
        heard = (
            {} if id in self.proposed else self.rec_ts.get(id, {})
        )  # once proposed, it is the decision that is missing
        addressees = self.topology.addressees(oldest.label.groups)
        return tuple(p for p in addressees if p != self.me and p not in heard)


_encoder = msgspec.msgpack.Encoder()
