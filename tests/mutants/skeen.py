"""Skeen with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from heapq import heappop

from antiphon.core import Message, ProcessId
from antiphon.core.keys import Key
from antiphon.protocols.skeen import Final, Propose, Skeen, Start, Timestamp


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
    def deliver_head(self) -> None:
        for timestamp, id in sorted(self.queue):
            held = self.holdback.get(id)
            if held is not None and held.deliverable and held.timestamp == timestamp:
                del self.holdback[id]
                self.deliver(held.message, timestamp)


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
    def deliver(self, m: Message, key: Key | None = None) -> None:
        super().deliver(m, key)
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

    def deliver(self, m: Message, key: Key | None = None) -> None:
        super().deliver(m, key)
        self.stopped = True

    def deliver_head(self) -> None:
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
)
