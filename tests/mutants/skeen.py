"""Skeen with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from heapq import heappop

from antiphon.core import Message, MessageId, ProcessId
from antiphon.core.keys import Key
from antiphon.protocols.skeen import (
    Collection,
    Final,
    Held,
    Know,
    Propose,
    Skeen,
    Start,
    TakeOver,
)
from antiphon.services.timestamp import Timestamp


class DeliversBeforeTheFinalTimestamp(Skeen):
    def on_start(self, sender: ProcessId, start: Start) -> None:
        super().on_start(sender, start)
        self.holdback[start.message.id].deliverable = True
        self.deliver_head()

    def on_final(self, sender: ProcessId, final: Final) -> None:
        if final.id in self.holdback:
            super().on_final(sender, final)


class TakesTheMinimumForTheMaximum(Skeen):
    def on_propose(self, sender: ProcessId, propose: Propose) -> None:
        collection = self.collections[propose.id]
        collection.proposals[sender] = propose.proposal
        addressees = self.topology.addressees(collection.message.destinations)
        if len(collection.proposals) == len(addressees):
            del self.collections[propose.id]
            self.send(addressees, Final(propose.id, min(collection.proposals.values())))

    def on_final(self, sender: ProcessId, final: Final) -> None:
        held = self.holdback[final.id]
        held.timestamp = min(held.timestamp, final.timestamp)  # steps around the assertion that would catch it
        super().on_final(sender, final)


class DoesNotRaiseTheClock(Skeen):
    def on_final(self, sender: ProcessId, final: Final) -> None:
        clock = self.clock
        super().on_final(sender, final)
        self.clock = clock


class IgnoresWhatIsPending(Skeen):
    def deliver_head(self, *, early: bool = False) -> None:
        for timestamp, id in sorted(self.queue):
            held = self.holdback.get(id)
            if held is not None and held.deliverable and held.timestamp == timestamp:
                del self.holdback[id]
                self.deliver(held.message, timestamp)


class ShowsThoughItsClockGrows(Skeen):
    """Readers see what is delivered by a final timestamp that this process may forget, and propose below it."""

    def is_heard(self, final: Final) -> bool:
        return not (self.options.causal or self.options.takeover)


class ForgetsItsClockOnRestart(Skeen):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.clock = 0


class ForgetsWhatItCollectedOnRestart(Skeen):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        for collection in self.collections.values():
            collection.proposals.clear()


class DoesNotAdvanceItsClock(Skeen):
    def on_start(self, sender: ProcessId, start: Start) -> None:
        self.clock = max(self.clock - 1, 0)
        super().on_start(sender, start)


class DoesNotWaitForTheLastProposal(Skeen):
    def on_propose(self, sender: ProcessId, propose: Propose) -> None:
        collection = self.collections.get(propose.id)
        if collection is None:
            return
        addressees = self.topology.addressees(collection.message.destinations)
        if len(collection.proposals) == max(len(addressees) - 2, 0):
            self.send(addressees, Final(propose.id, propose.proposal))
            del self.collections[propose.id]
        else:
            collection.proposals[sender] = propose.proposal

    def on_final(self, sender: ProcessId, final: Final) -> None:
        held = self.holdback.get(final.id)
        if held is not None:
            held.timestamp = min(held.timestamp, final.timestamp)
            super().on_final(sender, final)


class TellsNotEveryAddressee(Skeen):
    def on_final(self, sender: ProcessId, final: Final) -> None:
        if final.timestamp.time % 7:
            super().on_final(sender, final)


class DeliversTwice(Skeen):
    def deliver(self, m: Message, key: Key | None = None, *, early: bool = False) -> None:
        super().deliver(m, key, early=early)
        if self.clock % 9 == 0:
            super().deliver(m, key)


class AsksABystander(Skeen):
    def multicast(self, m: Message) -> None:
        super().multicast(m)
        bystanders = [p for p in self.topology.processes if self.topology.group_of[p] not in m.destinations]
        if bystanders:
            self.send(bystanders[0], Propose(m.id, Timestamp(0, self.me)))

    def on_propose(self, sender: ProcessId, propose: Propose) -> None:
        if propose.id in self.collections:
            super().on_propose(sender, propose)


class ProposesWithoutItsName(Skeen):
    """Equal times of two processes are equal timestamps."""

    def on_start(self, sender: ProcessId, start: Start) -> None:
        self.clock += 1
        proposal = Timestamp(self.clock, ProcessId(""))
        self.hold(start.message, proposal)
        self.send(sender, Propose(start.message.id, proposal))


class AsksOneMemberOfEachGroup(Skeen):
    """Sends the final timestamp when each group has made a proposal, whichever of its members."""

    def on_propose(self, sender: ProcessId, propose: Propose) -> None:
        collection = self.collections.get(propose.id)
        if collection is None:
            return
        collection.proposals[sender] = propose.proposal
        destinations = collection.message.destinations
        if {self.topology.group_of[p] for p in collection.proposals} == set(destinations):
            del self.collections[propose.id]
            final = Final(propose.id, max(collection.proposals.values()))
            self.send(self.topology.addressees(destinations), final)

    def on_final(self, sender: ProcessId, final: Final) -> None:
        held = self.holdback[final.id]
        held.timestamp = min(held.timestamp, final.timestamp)  # steps around the assertion that would catch it
        super().on_final(sender, final)


class DeliversTheHeadOnly(Skeen):
    """One message for each final timestamp, whatever has become deliverable behind it."""

    def deliver(self, m: Message, key: Key | None = None, *, early: bool = False) -> None:
        super().deliver(m, key, early=early)
        self.stopped = True

    def deliver_head(self, *, early: bool = False) -> None:
        self.stopped = False
        while self.queue and not self.stopped:
            timestamp, id = self.queue[0]
            held = self.holdback.get(id)
            if held is not None and held.timestamp == timestamp and not held.deliverable:
                return
            heappop(self.queue)
            if held is not None and held.timestamp == timestamp:
                del self.holdback[id]
                self.deliver(held.message, timestamp)


# Takeover ------------------------------------------------------------------------------------------------------------


class DoesNotTakeOver(Skeen):
    """What a dead sender began stays undecided."""

    def on_take_over(self, sender: ProcessId, take_over: TakeOver) -> None:
        pass


class TakesOverWithTheSmallest(Skeen):
    def decide(self, collection: Collection) -> None:
        m = collection.message
        if m.id.origin != self.me and all(p in collection.proposals for p in self.addressees(m)):
            del self.collections[m.id]
            self.send(self.addressees(m), Final(m.id, min(collection.proposals.values())))
        else:
            super().decide(collection)

    def on_final(self, sender: ProcessId, final: Final) -> None:
        held = self.holdback.get(final.id)
        if held is not None and not held.deliverable:
            held.timestamp = min(held.timestamp, final.timestamp)
        super().on_final(sender, final)


class ForgetsThatItKnowsTheFinalTimestamp(Skeen):
    """When another leader asks, it proposes as if nothing had been decided; and takes the new decision."""

    def on_start(self, sender: ProcessId, start: Start) -> None:
        held = self.holdback.get(start.message.id)
        if held is not None and self.may_lead(sender, start.message):
            held.deliverable = False
        super().on_start(sender, start)


class WaitsForTheProposalOfTheDead(Skeen):
    def ask_again(self, collection: Collection, fresh: list[ProcessId]) -> None:
        pass

    def decide(self, collection: Collection) -> None:
        if len(collection.proposals) == len(self.topology.addressees(collection.message.destinations)):
            super().decide(collection)


class WaitsForTheDeadToKnow(Skeen):
    def ignorant(self, held: Held) -> list[ProcessId]:
        if not self.options.takeover:
            return []
        addressees = self.topology.addressees(held.message.destinations)
        return [p for p in addressees if p != self.me and p not in held.known_by]


class DeliversBeforeAllKnow(Skeen):
    """It may die with a timestamp that nobody else knows."""

    def ignorant(self, held: Held) -> list[ProcessId]:
        return []


class WaitsUntilItsOwnGroupKnows(Skeen):
    def ignorant(self, held: Held) -> list[ProcessId]:
        return [p for p in super().ignorant(held) if p in self.topology.members(self.group)]


class TakesFramesOfTheDead(Skeen):
    def may_lead(self, process: ProcessId, m: Message) -> bool:
        return process in self.heirs(m)


class DoesNotBuryThoseBeforeTheLeader(Skeen):
    """Takes the dead sender's frames until its own detector speaks, though another leads already."""

    def bury_those_before(self, leader: ProcessId, m: Message) -> None:
        pass


class TakesOverOnlyWhatItHas(Skeen):
    """A message that reached only others is not brought to all."""

    def on_take_over(self, sender: ProcessId, take_over: TakeOver) -> None:
        if take_over.message.id in self.holdback:
            super().on_take_over(sender, take_over)


class AsksOnlyItself(Skeen):
    """The new leader decides alone."""

    def on_take_over(self, sender: ProcessId, take_over: TakeOver) -> None:
        known = set(self.collections)
        super().on_take_over(sender, take_over)
        m = take_over.message
        if m.id in self.collections and m.id not in known:
            self.clock += 1
            del self.collections[m.id]
            self.send(self.addressees(m), Final(m.id, Timestamp(self.clock, self.me)))


class TakesOverFromTheSenderOnly(Skeen):
    """When the new leader dies too, nobody follows."""

    def on_take_over(self, sender: ProcessId, take_over: TakeOver) -> None:
        addressees = self.topology.addressees(take_over.message.destinations)
        if self.me in addressees[:2]:
            super().on_take_over(sender, take_over)


class DoesNotWatchSendersOutside(Skeen):
    def watch(self) -> None:
        if self.options.takeover:
            self.monitor(self.topology.processes)


class DoesNotAskAgain(Skeen):
    """Decides with the proposals that it has when it leaves out an addressee that made none."""

    def ask_again(self, collection: Collection, fresh: list[ProcessId]) -> None:
        self.decide(collection)


class ProposesTheSameAgain(Skeen):
    """When it is asked again: though it knows now of later ones that the dead delivered."""

    def send(self, to, message) -> None:  # type: ignore[no-untyped-def]
        if isinstance(message, Propose) and message.id in self.holdback:
            message = Propose(message.id, self.holdback[message.id].timestamp)
        super().send(to, message)


class MovesBackWhenItIsAskedAgain(Skeen):
    """Though the final timestamp may be known to somebody, and be smaller."""

    def on_start(self, sender: ProcessId, start: Start) -> None:
        super().on_start(sender, start)
        held = self.holdback.get(start.message.id)
        if held is not None and not held.deliverable and self.may_lead(sender, start.message):
            self.hold(start.message, Timestamp(self.clock, self.me))

    def on_final(self, sender: ProcessId, final: Final) -> None:
        held = self.holdback.get(final.id)
        if held is not None and not held.deliverable:
            held.timestamp = min(held.timestamp, final.timestamp)
        super().on_final(sender, final)


class TakesAnOldProposalForANewOne(Skeen):
    def ask_again(self, collection: Collection, fresh: list[ProcessId]) -> None:
        super().ask_again(collection, fresh)
        collection.stale = {}


class DropsWhatTheDeadBegan(Skeen):
    """An addressee forgets the undecided messages of a dead sender: others may know the final timestamp."""

    def on_suspect(self, process: ProcessId) -> None:
        for id in [id for id, held in self.holdback.items() if id.origin == process and not held.deliverable]:
            del self.holdback[id]
        super().on_suspect(process)


class DoesNotSayThatItKnows(Skeen):
    def on_know(self, sender: ProcessId, know: Know) -> None:
        if know.id.number % 5:
            super().on_know(sender, know)


class ForgetsWhatItLeadsOnRestart(Skeen):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        own: dict[MessageId, Collection] = {id: c for id, c in self.collections.items() if id.origin == self.me}
        self.collections = own


class ForgetsTheDeadOnRestart(Skeen):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.dead = []


# Causal order --------------------------------------------------------------------------------------------------------


class CausalDecidesInAnyOrder(Skeen):
    """Whichever of its messages has all proposals first."""

    def decide_in_order(self) -> None:
        self.own.sort(key=lambda m: not self.is_complete(self.collections[m.id]))
        super().decide_in_order()


class CausalIgnoresWhatItDelivered(Skeen):
    def deliver(self, m: Message, key: Key | None = None, *, early: bool = False) -> None:
        self.past = self.decided
        super().deliver(m, key, early=early)

    def initialise(self) -> None:
        super().initialise()
        self.decided = 0

    def send(self, to, message) -> None:  # type: ignore[no-untyped-def]
        if isinstance(message, Final):
            self.decided = max(self.decided, message.timestamp.time)
        super().send(to, message)


class CausalIgnoresWhatItDecided(Skeen):
    def decide_in_order(self) -> None:
        past = self.past
        super().decide_in_order()
        self.past = past


class CausalTakesTheLargestProposal(Skeen):
    """In order, but not later than what precedes."""

    def decide_in_order(self) -> None:
        self.past = 0
        super().decide_in_order()


class CausalTakesATimeTwice(Skeen):
    """It uses the next time after its past, though its clock may be ahead, and have given it away."""

    def decide_in_order(self) -> None:
        clock, self.clock = self.clock, self.past
        super().decide_in_order()
        self.clock = max(self.clock, clock)


class CausalKeepsItsClock(Skeen):
    """What it decided does not move its clock: it may choose the same timestamp again."""

    def decide_in_order(self) -> None:
        clock = self.clock
        super().decide_in_order()
        self.clock = clock


class CausalForgetsItsPastOnRestart(Skeen):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.past = 0


class CausalForgetsWhatWaitsOnRestart(Skeen):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.own = self.own[:1]


class CausalBeginsAtOnce(Skeen):
    """With takeover: it does not wait until all know."""

    def multicast(self, m: Message) -> None:
        if self.options.takeover:
            self.start(m)
        else:
            super().multicast(m)


class CausalBeginsWhenItHasDecided(Skeen):
    """With takeover: those who take over may decide otherwise."""

    def decide(self, collection: Collection) -> None:
        super().decide(collection)
        m = collection.message
        if self.options.takeover and m.id not in self.collections and self.own and self.own[0].id == m.id:
            self.known_by = dict.fromkeys(self.addressees(m), True)
            self.begin_next()


class CausalBeginsWhenOneKnows(Skeen):
    def on_know(self, sender: ProcessId, know: Know) -> None:
        if self.own and know.id == self.own[0].id:
            self.known_by = dict.fromkeys(self.addressees(self.own[0]), True)
        super().on_know(sender, know)


class CausalWaitsForTheDead(Skeen):
    """With takeover: what waits for somebody who has died waits for ever."""

    def begin_next(self) -> None:
        if self.own and all(p in self.known_by for p in self.topology.addressees(self.own[0].destinations)):
            super().begin_next()


class CausalBeginsTheNewestFirst(Skeen):
    def start(self, m: Message) -> None:
        if self.options.takeover and self.own:
            self.own.insert(0, self.own.pop())
            m = self.own[0]
        super().start(m)


class CausalTellsNoSenderOutside(Skeen):
    def send(self, to, message) -> None:  # type: ignore[no-untyped-def]
        if not (isinstance(message, Know) and isinstance(to, str) and to not in self.topology.group_of):
            super().send(to, message)


SEARCHED = (  # the search has a small world for each of these, too (scopes.py)
    DeliversBeforeTheFinalTimestamp,
    TakesTheMinimumForTheMaximum,
    DoesNotRaiseTheClock,
    IgnoresWhatIsPending,
    ForgetsItsClockOnRestart,
    ForgetsWhatItCollectedOnRestart,
    DoesNotAdvanceItsClock,
    DoesNotWaitForTheLastProposal,
    TellsNotEveryAddressee,
    DeliversTwice,
    AsksABystander,
)

MUTANTS = (
    *SEARCHED,
    AsksOneMemberOfEachGroup,
    DeliversTheHeadOnly,
    DoesNotTakeOver,
    TakesOverWithTheSmallest,
    WaitsForTheProposalOfTheDead,
    WaitsForTheDeadToKnow,
    DeliversBeforeAllKnow,
    WaitsUntilItsOwnGroupKnows,
    TakesFramesOfTheDead,
    TakesOverOnlyWhatItHas,
    AsksOnlyItself,
    TakesOverFromTheSenderOnly,
    DoesNotWatchSendersOutside,
    ProposesTheSameAgain,
    MovesBackWhenItIsAskedAgain,
    DropsWhatTheDeadBegan,
    DoesNotSayThatItKnows,
    ForgetsTheDeadOnRestart,
    CausalDecidesInAnyOrder,
    CausalIgnoresWhatItDecided,
    CausalTakesTheLargestProposal,
    CausalKeepsItsClock,
    CausalForgetsItsPastOnRestart,
    CausalForgetsWhatWaitsOnRestart,
    CausalBeginsAtOnce,
    CausalWaitsForTheDead,
    CausalBeginsTheNewestFirst,
    CausalTellsNoSenderOutside,
)

# What takes a coincidence: each of these has a run of its own in tests/papers, test_takeover.py,
# test_causal_skeen.py or test_shown_skeen.py ...
BY_HAND = (
    ShowsThoughItsClockGrows,
    ForgetsThatItKnowsTheFinalTimestamp,
    DoesNotBuryThoseBeforeTheLeader,
    DoesNotAskAgain,
    TakesAnOldProposalForANewOne,
    CausalIgnoresWhatItDelivered,
    CausalTakesATimeTwice,
    CausalBeginsWhenItHasDecided,
    CausalBeginsWhenOneKnows,
)

# ... and these a seed that shows it where all runs have ``takeover=true`` (tests/simulation/test_kept_skeen.py).
RARE = {
    ForgetsWhatItLeadsOnRestart: 819,
}
