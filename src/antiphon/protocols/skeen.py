"""Skeen's multicast, the total ordering of ISIS (slides.txt, "ISIS total-ordering protocol").

L1-L13 are the lines of docs/protocols/skeen.md.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import msgspec

from antiphon.core import (
    Assumptions,
    Declaration,
    Failures,
    Heap,
    Message,
    MessageId,
    OrderingProtocol,
    ProcessId,
    Promise,
    Table,
    Wire,
)


class Timestamp(NamedTuple):
    """A time of some process's clock; no two messages have the same one in the end."""

    time: int
    process: ProcessId


class Start(Wire, frozen=True, tag=1):
    """Sender to addressees: here is m, propose a timestamp for it."""

    message: Message


class Propose(Wire, frozen=True, tag=2):
    """Addressee to sender: larger than any timestamp that I proposed or received before."""

    id: MessageId
    proposal: Timestamp


class Final(Wire, frozen=True, tag=3):
    """Sender to addressees: the largest proposal."""

    id: MessageId
    timestamp: Timestamp


class Held(msgspec.Struct):
    """A message in the hold-back queue."""

    message: Message
    timestamp: Timestamp
    deliverable: bool = False


class Collection(msgspec.Struct):
    """The proposals that a sender has for one of its messages."""

    message: Message
    proposals: Table[ProcessId, Timestamp] = {}


class Skeen(OrderingProtocol):
    declaration = Declaration(
        name="skeen",
        title="Skeen's multicast (ISIS)",
        source="lecture slides, Totally ordered multicast 4 to 9",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY),
        promises=(
            Promise.VALIDITY,
            Promise.INTEGRITY,
            Promise.UNIFORM_AGREEMENT,
            Promise.TOTAL_ORDER,
            Promise.ACYCLIC_ORDER,
            Promise.GENUINENESS,
        ),
    )

    clock: int
    collections: Table[MessageId, Collection]
    holdback: Table[MessageId, Held]
    queue: Heap[tuple[Timestamp, MessageId]]  # over holdback; entries with an old timestamp are skipped

    def initialise(self) -> None:
        self.clock = 0
        self.collections = {}
        self.holdback = {}
        self.queue = []

    def multicast(self, m: Message) -> None:  # L1
        self.collections[m.id] = Collection(m)  # L2
        self.send(self.topology.addressees(m.destinations), Start(m))  # L3

    def on_start(self, sender: ProcessId, start: Start) -> None:  # L4
        self.clock += 1  # L5
        self.hold(start.message, Timestamp(self.clock, self.me))  # L6
        self.send(sender, Propose(start.message.id, Timestamp(self.clock, self.me)))  # L7

    def on_propose(self, sender: ProcessId, propose: Propose) -> None:  # L8
        collection = self.collections[propose.id]
        collection.proposals[sender] = propose.proposal
        addressees = self.topology.addressees(collection.message.destinations)
        if len(collection.proposals) == len(addressees):  # L9
            del self.collections[propose.id]
            self.send(addressees, Final(propose.id, max(collection.proposals.values())))  # L10

    def on_final(self, sender: ProcessId, final: Final) -> None:  # L11
        self.clock = max(self.clock, final.timestamp.time)  # L12
        held = self.holdback[final.id]
        assert final.timestamp >= held.timestamp, "a message only ever moves backwards in the queue"
        held.deliverable = True
        self.hold(held.message, final.timestamp)
        self.deliver_head()  # L13

    def hold(self, m: Message, timestamp: Timestamp) -> None:
        held = self.holdback.get(m.id)
        if held is None:
            self.holdback[m.id] = Held(m, timestamp)
        else:
            held.timestamp = timestamp
        heappush(self.queue, (timestamp, m.id))

    def deliver_head(self) -> None:
        while self.queue:
            timestamp, id = self.queue[0]
            held = self.holdback.get(id)
            if held is None or held.timestamp != timestamp:
                heappop(self.queue)  # its message has moved backwards since
            elif held.deliverable:
                heappop(self.queue)
                del self.holdback[id]
                self.deliver(held.message, timestamp)
            else:
                return

    def pending(self) -> int:
        return len(self.holdback)

    def waits_for(self) -> tuple[ProcessId, ...]:
        if self.collections:
            oldest = self.collections[min(self.collections)]
            addressees = self.topology.addressees(oldest.message.destinations)
            return tuple(p for p in addressees if p not in oldest.proposals)
        head = self.holdback.get(self.queue[0][1]) if self.queue else None
        return (head.message.id.origin,) if head is not None and not head.deliverable else ()
