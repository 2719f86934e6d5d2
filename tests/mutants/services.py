"""The services with one mistake each, as somebody who reads a paper too fast would make it.

The mistakes of tests/mutants/parts.py are of the algorithms' steps; these are of what stands around the steps: which
round an estimate is of, who counts as a holder, what a restart brings back. ``OVER`` says under which protocols.
"""

from __future__ import annotations

from antiphon.core import Component, MessageId, OrderingProtocol, ProcessId, Wire
from antiphon.services import chandra_toueg as ct
from antiphon.services import hurfin_raynal as hr
from antiphon.services.chandra_toueg import ChandraToueg
from antiphon.services.consensus import Consensus
from antiphon.services.hurfin_raynal import HurfinRaynal
from antiphon.services.label import Label, has_qualified_majority
from antiphon.services.matrix import Carried, MatrixOrder
from antiphon.services.reliable import (
    Acknowledge,
    Copy,
    EagerReliableMulticast,
    Echo,
    Fetch,
    LazyReliableMulticast,
    Spreading,
    TimeToAcknowledge,
    UniformReliableMulticast,
)
from mutants.parts import with_parts

# Reliable multicast ------------------------------------------------------------------------------------------------


class EagerDeliversBeforeItForwards(EagerReliableMulticast):
    def on_copy(self, sender: ProcessId, copy: Copy) -> None:
        if self.seen.add(copy.label, self.group):
            self.delivered(copy.message, copy.label)
            self.forward(copy, to_origin=self.options.echo_origin)


class EagerForgetsWhatItSawOnRestart(EagerReliableMulticast):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.seen.streams.clear()


class LazyForwardsWithinItsGroupOnly(LazyReliableMulticast):
    def forward(self, copy: Copy, *, to_origin: bool) -> None:
        if copy.label.origin != self.me:
            self.send([p for p in self.topology.members(self.group) if p not in (self.me, copy.label.origin)], copy)


class LazyForwardsTheOldestOnly(LazyReliableMulticast):
    def on_suspect(self, process: ProcessId) -> None:
        for copy in [*self.kept.get(process, {}).values()][:1]:
            self.forward(copy, to_origin=False)


class LazyTellsBeyondAGap(LazyReliableMulticast):
    """Says that it has everything up to the newest number that came, whatever is missing before it."""

    def on_time_to_acknowledge(self, timer: TimeToAcknowledge) -> None:
        untold, self.untold, self.timing = self.untold, [], False
        for group in self.topology.groups:
            to_group = [(id, label) for id, label in untold if group in label.groups]
            numbers: dict[str, int] = {}
            for _, label in to_group:
                numbers[label.origin] = max(numbers.get(label.origin, 0), self.number(label))
            if to_group:
                others = [p for p in self.topology.members(group) if p != self.me]
                self.send(others, Acknowledge(numbers, [id for id, _ in to_group]))
        self.drop()


class LazyForgetsWhatItKeepsOnRestart(LazyReliableMulticast):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.kept.clear()


class UniformCountsAnOutsider(UniformReliableMulticast):
    """A sender that is no member counts as one who holds the message, so that one member's echo is not waited for."""

    def find(self, id: MessageId, label: Label) -> Spreading | None:
        found = super().find(id, label)
        if found is not None:
            found.holders.add(ProcessId(label.origin))
        return found


class UniformAsksItsOwnGroupOnly(UniformReliableMulticast):
    """Delivers when a majority of its own group holds the message, whatever the other groups hold."""

    def has_enough(self, label: Label, found: Spreading) -> bool:
        return has_qualified_majority(found.holders, (self.group,), self.topology)


class UniformTakesHalfForAMajority(UniformReliableMulticast):
    """(n + 1) // 2, which is a majority of an odd number only."""

    def has_enough(self, label: Label, found: Spreading) -> bool:
        sizes = [(len(found.holders.intersection(self.topology.members(g))), g) for g in label.groups]
        return all(count >= (len(self.topology.members(group)) + 1) // 2 for count, group in sizes)


class UniformDropsEchoesBeforeTheCopy(UniformReliableMulticast):
    def on_echo(self, sender: ProcessId, echo: Echo) -> None:
        found = self.spreading.get(echo.label)
        if found is not None and found.copy is not None:
            super().on_echo(sender, echo)


class UniformDoesNotServeWhatItDelivered(UniformReliableMulticast):
    def on_fetch(self, sender: ProcessId, fetch: Fetch) -> None:
        if not self.seen.has(fetch.label, self.group):
            super().on_fetch(sender, fetch)


class UniformForgetsTheHoldersOnRestart(UniformReliableMulticast):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        for found in self.spreading.values():
            found.holders.clear()


# Chandra-Toueg -----------------------------------------------------------------------------------------------------


class CtTakesTheOldestEstimate(ChandraToueg):
    def on_estimate(self, sender: ProcessId, estimate: ct.Estimate) -> None:
        turned = ct.Estimate(estimate.instance, estimate.round, estimate.estimate, -estimate.adopted)
        super().on_estimate(sender, turned)


class CtTakesTheRoundOfTheEstimateForItsAge(ChandraToueg):
    """An estimate counts as adopted in the round in which it is sent."""

    def on_estimate(self, sender: ProcessId, estimate: ct.Estimate) -> None:
        sent = ct.Estimate(estimate.instance, estimate.round, estimate.estimate, estimate.round)
        super().on_estimate(sender, sent)


class CtProposesAgainWithEveryEstimate(ChandraToueg):
    def on_estimate(self, sender: ProcessId, estimate: ct.Estimate) -> None:
        run = self.runs.get(estimate.instance)
        if run is not None:
            run.proposals.pop(estimate.round, None)
        super().on_estimate(sender, estimate)


class CtDecidesItsEstimate(ChandraToueg):
    """And not what was acknowledged."""

    def on_ack(self, sender: ProcessId, ack: ct.Ack) -> None:
        run = self.runs.get(ack.instance)
        if run is not None and ack.round in run.proposals:
            run.proposals[ack.round] = run.estimate
        super().on_ack(sender, ack)


class CtStaysInItsRound(ChandraToueg):
    """Adopts the proposal of a later round, but does not enter the round."""

    def on_proposal(self, sender: ProcessId, proposal: ct.Proposal) -> None:
        run = self.runs.get(proposal.instance)
        round = run.round if run is not None else 0
        super().on_proposal(sender, proposal)
        if run is not None:
            run.round = round


class CtTrustsTheCoordinatorOfTheRoundItEnters(ChandraToueg):
    """Leaves a round when a suspicion begins, but not one whose coordinator is suspected already."""

    def enter(self, instance: Label, run: ct.CtRun, round: int) -> None:
        suspects, self.process.state.suspects = self.process.state.suspects, []
        super().enter(instance, run, round)
        self.process.state.suspects = suspects


# Hurfin-Raynal -----------------------------------------------------------------------------------------------------


class HrKeepsWhatItSawForTheNextRound(HurfinRaynal):
    """Does not adopt the estimate of a later coordinator, for it has seen one of an earlier."""

    def enter(self, instance: Label, run: hr.HrRun, round: int) -> None:
        seen = run.seen
        super().enter(instance, run, round)
        if instance in self.runs and run.round == round:
            run.seen = seen or run.seen


class HrJumpsToTheRoundOfAVote(HurfinRaynal):
    """Joins a later round at once, without what the votes of the rounds between would have told."""

    def run_of(self, sender: ProcessId, message: hr.Current | hr.Next) -> hr.HrRun | None:
        run = self.runs.get(message.instance)
        if run is not None and message.round > run.round:
            self.enter(message.instance, run, message.round)
        return super().run_of(sender, message)


class HrAdoptsEveryVote(HurfinRaynal):
    def adopt(self, run: hr.HrRun, estimate: bytes) -> None:
        run.seen, run.estimate = True, estimate


class HrSuspectsAfterItsVote(HurfinRaynal):
    """Votes for the next round on a suspicion although it has voted for this one."""

    def on_suspect(self, process: ProcessId) -> None:
        for instance, run in list(self.runs.items()):
            if not run.voted_next and self.coordinator(instance, run.round) == process:
                self.vote_next(instance, run)


class HrTrustsTheCoordinatorOfTheRoundItEnters(HurfinRaynal):
    def enter(self, instance: Label, run: hr.HrRun, round: int) -> None:
        suspects, self.process.state.suspects = self.process.state.suspects, []
        super().enter(instance, run, round)
        self.process.state.suspects = suspects


# Both consensus ----------------------------------------------------------------------------------------------------


def _half(consensus: Consensus, instance: Label, who: set[ProcessId]) -> bool:
    """(n + 1) // 2, which is a majority of an odd number only."""
    return len(who) >= (len(consensus.members(instance)) + 1) // 2


class CtTakesHalfForAMajority(ChandraToueg):
    def is_quorum(self, instance: Label, who: set[ProcessId]) -> bool:
        return _half(self, instance, who)


class HrTakesHalfForAMajority(HurfinRaynal):
    def is_quorum(self, instance: Label, who: set[ProcessId]) -> bool:
        return _half(self, instance, who)


class CtForgetsWhatItDecidedOnRestart(ChandraToueg):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.done.streams.clear()


class HrForgetsWhatItDecidedOnRestart(HurfinRaynal):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.done.streams.clear()


class CtForgetsWhatCameEarlyOnRestart(ChandraToueg):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.early.clear()


class HrForgetsWhatCameEarlyOnRestart(HurfinRaynal):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.early.clear()


def _watch_the_first(consensus: Consensus) -> None:
    consensus.monitor(sorted({consensus.coordinator(instance, 1) for instance in consensus.runs}))


class CtWatchesTheFirstCoordinatorOnly(ChandraToueg):
    def watch(self) -> None:
        _watch_the_first(self)


class HrWatchesTheFirstCoordinatorOnly(HurfinRaynal):
    def watch(self) -> None:
        _watch_the_first(self)


# Causal order ------------------------------------------------------------------------------------------------------


class CausalKnowsItsOwnPastOnly(MatrixOrder):
    """Does not take over what the sender of a message knew."""

    def hand_over(self, sender: ProcessId, carried: Carried) -> None:
        before = self.matrix
        super().hand_over(sender, Carried(carried.about, carried.time, before.copy(), carried.frame))


class CausalCountsTheMessageItself(MatrixOrder):
    """The matrix that travels counts the message with which it travels."""

    def send_for(self, part: Component, to: tuple[ProcessId, ...], message: Wire) -> None:
        index_of, size = self.topology.index_of, len(self.handed)
        before = self.matrix.copy()
        for process in to:
            if process != self.me and self.me in index_of:
                self.matrix[index_of[self.me] * size + index_of[process]] += 1
        after = self.matrix.copy()
        super().send_for(part, to, message)
        self.matrix = after if after != before else self.matrix


class CausalForgetsWhatWaitsOnRestart(MatrixOrder):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.waiting.clear()


class CausalDoesNotNoteWhatItGot(MatrixOrder):
    """Leaves out of the matrix that the message came here: SENT[sender, me]."""

    def hand_over(self, sender: ProcessId, carried: Carried) -> None:
        index_of = self.topology.index_of
        if sender in index_of:
            self.handed[index_of[sender]] += 1
            self.matrix = list(map(max, self.matrix, carried.matrix))
        self.tick(carried.time)
        self.process.handle(sender, carried.frame)


# Those that the seeds of a whole protocol show; docs/mutants.md says of every other one where it is caught, or why not.
OVER: dict[str, tuple[type[Component], ...]] = {
    "reliable": (
        EagerForgetsWhatItSawOnRestart,
        LazyForwardsWithinItsGroupOnly,
        LazyForwardsTheOldestOnly,
        UniformCountsAnOutsider,
        UniformDropsEchoesBeforeTheCopy,
        UniformDoesNotServeWhatItDelivered,
        UniformForgetsTheHoldersOnRestart,
    ),
    "mto": (CausalCountsTheMessageItself, CausalForgetsWhatWaitsOnRestart),
}

# Those that show in the consensus alone (tests/services/test_consensus.py).
CONSENSUS: tuple[type[Consensus], ...] = (
    CtTakesTheOldestEstimate,
    CtTakesTheRoundOfTheEstimateForItsAge,
    CtProposesAgainWithEveryEstimate,
    CtTrustsTheCoordinatorOfTheRoundItEnters,
    CtTakesHalfForAMajority,
    CtForgetsWhatItDecidedOnRestart,
    CtForgetsWhatCameEarlyOnRestart,
    CtWatchesTheFirstCoordinatorOnly,
    HrKeepsWhatItSawForTheNextRound,
    HrTrustsTheCoordinatorOfTheRoundItEnters,
    HrTakesHalfForAMajority,
    HrForgetsWhatItDecidedOnRestart,
    HrForgetsWhatCameEarlyOnRestart,
    HrWatchesTheFirstCoordinatorOnly,
)


def under(protocol: type[OrderingProtocol]) -> tuple[type[OrderingProtocol], ...]:
    return tuple(with_parts(protocol, kind) for kind in OVER[protocol.declaration.name])
