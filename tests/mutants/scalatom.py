"""SCALATOM with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

import msgspec

from antiphon.core import Message, MessageId, ProcessId, Wire
from antiphon.core.keys import Key
from antiphon.protocols.scalatom import Buffered, History, KnownHistory, RecTs, Scalatom
from antiphon.services.label import Label, has_qualified_majority, majority
from mutants.parts import (
    CtDecidesItsOwnValueOnSuspicion,
    CtRotatesAmongAMajority,
    HrDecidesItsOwnValueOnSuspicion,
    HrRotatesAmongAMajority,
    HrVotesWithItsOwnEstimate,
    UniformDeliversTheFirstCopy,
    UniformDoesNotEcho,
    over_consensus,
    over_reliable,
)


class Opened(Scalatom):
    """SCALATOM itself, with its conditions where a mutant can reach them."""

    def has_enough(self, who: set[ProcessId], label: Label) -> bool:
        return has_qualified_majority(who, label.groups, self.topology)

    def proposal(self, received: list[int]) -> int:
        return max(received)

    def start(self, id: MessageId) -> None:
        entry, received = self.entries.get(id), self.rec_ts.get(id, {})
        if entry is None or id in self.proposed or id in self.sn:
            return
        if self.has_enough(set(received), entry.label):
            self.proposed.add(id)
            self.agree(id, entry.label, self.proposal(list(received.values())))

    def agree(self, id: MessageId, label: Label, sn: int) -> None:
        self.consensus.propose(label, msgspec.msgpack.encode((id, sn)))

    @property
    def needed(self) -> int:
        return majority(self.topology.members(self.group))

    def compute_pps(self) -> None:
        clocks = sorted((view.clock for view in self.views.values()), reverse=True)
        shown = clocks[self.needed - 1] if len(clocks) >= self.needed else 0
        while self.computing and self.computing[0][0] < shown:
            heappush(self.queue, heappop(self.computing))


class SimpleForQualifiedMajority(Opened):
    def has_enough(self, who: set[ProcessId], label: Label) -> bool:
        return len(who) >= majority(self.topology.addressees(label.groups))


class TakesTheMinimumForTheMaximum(Opened):
    def proposal(self, received: list[int]) -> int:
        return min(received)


class DeliversOnTheProposal(Opened):
    """Without consensus: each process trusts the timestamps that it happened to receive first."""

    def agree(self, id: MessageId, label: Label, sn: int) -> None:
        self.number(id, sn)


class GossipsBeforeItRaisesTheClock(Opened):
    """The history says that nothing below the raised clock will follow, but the clock is raised only at delivery."""

    announced: int

    def initialise(self) -> None:
        super().initialise()
        self.announced = 0

    def number(self, id: MessageId, sn: int) -> None:
        before = self.ts
        super().number(id, sn)
        self.ts = before

    def increment(self, id: MessageId) -> History:
        increment = super().increment(id)
        self.announced = self.gossiped_clock = max(self.announced, increment.clock)
        return History(increment.index, increment.events, self.announced, id)

    def deliver(self, m: Message, key: Key | None = None) -> None:
        super().deliver(m, key)
        assert key is not None
        sn = key[0]
        assert isinstance(sn, int)
        self.ts = max(self.ts, sn + 1)


class NeverRaisesTheClock(GossipsBeforeItRaisesTheClock):
    """A decision does not move the clock at all."""

    def deliver(self, m: Message, key: Key | None = None) -> None:
        Opened.deliver(self, m, key)


class PpsFromOneProcess(Opened):
    needed = 1  # type: ignore[assignment]


class LeavesTiesOutOfPps(Opened):
    """Strictly lower timestamps only, as Figure 5 reads; with a tie-break that is too few (R10)."""

    def has_predecessor(self, sn: int) -> bool:
        return super().has_predecessor(sn - 1)


class LogsTheTimestampAfterTheIncrement(Opened):
    """Step 2 to the letter: the history has the raised timestamp, and PPS those strictly below sn (R10)."""

    def has_predecessor(self, sn: int) -> bool:
        return super().has_predecessor(sn - 2)


class TakesHistoriesAsTheyCome(Opened):
    """Ignores the indices: an increment that overtook an earlier one counts as everything up to its clock.

    The suite's seeds do not show it; tests/papers/test_scalatom.py has a run that does.
    """

    def on_history(self, sender: ProcessId, increment: History) -> None:
        view = self.views.setdefault(sender, KnownHistory())
        view.clock = max(view.clock, increment.clock)
        for id, label, rec_ts in increment.events:
            heappush(self.predecessors, (rec_ts, id, label))
        self.compute_pps()
        self.deliver_in_order()


class DeliversWithoutItsPredecessors(Opened):
    """Neither those without a number nor those with a lower one that are not here."""

    def deliver_in_order(self) -> None:
        for sn, id in sorted(self.queue):
            if id in self.entries:
                self.queue.remove((sn, id))
                self.hand_over(id)
        heapify(self.queue)


class WaitsOnlyForNumberedPredecessors(Opened):
    """A predecessor whose sequence number is not known yet is not waited for."""

    def has_predecessor(self, sn: int) -> bool:
        return False


class DoesNotWaitForWhatIsNotHere(Opened):
    """What has a lower number but is not R-delivered here yet is not waited for."""

    def deliver_in_order(self) -> None:
        for sn, id in sorted(self.queue):
            if id in self.entries and not self.has_predecessor(sn):
                self.queue.remove((sn, id))
                self.hand_over(id)
        heapify(self.queue)


class BreaksTiesByArrival(Opened):
    """Among equal sequence numbers, the one R-delivered here first."""

    entries: dict[MessageId, Buffered]  # here their order shows

    def deliver_in_order(self) -> None:
        while self.queue:
            sn = self.queue[0][0]
            tied = [id for id in self.entries if (sn, id) in self.queue]
            if not tied or self.has_predecessor(sn):
                return
            self.queue.remove((sn, tied[0]))
            heapify(self.queue)
            self.hand_over(tied[0])


class ForgetsItsClockOnRestart(Opened):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.ts = 0


class ForgetsTheHistoriesOnRestart(Opened):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.predecessors = []


class ForgetsWhatItDidNotGossipOnRestart(Opened):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.history = []


class TellsTimestampsToItsOwnGroupOnly(Opened):
    def send_timestamp(self, m: Message, message: RecTs) -> None:
        self.send(self.topology.members(self.group), message)


class ShowsTheTimestampToABystander(Opened):
    def send_timestamp(self, m: Message, message: RecTs) -> None:
        super().send_timestamp(m, message)
        bystanders = [p for p in self.topology.processes if self.topology.group_of[p] not in m.destinations]
        self.send(bystanders[:1], message)

    def on_rec_ts(self, sender: ProcessId, message: RecTs) -> None:
        if self.group in message.label.groups:
            super().on_rec_ts(sender, message)


class GossipsToOldAcquaintances(Opened):
    """Histories also go to everybody with whom this process once shared a message, concerned or not."""

    met: set[ProcessId]

    def initialise(self) -> None:
        super().initialise()
        self.met = set()

    def when_r_delivered(self, m: Message, label: Label) -> None:
        self.met.update(self.topology.addressees(m.destinations))
        super().when_r_delivered(m, label)

    def number(self, id: MessageId, sn: int) -> None:
        super().number(id, sn)
        self.send(sorted(self.met - {self.me}), History(0, [], 0, id))


class ProposesItsOwnTimestamp(Scalatom):
    """And not the highest that it received."""

    def start(self, id: MessageId) -> None:
        received = self.rec_ts.get(id)
        own = self.entries[id].rec_ts if id in self.entries else None
        before = dict(received or {})
        if received is not None and own is not None:
            for process in received:
                received[process] = own
        super().start(id)
        if received is not None:
            received.update(before)


class GossipsToAMajority(Scalatom):
    """A majority's histories are enough to deliver, so it sends its own to no more."""

    def send(self, to: ProcessId | Iterable[ProcessId], message: Wire) -> None:
        if isinstance(message, History):
            members = self.topology.members(self.group)
            to = (self.me, *[p for p in members if p != self.me][: majority(members) - 1])
        super().send(to, message)


class GossipsATickTooSeldom(Scalatom):
    """Thinks that the group has its history up to m when it showed its clock at m."""

    def number(self, id: MessageId, sn: int) -> None:
        clock = self.gossiped_clock
        if clock == sn:
            self.gossiped_clock = sn + 1
        super().number(id, sn)
        if clock == sn and self.gossiped_clock == sn + 1:
            self.gossiped_clock = clock


class ForgetsWhatItProposedOnRestart(Scalatom):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.proposed.clear()


SEARCHED = (  # the search has a small world for each of these, too (scopes.py)
    SimpleForQualifiedMajority,
    TakesTheMinimumForTheMaximum,
    DeliversOnTheProposal,
    GossipsBeforeItRaisesTheClock,
    NeverRaisesTheClock,
    PpsFromOneProcess,
    LeavesTiesOutOfPps,
    LogsTheTimestampAfterTheIncrement,
    DeliversWithoutItsPredecessors,
    WaitsOnlyForNumberedPredecessors,
    DoesNotWaitForWhatIsNotHere,
    BreaksTiesByArrival,
    ForgetsItsClockOnRestart,
    ForgetsTheHistoriesOnRestart,
    ForgetsWhatItDidNotGossipOnRestart,
    TellsTimestampsToItsOwnGroupOnly,
    ShowsTheTimestampToABystander,
    GossipsToOldAcquaintances,
    over_consensus(Scalatom, CtDecidesItsOwnValueOnSuspicion, HrDecidesItsOwnValueOnSuspicion),
    over_consensus(Scalatom, HrVotesWithItsOwnEstimate),
    over_consensus(Scalatom, CtRotatesAmongAMajority, HrRotatesAmongAMajority),
    over_reliable(Scalatom, UniformDoesNotEcho),
    over_reliable(Scalatom, UniformDeliversTheFirstCopy),
)

MUTANTS = (
    *SEARCHED,
    ProposesItsOwnTimestamp,
    GossipsToAMajority,
    GossipsATickTooSeldom,
)
