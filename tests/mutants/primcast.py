"""primcast with one mistake each: every rule of its page left out, and what an implementation is likely to forget.

MUTANTS are caught by the suite's own seeds. BY_HAND need a coincidence that seeds do not find: each has a schedule of
its own in tests/papers/test_primcast.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush

from antiphon.core import GroupId, Message, ProcessId
from antiphon.core.floors import least_number
from antiphon.protocols.primcast import (
    Announce,
    Append,
    Learner,
    Primcast,
    Retry,
    Start,
    Stuck,
)
from antiphon.services.epochs import Entry, NewEpoch, Promised, StartEpoch, Vote, owner_among
from antiphon.services.group_log import Extent, Logged
from antiphon.services.learner import Announced, of_majority
from antiphon.services.retention import Handed, Known
from mutants import foretold, hearsay, realtime, replaced, shown

# A message comes to the primaries ------------------------------------------------------------------------------------


class DoesNotHoldWhatItSends(Primcast):
    """A sender leaves its message to the primaries."""

    def multicast(self, m: Message) -> None:
        numbers = self.labeller.next(self.me, m.destinations).numbers
        if self.topology.group_of.get(self.me) not in m.destinations:
            self.send(self.topology.addressees(m.destinations), Start(m, numbers))
        else:
            self.send([self.primary(group) for group in m.destinations], Start(m, numbers))


class SendsToPrimariesFromOutside(Primcast):
    """An outsider, who does not try again, sends to those who lead at first."""

    def multicast(self, m: Message) -> None:
        if self.topology.group_of.get(self.me) in m.destinations:
            super().multicast(m)
        else:
            start = Start(m, self.labeller.next(self.me, m.destinations).numbers)
            self.send([self.topology.members(group)[0] for group in m.destinations], start)


class GivesEqualTimestamps(Primcast):
    def tick(self, m: Message, time: int) -> None:
        self.clock = max(self.clock, 1)


class ReadsTheTimeAlone(Primcast):
    """A hybrid clock that forgets how far it was."""

    def tick(self, m: Message, time: int) -> None:
        super().tick(m, time)
        if self.options.hybrid:
            self.clock = max(self.now // 1000, 1)


class ProposesAgainWhatIsLogged(Primcast):
    def on_start(self, sender: ProcessId, start: Start) -> None:
        known = self.hold(start.message, start.numbers)
        if known is not None and self.leads:
            self.propose(known)
        else:
            super().on_start(sender, start)


class TakesLateStartsForNew(Primcast):
    """What was delivered and forgotten comes again."""

    def is_done(self, m: Message, numbers: tuple[int, ...]) -> bool:
        known = self.known.get(m.id)
        return known is not None and bool(known.final)


# The log, its copies, and acknowledgements ---------------------------------------------------------------------------


class TakesWhatAnOldPrimaryAppends(Primcast):
    """Though it has promised itself to another."""

    def on_append(self, sender: ProcessId, append: Append) -> None:
        promised, self.promised = self.promised, self.epoch
        super().on_append(sender, append)
        self.promised = promised


class AcknowledgesAfterAPromise(Primcast):
    def on_turn_end(self) -> None:
        promised, self.promised = self.promised, self.epoch
        super().on_turn_end()
        self.promised = promised

    def on_append(self, sender: ProcessId, append: Append) -> None:
        promised, self.promised = self.promised, self.epoch
        super().on_append(sender, append)
        self.promised = promised


class DoesNotCountTheAppend(Primcast):
    """As the primary's own acknowledgement."""

    deaf: bool = False

    def on_append(self, sender: ProcessId, append: Append) -> None:
        self.deaf = True
        super().on_append(sender, append)
        self.deaf = False
        self.settle()

    def vote(self, member: ProcessId, vote: Vote, *, early: bool = False) -> None:
        if not self.deaf:
            super().vote(member, vote, early=early)


class DoesNotCountTheAnnouncement(Primcast):
    def on_announce(self, sender: ProcessId, announce: Announce) -> None:
        super().on_announce(sender, Announce(announce.epoch, 0, announce.entries))


class StreamsOnlyTheLastEntry(Primcast):
    def stream(self, groups: list[GroupId]) -> None:
        self.appended = max(self.appended, self.log.length - 1)
        super().stream(groups)


class VouchesToTheFirstGroupOnly(Primcast):
    def groups_due(self) -> list[GroupId]:
        return super().groups_due()[:1]


class AnnouncesToBystanders(Primcast):
    def announcement(self, group: GroupId, first: int) -> Announce:
        entries = [Announced(first, logged.timestamp, logged.id, 1) for logged in self.log.since(first)]
        for bystander in self.topology.groups:
            if bystander not in (self.group, group):
                self.send(self.topology.members(bystander), Announce(0, 0, entries))
        return super().announcement(group, first)

    def on_announce(self, sender: ProcessId, announce: Announce) -> None:
        if announce.length:
            super().on_announce(sender, announce)


class DoesNotFollowTimestamps(Primcast):
    """Another group's timestamp does not raise the clock."""

    def follow(self, announced: Announced) -> None:
        pass


class DoesNotTellItsRaisedClock(Primcast):
    def follow(self, announced: Announced) -> None:
        self.clock = max(self.clock, announced.timestamp)


class PrimariesDoNotTellTheirRaisedClock(Primcast):
    """They deliver in the input that raised it, and think that all is done."""

    def follow(self, announced: Announced) -> None:
        if self.leads:
            self.clock = max(self.clock, announced.timestamp)
        else:
            super().follow(announced)


class CountsVotesOfAnyEpoch(Primcast):
    """Of its own group."""

    def present(self) -> list[Vote]:
        return [self.votes.get(p, Vote(self.epoch, 0, 0)) for p in self.members]

    def vote(self, member: ProcessId, vote: Vote, *, early: bool = False) -> None:
        self.votes[member] = vote
        self.settle()


# Decisions -----------------------------------------------------------------------------------------------------------


class DecidesAlone(Primcast):
    """What is in its own log."""

    def settle(self, *, early: bool = False) -> None:
        if self.is_active:
            for index in range(self.decided, self.log.length):
                timestamp, id = self.log.at(index)
                self.stamp(self.known[id], self.group, timestamp, early=early)
            self.decided = self.log.length
        super().settle(early=early)


class CarelessLearner(Learner):
    def take_decided(self, members: tuple[ProcessId, ...]) -> list[Announced]:
        length = of_majority([self.lengths.get(p, (0, 0))[1] for p in members])
        return [self.entries.pop(index) for index in [index for index in self.entries if index < length]]


class CountsOtherGroupsVotesOfAnyEpoch(Primcast):
    learners: dict[GroupId, CarelessLearner]  # type: ignore[assignment]

    def learner(self, group: GroupId) -> Learner:
        return self.learners.setdefault(group, CarelessLearner())


class ForgetlessLearner(Learner):
    def heed(self, member: ProcessId, epoch: int, length: int) -> bool:
        entries = self.entries
        counts = super().heed(member, epoch, length)
        self.entries = {**entries, **self.entries}
        return counts


class KeepsWhatAnEarlierEpochAnnounced(Primcast):
    learners: dict[GroupId, ForgetlessLearner]  # type: ignore[assignment]

    def learner(self, group: GroupId) -> Learner:
        return self.learners.setdefault(group, ForgetlessLearner())


class TakesTheAnnouncedForDecided(Primcast):
    """Another group's timestamp counts before a majority of it has acknowledged."""

    def learn(self, group: GroupId, *, early: bool = True) -> None:
        learner = self.learner(group)
        for announced in list(learner.entries.values()):
            known = self.known.get(announced.id)
            if known is not None:
                known.stamps[group] = announced.timestamp
                if known.timestamp and not known.final:
                    heappush(self.queue, (known.bound, known.message.id))
        super().learn(group, early=early)

    def stamp(self, known: Known, group: GroupId, timestamp: int, *, early: bool) -> None:
        known.stamps.setdefault(group, timestamp)
        super().stamp(known, group, known.stamps[group], early=early)


class ForgetsTimestampsThatComeFirst(Primcast):
    """Decided ones, of a message that is not here yet."""

    def learn(self, group: GroupId, *, early: bool = True) -> None:
        super().learn(group, early=early)
        self.early = {}


# Delivery ------------------------------------------------------------------------------------------------------------


class DoesNotWaitForTheLastGroup(Primcast):
    def is_final(self, known: Known) -> bool:
        return self.group in known.stamps and len(known.stamps) >= len(known.message.destinations) - 1


class IgnoresThePrimarysClock(Primcast):
    def reached(self) -> int:
        return of_majority([vote.clock for vote in self.present()])


class IgnoresAllClocks(Primcast):
    def reached(self) -> int:
        return 1 << 62


class IgnoresWhatIsPending(Primcast):
    """Delivers what is final, though a lower one is not."""

    def deliver_lowest(self, *, early: bool = False) -> None:
        if not self.is_active or self.is_behind:
            return
        for bound, id in sorted(self.queue):
            known = self.known.get(id)
            if known is None or known.final or known.bound != bound or not self.is_final(known):
                continue
            if bound <= self.reached():
                self.last = min(self.last, (bound - 1, id))
                self.finish(known, bound)


class BreaksTiesByArrival(Primcast):
    def deliver_lowest(self, *, early: bool = False) -> None:
        if not self.is_active or self.is_behind:
            return
        while True:
            waiting = [known for known in self.waiting() if known.timestamp]
            if not waiting:
                return
            known = min(waiting, key=lambda known: known.bound)  # the first that came, of equal ones
            if not self.is_final(known) or known.bound > self.reached():
                return
            self.last = min(self.last, (known.bound - 1, known.message.id))
            self.finish(known, known.bound)


# Epochs --------------------------------------------------------------------------------------------------------------


class NeverElects(Primcast):
    def elect(self) -> None:
        pass


class ElectsOnlyItself(Primcast):
    """Who is not next leaves it to the one who is."""

    def elect(self) -> None:
        if self.owner(self.promised + 1) == self.me:
            super().elect()


class GoesOnWithItsOwnLog(Primcast):
    """As candidate."""

    def best_log(self) -> Promised | None:
        return None


class BeginsWithoutAMajority(Primcast):
    @property
    def has_majority(self) -> bool:
        return True


class DoesNotAnnounceAgain(Primcast):
    """What an earlier primary had announced."""

    def announce(self, group: GroupId) -> None:
        self.send(self.topology.members(group), self.announcement(group, max(self.log.base, self.appended)))


class DoesNotProposeWhatItHolds(Primcast):
    """When it begins to lead; nor when somebody asks."""

    def hand_in(self, known: Known) -> None:
        if not self.leads:
            super().hand_in(known)

    def on_stuck(self, sender: ProcessId, stuck: Stuck) -> None:
        self.hold(stuck.message, stuck.numbers)


class KeepsTheTimestampsOfWhatIsDropped(Primcast):
    def adopt_log(self, end: Promised | StartEpoch) -> None:
        before = {logged.id: logged.timestamp for logged in self.log.entries}
        super().adopt_log(end)
        logged = {entry.id for entry in self.log.entries}
        for id, timestamp in before.items():
            if id not in logged and id in self.held:
                self.known[id].timestamp = timestamp


class DoesNotAcknowledgeTheLogAgain(Primcast):
    """In a new epoch."""

    def begin_epoch(self) -> None:
        super().begin_epoch()
        if not self.leads:
            self.due = {}


class AdoptsWithoutTheLog(Primcast):
    """A follower believes that it has what it is sent of a log."""

    def adopt_log(self, end: Promised | StartEpoch) -> None:
        super().adopt_log(end)
        if isinstance(end, StartEpoch) and len(self.log.entries) > 1 and not self.known[self.log.entries[-1].id].final:
            self.log.entries[-2:] = self.log.entries[-1:]
            self.log.base += 1


# What takes too long, and what is forgotten --------------------------------------------------------------------------


class NeverRetries(Primcast):
    def on_retry(self, timer: Retry) -> None:
        pass


class TrimsWhatItDelivered(Primcast):
    """It does not wait for the other members."""

    def trim(self) -> None:
        for p in self.mates:
            self.marks[p] = self.delivered
        super().trim()


class DoesNotWaitForOtherGroups(Primcast):
    """To hear of what it cuts from its log."""

    def is_passed(self, known: Known) -> bool:
        return True


class CutsWhatIsNotDecided(Primcast):
    """What was handed to it, from a log that nobody goes on with."""

    def passed_entries(self) -> Iterator[Logged]:
        self.decided, decided = self.log.length, self.decided
        found = list(super().passed_entries())
        self.decided = max(decided, self.log.base + len(found))
        yield from found


class ForgetsWithoutHandingOver(Primcast):
    def hand(self, to: ProcessId, begin: int, end: int) -> None:
        pass


class TakesAPartForAll(Primcast):
    """Of what it hands over."""

    def hand_over(self) -> None:
        before = dict(self.marks)
        super().hand_over()
        self.marks.update({p: self.delivered for p, mark in self.marks.items() if mark > before.get(p, 0)})


class HandsOverOnlyTheLast(Primcast):
    def hand(self, to: ProcessId, begin: int, end: int) -> None:
        super().hand(to, max(begin, end - 1), end)

    def on_handed(self, sender: ProcessId, handed: Handed) -> None:
        if handed.position >= self.delivered and not self.is_done(handed.message, handed.numbers):
            known = self.hold(handed.message, handed.numbers)
            assert known is not None
            self.finish(known, handed.timestamp)


# Restarts ------------------------------------------------------------------------------------------------------------


class ForgetsItsClockOnRestart(Primcast):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.clock = 0


class ForgetsItsPromiseOnRestart(Primcast):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.promised = self.epoch


class ForgetsTheQueueOnRestart(Primcast):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.queue = []


class ForgetsOtherGroupsOnRestart(Primcast):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.learners, self.early = {}, {}


# By hand -------------------------------------------------------------------------------------------------------------


class IgnoresTheQuorumsClock(Primcast):
    def reached(self) -> int:
        return owner_among(self.present(), self.epoch).clock


class BeginsWithItsOwnClock(Primcast):
    """As candidate, whatever clocks were promised."""

    def greatest_clock(self) -> int:
        return self.clock


class TakesTheLongestLog(Primcast):
    """Of whatever epoch."""

    def best_log(self) -> Promised | None:
        best = max(self.pledges.values(), key=lambda p: (p.extent.length, p.extent.epoch), default=None)
        return best if best is not None and best.extent.length > self.log.length else None

    def on_new_epoch(self, sender: ProcessId, new: NewEpoch) -> None:
        its = new.extent
        super().on_new_epoch(sender, NewEpoch(new.epoch, Extent(-1, its.base, its.runs)))


class DeliversAfterAPromise(Primcast):
    """It has left its epoch, but goes on delivering in it."""

    def settle(self, *, early: bool = False) -> None:
        promised, self.promised = self.promised, self.epoch
        super().settle(early=early)
        self.promised = promised

    def vote(self, member: ProcessId, vote: Vote, *, early: bool = False) -> None:
        promised, self.promised = self.promised, self.epoch
        super().vote(member, vote, early=early)
        self.promised = promised

    def on_announce(self, sender: ProcessId, announce: Announce) -> None:
        promised, self.promised = self.promised, self.epoch
        super().on_announce(sender, announce)
        self.promised = promised


class DoesNotForward(Primcast):
    """A START that reaches somebody who leads no more."""

    def on_start(self, sender: ProcessId, start: Start) -> None:
        known = self.hold(start.message, start.numbers)
        if known is not None and not known.timestamp and self.leads:
            self.propose(known)


class DoesNotHandIn(Primcast):
    """To a new primary, what it holds."""

    def hand_in(self, known: Known) -> None:
        if self.leads:
            super().hand_in(known)


class DropsVotesOfEpochsToCome(Primcast):
    """They are not repeated."""

    def vote(self, member: ProcessId, vote: Vote, *, early: bool = False) -> None:
        if vote.epoch == self.epoch:
            super().vote(member, vote, early=early)


class DeliversBeforeWhatWasCut(Primcast):
    """What others have delivered and cut before the log with which it goes on."""

    @property
    def is_behind(self) -> bool:
        return False


class NeverAsksItsMates(Primcast):
    """What they have delivered meanwhile."""

    def ask_mate(self) -> None:
        pass


class LooksOnlyWhenItSuspects(Primcast):
    """There was nothing to lead then; now there is."""

    blind: bool = False

    def on_append(self, sender: ProcessId, append: Append) -> None:
        self.blind = True
        super().on_append(sender, append)
        self.blind = False

    def move_on(self) -> None:
        if not self.blind:
            super().move_on()


class DoesNotLookAgain(Primcast):
    """After a promise to somebody whom it suspects already."""

    def on_new_epoch(self, sender: ProcessId, new: NewEpoch) -> None:
        self.promising = True
        super().on_new_epoch(sender, new)
        self.promising = False

    promising: bool = False

    def move_on(self) -> None:
        if not self.promising:
            super().move_on()


class StaysWithADeadCandidate(Primcast):
    """To whom it has promised itself, since it knows of nothing to lead."""

    def move_on(self) -> None:
        if self.held or self.log.length:
            super().move_on()


class IsImpatient(Primcast):
    """One epoch after the other, as fast as they come."""

    def move_on(self) -> None:
        self.failed = 0
        super().move_on()


# Receipts -------------------------------------------------------------------------------------------------------------


class AssuresWhenItHasJournaled(Primcast):
    """The gateway speaks for all as soon as it has the request itself."""

    def multicast(self, m: Message) -> None:
        super().multicast(m)
        if self.group in m.destinations:
            self.assure(m, self.clock)


class AssuresWhenItsLogHasIt(Primcast):
    """Whoever else has it."""

    def append(self, entry: Entry) -> None:
        super().append(entry)
        if entry.message.id.origin == self.me:
            self.assure(entry.message, self.clock)


class AssuresWhenItsOwnGroupHasDecided(Primcast):
    """What it lacks is the timestamp: another group's may be greater."""

    def stamp(self, known: Known, group: GroupId, timestamp: int, *, early: bool) -> None:
        if group == self.group and group not in known.stamps and known.message.id.origin == self.me:
            self.assure(known.message, timestamp)
        super().stamp(known, group, timestamp, early=early)


class IgnoresTheFloorsOfClients(Primcast):
    def tick(self, m: Message, time: int) -> None:
        now = self.now // 1000 if self.options.hybrid else 0
        self.clock = max(self.clock + 1, 0 if m.count else least_number(m), now)


class NeverAssuresBeforeDelivery(Primcast):
    """Slow, and right: no promise is broken. tests/papers/test_primcast.py counts the steps of receipts."""

    def assure(self, m: Message, timestamp: int, *, early: bool = False) -> None:
        pass


BY_HAND = (
    IgnoresTheQuorumsClock,
    BeginsWithItsOwnClock,
    TakesTheLongestLog,
    DeliversAfterAPromise,
    DoesNotForward,
    DoesNotHandIn,
    DropsVotesOfEpochsToCome,
    DeliversBeforeWhatWasCut,
    NeverAsksItsMates,
    LooksOnlyWhenItSuspects,
    DoesNotLookAgain,
    StaysWithADeadCandidate,
    IsImpatient,
    *replaced.BY_HAND,
    *foretold.BY_HAND,
    *shown.BY_HAND,
    *hearsay.BY_HAND,
)

MUTANTS = (
    DoesNotHoldWhatItSends,
    SendsToPrimariesFromOutside,
    GivesEqualTimestamps,
    ReadsTheTimeAlone,
    ProposesAgainWhatIsLogged,
    TakesLateStartsForNew,
    TakesWhatAnOldPrimaryAppends,
    AcknowledgesAfterAPromise,
    DoesNotCountTheAppend,
    DoesNotCountTheAnnouncement,
    StreamsOnlyTheLastEntry,
    VouchesToTheFirstGroupOnly,
    AnnouncesToBystanders,
    DoesNotFollowTimestamps,
    DoesNotTellItsRaisedClock,
    PrimariesDoNotTellTheirRaisedClock,
    CountsVotesOfAnyEpoch,
    DecidesAlone,
    CountsOtherGroupsVotesOfAnyEpoch,
    KeepsWhatAnEarlierEpochAnnounced,
    TakesTheAnnouncedForDecided,
    ForgetsTimestampsThatComeFirst,
    DoesNotWaitForTheLastGroup,
    IgnoresThePrimarysClock,
    IgnoresAllClocks,
    IgnoresWhatIsPending,
    BreaksTiesByArrival,
    NeverElects,
    ElectsOnlyItself,
    GoesOnWithItsOwnLog,
    BeginsWithoutAMajority,
    DoesNotAnnounceAgain,
    DoesNotProposeWhatItHolds,
    KeepsTheTimestampsOfWhatIsDropped,
    DoesNotAcknowledgeTheLogAgain,
    AdoptsWithoutTheLog,
    NeverRetries,
    TrimsWhatItDelivered,
    DoesNotWaitForOtherGroups,
    CutsWhatIsNotDecided,
    ForgetsWithoutHandingOver,
    TakesAPartForAll,
    HandsOverOnlyTheLast,
    ForgetsItsClockOnRestart,
    ForgetsItsPromiseOnRestart,
    ForgetsTheQueueOnRestart,
    ForgetsOtherGroupsOnRestart,
    *realtime.BY_SEEDS,
    *replaced.BY_SEEDS,
    *foretold.BY_SEEDS,
    AssuresWhenItHasJournaled,
    AssuresWhenItsLogHasIt,
    AssuresWhenItsOwnGroupHasDecided,
    IgnoresTheFloorsOfClients,
)
