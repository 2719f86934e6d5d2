"""The sequencer with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from antiphon.core import GroupId, Message, ProcessId
from antiphon.core.keys import Key
from antiphon.protocols.sequencer import Number, Sequencer
from antiphon.services.stability import Ordered, Stable, Taken
from antiphon.services.takeover import Report


class TwoSequencers(Sequencer):
    def initialise(self) -> None:
        super().initialise()
        if self.me in self.members[:2]:
            self.leading, self.acknowledged = True, dict.fromkeys(self.members, 0)

    def sequencer(self, group: GroupId) -> ProcessId:
        members = self.topology.members(group)
        return members[self.sent[group] % min(2, len(members))]


class DeliversItsOwnMessagesAtOnce(Sequencer):
    def multicast(self, m: Message) -> None:
        super().multicast(m)
        if self.topology.group_of.get(self.me) in m.destinations:
            self.deliver(m)

    def deliver(self, m: Message, key: Key | None = None) -> None:
        if key is None or m.id.origin != self.me:
            super().deliver(m, key)


class ForgetsItsNumbersOnRestart(Sequencer):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.numbered = max(self.numbered - 1, 0)


class ForgetsWhatItDeliveredOnRestart(Sequencer):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.delivered = 0


class SkipsNumbers(Sequencer):
    def number_all_of(self, origin: ProcessId) -> None:
        if self.numbered % 11 == 10:
            self.numbered += 1
        super().number_all_of(origin)


class DoesNotTellTheLastMember(Sequencer):
    def on_ordered(self, sender: ProcessId, ordered: Ordered) -> None:
        if self.me != self.members[-1] or ordered.number % 7:
            super().on_ordered(sender, ordered)


class NumbersTheNewestFirst(Sequencer):
    """Keeps two requests together and swaps them: breaks the order of each sender."""

    kept: list[Number]

    def initialise(self) -> None:
        super().initialise()
        self.kept = []

    def on_number(self, sender: ProcessId, number: Number) -> None:
        self.kept.append(number)
        if len(self.kept) == 2:
            first, second = self.kept
            self.kept = []
            super().on_number(sender, Number(first.index, second.message))
            super().on_number(sender, Number(second.index, first.message))


class ShowsTheMessageToABystander(Sequencer):
    def on_number(self, sender: ProcessId, number: Number) -> None:
        super().on_number(sender, number)
        bystanders = [p for p in self.topology.processes if p not in self.members]
        self.send(bystanders[:1], Ordered(len(self.members), 1, 1, number.message))


class ServesMembersOnly(Sequencer):
    """The sequencer takes nothing from a sender that is no member of the group: as if the model were closed."""

    def on_number(self, sender: ProcessId, number: Number) -> None:
        if sender in self.topology.members(self.group):
            super().on_number(sender, number)


class NumbersEachSenderApart(Sequencer):
    numbers: dict[ProcessId, int]

    def initialise(self) -> None:
        super().initialise()
        self.numbers = {}

    def number_all_of(self, origin: ProcessId) -> None:
        self.numbered = self.numbers.get(origin, 0)
        super().number_all_of(origin)
        self.numbers[origin] = self.numbered


# Frames that get lost -----------------------------------------------------------------------------------------------


class NumbersARepeatedRequestAgain(Sequencer):
    def on_number(self, sender: ProcessId, number: Number) -> None:
        if self.leading and number.index == self.counted.get(number.message.id.origin):
            self.counted[number.message.id.origin] -= 1
        super().on_number(sender, number)


class NeverFetches(Sequencer):
    def repeat_as_member(self) -> bool:
        return False


class NeverReminds(Sequencer):
    """The last messages of all are lost, and nobody knows."""

    def repeat_as_sequencer(self) -> bool:
        return False


class SendersDoNotRepeat(Sequencer):
    def repeat_requests(self) -> bool:
        return False


class RepeatsOnce(Sequencer):
    """What is repeated can get lost as well."""

    def repeat_requests(self) -> bool:
        super().repeat_requests()
        return False


# Uniform numbering --------------------------------------------------------------------------------------------------


class DeliversWhatIsNotStable(Sequencer):
    def deliver_all(self) -> None:
        self.stable, stable = self.received, self.stable
        super().deliver_all()
        self.stable = stable


class AMajorityIsEnough(Sequencer):
    """Where all but one may crash for good, it is not."""

    def settle(self) -> None:
        self.acknowledged[self.me] = self.received
        held = sorted((self.acknowledged[p] for p in self.remaining()), reverse=True)
        stable = held[len(held) // 2]
        if stable > self.stable:
            self.send(self.remaining(), Stable(self.epoch, stable, self.numbered))


# Takeover -----------------------------------------------------------------------------------------------------------


class TakesOverWithoutAsking(Sequencer):
    def unheard(self) -> list[ProcessId]:
        for p in self.members:
            self.acknowledged.setdefault(p, self.received)
        return []


class HeedsTheDead(Sequencer):
    """Takes numbers from whoever gave them. Too rare for seeds: a run was made by hand, in test_kept_sequencer.py."""

    def on_ordered(self, sender: ProcessId, ordered: Ordered) -> None:
        super().on_ordered(sender, Ordered(self.epoch, ordered.number, ordered.index, ordered.message))


class KeepsWhatHasAGapBeforeIt(Sequencer):
    def enter(self, epoch: int) -> None:
        held, newest = dict(self.held), self.newest
        super().enter(epoch)
        self.held, self.newest = held, newest


class ReadsNoReport(Sequencer):
    def on_report(self, sender: ProcessId, report: Report) -> None:
        super().on_report(sender, Report(report.epoch, report.received, []))


class SendersTrustTheDead(Sequencer):
    """What was sent to the one that is gone is not sent to its successor."""

    def on_suspect(self, process: ProcessId) -> None:
        outbox, self.outbox = self.outbox, {}
        super().on_suspect(process)
        self.outbox = outbox


class SendersForgetTooEarly(Sequencer):
    """As soon as a message has a number, which may be gone together with the one who gave it."""

    def known(self, origin: ProcessId) -> int:
        return self.counted.get(origin, 0)


class CountsAnewAfterTakeover(Sequencer):
    def lead(self) -> None:
        super().lead()
        if self.leading and not self.requests:
            self.numbered = self.stable


class ForgetsAfterTakeoverWhatHasANumber(Sequencer):
    def enter(self, epoch: int) -> None:
        super().enter(epoch)
        self.counted = {}


class WaitsForTheDead(Sequencer):
    def remaining(self) -> list[ProcessId]:
        return list(self.members)


# Causal order -------------------------------------------------------------------------------------------------------


class DoesNotWait(Sequencer):
    def awaited(self) -> list[GroupId]:
        return []


class OneAnswerIsEnough(Sequencer):
    """Takes the first word of a group for its word about all that was sent to it."""

    def on_taken(self, sender: ProcessId, taken: Taken) -> None:
        self.answered_by[self.topology.group_of[sender]] = self.sent.get(self.topology.group_of[sender], 0)
        super().on_taken(sender, taken)


class WaitsForTheLastGroupOnly(Sequencer):
    def awaited(self) -> list[GroupId]:
        return [group for group in super().awaited() if group == tuple(self.topology.groups)[-1]]


class AnswersWhatComesEarly(Sequencer):
    """Says that it has taken what it only holds, since an earlier message is not here."""

    def known(self, origin: ProcessId) -> int:
        return max(super().known(origin), *self.requests.get(origin, {0: None}))


class ForgetsOnRestartWhatIsNotTaken(Sequencer):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.answered_by = dict(self.sent)


class NeverAnswers(Sequencer):
    def answers(self) -> bool:
        return False


class GoesOnAfterTheFirst(Sequencer):
    """What waits behind the next message goes with it."""

    def request_waiting(self) -> None:
        if self.waiting and not self.awaited():
            for m in self.waiting:
                self.request(m)
            self.waiting = []


MUTANTS = (
    DoesNotWait,
    AnswersWhatComesEarly,
    ForgetsOnRestartWhatIsNotTaken,
    NeverAnswers,
    ServesMembersOnly,
    NumbersEachSenderApart,
    TwoSequencers,
    DeliversItsOwnMessagesAtOnce,
    ForgetsItsNumbersOnRestart,
    ForgetsWhatItDeliveredOnRestart,
    SkipsNumbers,
    DoesNotTellTheLastMember,
    NumbersTheNewestFirst,
    ShowsTheMessageToABystander,
    NumbersARepeatedRequestAgain,
    NeverFetches,
    NeverReminds,
    SendersDoNotRepeat,
    RepeatsOnce,
    DeliversWhatIsNotStable,
    AMajorityIsEnough,
    TakesOverWithoutAsking,
    KeepsWhatHasAGapBeforeIt,
    ReadsNoReport,
    SendersTrustTheDead,
    SendersForgetTooEarly,
    CountsAnewAfterTakeover,
    ForgetsAfterTakeoverWhatHasANumber,
    WaitsForTheDead,
)

# Senders in random runs seldom answer one another across groups: these have a run of their own, test_kept_sequencer.py.
ACROSS_GROUPS = (DoesNotWait, OneAnswerIsEnough, WaitsForTheLastGroupOnly, GoesOnAfterTheFirst)
