"""TOM with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from heapq import heappush

from antiphon.core import GroupId, MessageId
from antiphon.protocols.tom import Decision, GroupTimestamp, Queued, Stamp, Tom
from mutants.parts import (
    CtDecidesItsOwnValueOnSuspicion,
    CtDecidesOnOneAcknowledgement,
    CtRotatesAmongAMajority,
    HrDecidesItsOwnValueOnSuspicion,
    HrDecidesWithoutAMajority,
    HrRotatesAmongAMajority,
    UniformDeliversTheFirstCopy,
    UniformDoesNotEcho,
    over_consensus,
    over_reliable,
)


class Opened(Tom):
    """TOM itself, with its steps where a mutant can reach them, and without the assertions that would stop one."""

    def apply(self) -> None:
        while (decision := self.decisions.get(self.applied + 1)) is not None:
            if self.is_blocked(decision):
                return
            self.applied += 1
            del self.decisions[self.applied]
            self.carry_out(decision)

    def is_blocked(self, decision: Decision) -> bool:
        return any(id not in self.queue for id in decision.new)

    def carry_out(self, decision: Decision) -> None:
        new = [id for id in decision.new if id in self.queue and self.queue[id].stamp is None]
        if new:
            self.advance()
        for id in new:
            self.timestamp(id)
        self.announce()
        for id, stamp in decision.definitive:
            self.follow(stamp)
            self.resynchronise(id, stamp)
        self.lagging = {id: s for id, s in self.lagging.items() if not self.is_synchronised(self.queue[id])}
        for id in new:
            self.settle(id)
        self.deliver_lowest()

    def advance(self) -> None:
        self.clock += 1

    def follow(self, stamp: Stamp) -> None:
        self.clock = max(self.clock, stamp.clock)

    def greatest(self, stamps: dict[GroupId, Stamp]) -> Stamp:
        return max(stamps.values())

    def has_all(self, entry: Queued, stamps: dict[GroupId, Stamp]) -> bool:
        return len(stamps) >= len(entry.message.destinations)

    def settle(self, id: MessageId) -> None:
        entry, stamps = self.queue.get(id), self.stamps.get(id, {})
        if entry is None or entry.definitive or not stamps or not self.has_all(entry, stamps):
            return
        self.define(id, entry, self.greatest(stamps))

    def note(self, timestamp: GroupTimestamp) -> None:
        if not self.done.has(timestamp.label, self.group):
            self.stamps.setdefault(timestamp.id, {})[timestamp.stamp.group] = timestamp.stamp
            self.settle(timestamp.id)

    def place(self, id: MessageId, entry: Queued, stamp: Stamp) -> None:
        if stamp != entry.stamp:
            entry.stamp = stamp
            heappush(self.order, (stamp, id))


class DoesNotResynchronise(Opened):
    """Delivers what is definitive though the group's clock lags behind it."""

    def settle(self, id: MessageId) -> None:
        super().settle(id)
        if id in self.lagging:
            del self.lagging[id]
            self.queue[id].resynchronised = True


class DeliversOnTheGroupsProposal(Opened):
    def timestamp(self, id: MessageId) -> None:
        super().timestamp(id)
        self.queue[id].definitive = self.queue[id].resynchronised = True


class TakesTheMinimumForTheMaximum(Opened):
    def greatest(self, stamps: dict[GroupId, Stamp]) -> Stamp:
        return min(stamps.values())


class DoesNotWaitForTheLastGroup(Opened):
    def has_all(self, entry: Queued, stamps: dict[GroupId, Stamp]) -> bool:
        return self.group in stamps and len(stamps) >= len(entry.message.destinations) - 1


class DoesNotTellTheLastGroup(Opened):
    def note(self, timestamp: GroupTimestamp) -> None:
        """As if it had never been sent: the last destination group hears of nobody else's timestamp."""
        if timestamp.label.groups[-1] != self.group:
            super().note(timestamp)


class BreaksTiesByArrival(Opened):
    """Messages of one set: the one that was R-delivered here first, instead of the lower id."""

    def deliver_lowest(self) -> None:
        while True:
            stamped = [(e.stamp, e.age, id) for id, e in self.queue.items() if e.stamp is not None]
            if not stamped:
                return
            _, _, id = min(stamped)
            entry = self.queue[id]
            if not self.is_synchronised(entry):
                return
            del self.queue[id]
            del self.stamps[id]
            self.done.add(entry.label, self.group)
            self.deliver(entry.message)


class IgnoresLowerProposals(Opened):
    """Delivers by definitive timestamps, but does not wait for messages that have no more than a proposal."""

    def deliver_lowest(self) -> None:
        for stamp, id in sorted(self.order):
            entry = self.queue.get(id)
            if entry is not None and entry.stamp == stamp and self.is_synchronised(entry):
                del self.queue[id]
                del self.stamps[id]
                self.done.add(entry.label, self.group)
                self.deliver(entry.message)


class AppliesDecisionsAsTheyCome(Opened):
    decisions: dict[int, Decision]  # here their order shows

    def apply(self) -> None:
        for number in [n for n, decision in self.decisions.items() if not self.is_blocked(decision)]:
            self.applied = max(self.applied, number)
            self.carry_out(self.decisions.pop(number))


class DoesNotWaitForItsMessages(Opened):
    """Carries a decision out without the messages of it that are not here yet; they are timestamped when they are."""

    def is_blocked(self, decision: Decision) -> bool:
        return False


class DoesNotAdvanceTheClock(Opened):
    def advance(self) -> None:
        self.clock = max(self.clock, 1)


class DoesNotFollowDefinitiveTimestamps(Opened):
    def follow(self, stamp: Stamp) -> None:
        pass


class NeverProposesToResynchronise(Opened):
    def start(self) -> None:
        lagging, self.lagging = self.lagging, {}
        super().start()
        self.lagging = lagging


class ForgetsItsClockOnRestart(Opened):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.clock = 0


class ForgetsTheOrderOnRestart(Opened):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.order = []


class ForgetsWhatItAppliedOnRestart(Opened):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.applied = max(self.applied - 1, 0)


class ShowsTheTimestampToABystander(Opened):
    def timestamp(self, id: MessageId) -> None:
        super().timestamp(id)
        entry = self.queue[id]
        bystanders = [p for p in self.topology.processes if self.topology.group_of[p] not in entry.message.destinations]
        assert entry.stamp is not None
        self.send(bystanders[:1], GroupTimestamp(id, entry.label, entry.stamp))

    def note(self, timestamp: GroupTimestamp) -> None:
        if self.group in timestamp.label.groups:
            super().note(timestamp)


class DropsTimestampsThatComeFirst(Tom):
    """Another group's timestamp for a message that is not here yet."""

    def note(self, timestamp: GroupTimestamp) -> None:
        if timestamp.id in self.queue:
            super().note(timestamp)


class TakesTheClockAlone(Tom):
    """The definitive timestamp has the highest clock, but the own group's name."""

    def settle(self, id: MessageId) -> None:
        entry, stamps = self.queue.get(id), self.stamps.get(id, {})
        if entry is not None and not entry.definitive and len(stamps) == len(entry.message.destinations):
            stamps[self.group] = Stamp(max(stamps.values()).clock, self.group)
            for group in stamps:
                stamps[group] = stamps[self.group]
        super().settle(id)


class FollowsOneDefinitiveTimestamp(Tom):
    """Of all in a decision, it carries out the first."""

    def apply(self) -> None:
        decision = self.decisions.get(self.applied + 1)
        if decision is not None:
            self.decisions[self.applied + 1] = Decision(decision.new, decision.definitive[:1])
        super().apply()


class SkipsTheConsensusWithoutSets(Tom):
    """With one message in each consensus, too, it takes a clock that is far enough for a synchronised group."""

    def is_synchronised(self, entry: Queued) -> bool:
        has_reached = entry.stamp is not None and entry.stamp.clock <= self.clock
        return super().is_synchronised(entry) or (entry.definitive and has_reached)


class ForgetsTheOtherGroupsTimestampsOnRestart(Tom):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        for stamps in self.stamps.values():
            for group in [group for group in stamps if group != self.group]:
                del stamps[group]


class ForgetsWhatItDeliveredOnRestart(Tom):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.done.streams.clear()


SEARCHED = (  # the search has a small world for each of these, too (scopes.py)
    DoesNotResynchronise,
    DeliversOnTheGroupsProposal,
    TakesTheMinimumForTheMaximum,
    DoesNotWaitForTheLastGroup,
    DoesNotTellTheLastGroup,
    BreaksTiesByArrival,
    IgnoresLowerProposals,
    AppliesDecisionsAsTheyCome,
    DoesNotWaitForItsMessages,
    DoesNotAdvanceTheClock,
    DoesNotFollowDefinitiveTimestamps,
    NeverProposesToResynchronise,
    ForgetsItsClockOnRestart,
    ForgetsTheOrderOnRestart,
    ForgetsWhatItAppliedOnRestart,
    ShowsTheTimestampToABystander,
    over_consensus(Tom, CtDecidesItsOwnValueOnSuspicion, HrDecidesItsOwnValueOnSuspicion),
    over_consensus(Tom, CtDecidesOnOneAcknowledgement, HrDecidesWithoutAMajority),
    over_consensus(Tom, CtRotatesAmongAMajority, HrRotatesAmongAMajority),
    over_reliable(Tom, UniformDoesNotEcho),
    over_reliable(Tom, UniformDeliversTheFirstCopy),
)

MUTANTS = (
    *SEARCHED,
    DropsTimestampsThatComeFirst,
    TakesTheClockAlone,
    ForgetsTheOtherGroupsTimestampsOnRestart,
)
