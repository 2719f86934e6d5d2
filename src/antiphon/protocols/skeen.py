"""Skeen's multicast, the total ordering of ISIS (slides.txt, "ISIS total-ordering protocol").

L1-L14 are the lines of docs/protocols/skeen.md; T1-T15 those with which the destinations finish what a dead sender
began, and go on without dead destinations (``-o takeover=true``); C1-C9 those that keep causal order, too
(``-o causal=true``).
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
from antiphon.core.floors import least_number
from antiphon.services.timestamp import TIME_MAX, Timestamp


class Start(Wire, frozen=True, tag=1):
    """Sender to addressees: here is m, propose a timestamp for it."""

    message: Message


class Propose(Wire, frozen=True, tag=2):
    """Addressee to sender: larger than any timestamp that I proposed or received before."""

    id: MessageId
    proposal: Timestamp


class Final(Wire, frozen=True, tag=3):
    """Sender to addressees: the largest proposal. Also the answer of an addressee that is asked and knows it."""

    id: MessageId
    timestamp: Timestamp


class Know(Wire, frozen=True, tag=4):
    """Addressee to addressees: I know the final timestamp of m."""

    id: MessageId


class TakeOver(Wire, frozen=True, tag=5):
    """Addressee to the one that leads m now: all before you are dead, and I do not know the final timestamp."""

    message: Message


_WITH_MESSAGE, _WITH_TIMESTAMP = (Start, TakeOver), (Propose, Final)


class Held(msgspec.Struct):
    """A message in the hold-back queue."""

    message: Message
    timestamp: Timestamp
    deliverable: bool = False
    known_by: Table[ProcessId, bool] = {}  # the other addressees known to know its final timestamp


class Collection(msgspec.Struct):
    """The proposals that a sender has for one of its messages."""

    message: Message
    proposals: Table[ProcessId, Timestamp] = {}
    stale: Table[ProcessId, int] = {}  # how many proposals are still to come that were asked for before the last time


class SkeenOptions(msgspec.Struct, frozen=True):
    takeover: bool = False  # whether the destinations go on without processes that never return
    causal: bool = False  # whether causal order is kept, too


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
    Options = SkeenOptions
    options: SkeenOptions
    added_options = ("causal",)
    advances = True

    clock: int
    collections: Table[MessageId, Collection]
    holdback: Table[MessageId, Held]
    queue: Heap[tuple[Timestamp, MessageId]]  # over holdback; entries with an old timestamp are skipped
    dead: list[ProcessId]  # those who never return: nothing more is taken from them, and nobody waits for them
    # With causal order
    own: list[Message]  # this process's messages without a final timestamp; with takeover, with one that not all know
    past: int  # no message that this process has delivered or decided has a later time
    known_by: Table[ProcessId, bool]  # with takeover: the addressees known to know the final timestamp of own[0]

    def initialise(self) -> None:
        self.clock = 0
        self.collections = {}
        self.holdback = {}
        self.queue = []
        self.dead = []
        self.own = []
        self.past = 0
        self.known_by = {}
        # What an addressee sends about a message before KNOW must not come after it: see on_take_over.
        self.transport = Transport.FIFO if self.options.takeover else Transport.RELIABLE

    @classmethod
    def assumes(cls, options: Any) -> Assumptions:
        if not options.takeover:
            return cls.declaration.assumes
        return Assumptions(failures=Failures.ALL_BUT_ONE, detector=Detector.PERFECT)

    @classmethod
    def own_promises(cls, options: Any) -> tuple[Promise, ...]:
        promised = super().own_promises(options)
        return (*promised, Promise.FIFO, Promise.CAUSAL) if options.causal else promised

    def begin(self) -> None:
        if self.options.takeover:
            self.watch()

    def validate(self, message: Wire) -> None:
        if isinstance(message, _WITH_MESSAGE):
            if self.topology.group_of.get(self.me) not in message.message.destinations:
                raise BadFrame(f"A message to {', '.join(message.message.destinations)} is not for {self.me}.")
        elif isinstance(message, _WITH_TIMESTAMP):
            time, process = message.proposal if isinstance(message, Propose) else message.timestamp
            known = process in self.topology.group_of
            if self.options.causal and isinstance(message, Final):
                known = known or process == message.id.origin  # see decide_in_order
            if not 0 < time < TIME_MAX or not known:
                raise BadFrame("A timestamp is a time from 1 on, of a member's clock.")

    def multicast(self, m: Message) -> None:  # L1
        if self.options.causal:
            self.own.append(m)  # C1
            if self.options.takeover and len(self.own) > 1:
                return  # C6
        self.start(m)

    def start(self, m: Message) -> None:
        self.collections[m.id] = Collection(m)  # L2
        self.send(self.addressees(m), Start(m))  # L3

    def addressees(self, m: Message) -> tuple[ProcessId, ...]:
        """Of those who are not known to be dead."""
        found, dead = self.process.topology.addressees(m.destinations), self.dead
        return tuple([p for p in found if p not in dead]) if dead else found

    def on_start(self, sender: ProcessId, start: Start) -> None:  # L4
        m = start.message
        if not self.may_lead(sender, m):
            return
        if self.options.takeover:
            self.bury_those_before(sender, m)  # T1
        held = self.holdback.get(m.id)
        if held is not None and held.deliverable:
            self.send(sender, Final(m.id, held.timestamp))  # T2
            return
        self.clock = max(self.clock + 1, least_number(m))  # L5
        proposal = Timestamp(self.clock, self.me)
        if held is None:  # else it stays where it is: its final timestamp may be known to somebody, and be smaller
            self.hold(m, proposal)  # L6
            if self.options.takeover:
                self.watch()
        self.send(sender, Propose(m.id, proposal))  # L7 T3

    def on_propose(self, sender: ProcessId, propose: Propose) -> None:  # L8
        collection = self.collections.get(propose.id)
        if collection is None or sender not in self.addressees(collection.message):
            return
        self.only_heard()
        if collection.stale and collection.stale.get(sender):
            collection.stale[sender] -= 1
        else:
            collection.proposals[sender] = propose.proposal
            self.decide(collection)

    def decide(self, collection: Collection) -> None:
        m = collection.message
        if self.options.causal and not self.options.takeover:
            self.decide_in_order()
        elif self.is_complete(collection):  # L9
            del self.collections[m.id]
            self.send(self.addressees(m), Final(m.id, max(collection.proposals.values())))  # L10

    def is_complete(self, collection: Collection) -> bool:
        return all(map(collection.proposals.__contains__, self.addressees(collection.message)))

    def on_final(self, sender: ProcessId, final: Final) -> None:  # L11
        held = self.holdback.get(final.id)
        if held is None or held.deliverable or not self.may_lead(sender, held.message):
            return  # it is late, or not from an honest process
        if final.timestamp < held.timestamp:
            return  # nor is this: a message only ever moves backwards in the queue
        is_heard = self.is_heard(final)
        if is_heard:
            self.only_heard()
        self.clock = max(self.clock, final.timestamp.time)  # L12
        held.deliverable = True
        self.hold(held.message, final.timestamp)
        if self.options.takeover:
            self.spread(held)
        self.deliver_head(early=is_heard)  # L13

    def is_heard(self, final: Final) -> bool:
        """Whether it only brings the sender's word: where the own clock is not behind, this process, should it forget
        that word, still proposes later than all that its readers have seen."""
        return final.timestamp.time <= self.clock and not (self.options.causal or self.options.takeover)  # L14

    def hold(self, m: Message, timestamp: Timestamp) -> Held:
        held = self.holdback.get(m.id)
        if held is None:
            held = self.holdback[m.id] = Held(m, timestamp)
        else:
            held.timestamp = timestamp
        heappush(self.queue, (timestamp, m.id))
        return held

    def deliver_head(self, *, early: bool = False) -> None:
        while self.queue:
            timestamp, id = self.queue[0]
            held = self.holdback.get(id)
            if held is None or held.timestamp != timestamp:
                heappop(self.queue)  # its message has moved backwards since
            elif held.deliverable and not self.ignorant(held):
                heappop(self.queue)
                del self.holdback[id]
                if self.options.causal:
                    self.past = max(self.past, timestamp.time)  # C2
                self.deliver(held.message, timestamp, early=early)
                if self.options.takeover:
                    self.watch()
            else:
                return

    # Causal order -------------------------------------------------------------------------------------------------
    #
    # What precedes m has a final timestamp before m gets one, and a smaller one. Whoever is addressed by both has then
    # proposed for what precedes, so it holds it back, and before m.

    def decide_in_order(self) -> None:
        while self.own and self.is_complete(collection := self.collections[self.own[0].id]):  # C3
            m = self.own.pop(0)
            del self.collections[m.id]
            final = max(collection.proposals.values())
            if final.time <= self.past:
                # Not the time after past: it may be used in a proposal of its own.
                final = Timestamp(self.clock + 1, self.me)  # C4
            self.past = final.time  # C5
            self.clock = max(self.clock, final.time)
            self.send(self.addressees(m), Final(m.id, final))

    def begin_next(self) -> None:
        """With takeover, the next message begins when all who live know the final timestamp of the one before.

        The leader of a message may be one that knows nothing of what precedes it. But each addressee proposes later
        than what it knows, and knows what precedes: its sender had waited for that, or delivered it after T7.
        """
        if self.options.takeover and self.own and all(p in self.known_by for p in self.addressees(self.own[0])):  # C8
            self.own.pop(0)
            self.known_by = {}
            if self.own:
                self.start(self.own[0])  # C9

    # Finishing what the dead began --------------------------------------------------------------------------------
    #
    # The first of a message's sender and addressees that lives leads it. One that knows the final timestamp never takes
    # another; one that was asked by a leader takes nothing from those before; and a leader hears from every addressee
    # that lives. So two leaders decide differently only if all who knew the first decision are dead; and they have not
    # delivered the message, for one does so only when every addressee that lives knows the timestamp.

    def spread(self, held: Held) -> None:
        m = held.message
        others = [p for p in self.addressees(m) if p != self.me]
        self.send(others, Know(m.id))  # T4
        if self.options.causal and m.id.origin not in others:
            self.send(m.id.origin, Know(m.id))  # C7
        if self.collections.pop(m.id, None) is not None:
            self.send(others, Final(m.id, held.timestamp))  # T5

    def on_know(self, sender: ProcessId, know: Know) -> None:
        held = self.holdback.get(know.id)
        if held is not None and sender not in self.dead:
            held.known_by[sender] = True  # T6
            self.deliver_head()
        if self.own and know.id == self.own[0].id:
            self.known_by[sender] = True
            self.begin_next()

    def ignorant(self, held: Held) -> list[ProcessId]:
        """The addressees that may not know the final timestamp."""
        if not self.options.takeover:
            return []
        return [p for p in self.addressees(held.message) if p != self.me and p not in held.known_by]  # T7

    def on_suspect(self, process: ProcessId) -> None:  # T8
        self.bury([process])

    def bury(self, processes: list[ProcessId]) -> None:
        fresh = [p for p in processes if p not in self.dead and p != self.me]
        if not fresh:
            return
        self.dead += fresh  # T9
        for id in sorted(self.collections):
            self.ask_again(self.collections[id], fresh)
        for id in sorted(self.holdback):
            held = self.holdback[id]
            if not held.deliverable and not set(fresh).isdisjoint(self.before(self.leader(held.message), held.message)):
                self.send(self.leader(held.message), TakeOver(held.message))  # T10
        self.deliver_head()
        self.begin_next()

    def ask_again(self, collection: Collection, fresh: list[ProcessId]) -> None:
        """What an addressee delivered before it died may be later than all proposals; those asked now know of it."""
        m = collection.message
        if any(p not in collection.proposals for p in self.topology.addressees(m.destinations) if p in fresh):
            for p in self.addressees(m):
                if p not in collection.proposals:
                    collection.stale[p] = collection.stale.get(p, 0) + 1
            collection.proposals = {}
            self.send(self.addressees(m), Start(m))  # T11

    def heirs(self, m: Message) -> list[ProcessId]:
        """Those who lead m, one after the other's death."""
        return list(dict.fromkeys((m.id.origin, *self.topology.addressees(m.destinations))))

    def leader(self, m: Message) -> ProcessId:
        return next(p for p in self.heirs(m) if p not in self.dead)

    def before(self, leader: ProcessId, m: Message) -> list[ProcessId]:
        heirs = self.heirs(m)
        return heirs[: heirs.index(leader)]

    def may_lead(self, process: ProcessId, m: Message) -> bool:
        if not self.options.takeover:
            return process == m.id.origin
        return process not in self.dead and process in self.heirs(m)

    def bury_those_before(self, leader: ProcessId, m: Message) -> None:
        """Who leads a message knows that those before are dead. What of them comes late must do no harm."""
        self.bury(self.before(leader, m))

    def on_take_over(self, sender: ProcessId, take_over: TakeOver) -> None:  # T12
        """m was not delivered here before: that takes a KNOW of this sender, which it sends after its TAKEOVER."""
        m = take_over.message
        if not self.options.takeover or not self.may_lead(sender, m):
            return
        self.bury_those_before(self.me, m)
        held = self.holdback.get(m.id)
        if held is not None and held.deliverable:
            self.send(sender, Final(m.id, held.timestamp))  # T13
        elif m.id not in self.collections:
            self.collections[m.id] = Collection(m)  # T14
            self.send(self.addressees(m), Start(m))  # T15

    def watch(self) -> None:
        """The failure detector is asked about all members, and about the senders outside of what is held back."""
        senders = sorted({id.origin for id in self.holdback if id.origin not in self.topology.group_of})
        self.monitor([*self.topology.processes, *senders])

    def pending(self) -> int:
        not_begun = len(self.own[1:]) if self.options.takeover else 0
        return len(self.holdback) + not_begun

    def waits_for(self) -> tuple[ProcessId, ...]:
        if self.collections:
            oldest = self.collections[min(self.collections)]
            return tuple(p for p in self.addressees(oldest.message) if p not in oldest.proposals)
        if self.own:
            return tuple(p for p in self.addressees(self.own[0]) if p not in self.known_by)
        head = self.holdback.get(self.queue[0][1]) if self.queue else None
        if head is None:
            return ()
        return tuple(self.ignorant(head)) if head.deliverable else (self.leader(head.message),)
