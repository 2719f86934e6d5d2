"""Multicast by counting with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from antiphon.core import GroupId, Message, MessageId, ProcessId
from antiphon.protocols.counting import ArrowCounter, CombiningCounter, Counting, Find, Give
from antiphon.services.swap import BOTTOM
from mutants.parts import with_parts
from mutants.reduction import DoesNotFlood, FloodsToOneNeighbour, LeavesOutTheLastMember

# Arrow --------------------------------------------------------------------------------------------------------------


class DoesNotWaitForTheNumber(ArrowCounter):
    """A sink without the number takes the one that it had last."""

    newest: int

    def initialise(self) -> None:
        super().initialise()
        self.newest = 0

    def go_on(self, value: MessageId) -> None:
        self.newest = max(self.newest, self.numbers.get(value, 0))
        if value in self.finds:
            self.numbers.setdefault(value, self.newest)
        super().go_on(value)


class DoesNotIncrement(ArrowCounter):
    def go_on(self, value: MessageId) -> None:
        if value in self.numbers and value != BOTTOM and value.number % 4 == 0:
            self.numbers[value] -= 1
        super().go_on(value)


class KeepsTheNumber(ArrowCounter):
    """The sink keeps it when the message has gone on."""

    def go_on(self, value: MessageId) -> None:
        number = self.numbers.get(value)
        super().go_on(value)
        if number is not None and value not in self.numbers:
            self.numbers[self.value] = number + 1


class SendsTheNumberToTheOrigin(ArrowCounter):
    """Not to the node where the message began its way."""

    def follow(self, link: ProcessId, find: Find, value: MessageId) -> None:
        origin = find.message.id.origin
        known = origin if self.topology.group_of.get(origin) == self.group else self.topology.members(self.group)[0]
        super().follow(link, Find(known, find.message), value)


class GivesTheNumberToWhoeverCameLast(ArrowCounter):
    """Of several messages that wait at this node, whichever sink the number was meant for."""

    def go_on(self, value: MessageId) -> None:
        if value in self.numbers and self.finds:
            newest = list(self.finds)[-1]
            self.numbers[newest] = self.numbers.pop(value)
            value = newest
        super().go_on(value)


class CounterDoesNotFlipTheLink(ArrowCounter):
    def on_find(self, sender: ProcessId, find: Find) -> None:
        link = self.link
        super().on_find(sender, find)
        self.link = link


class ForgetsTheNumberOnRestart(ArrowCounter):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.numbers = {BOTTOM: 0} if self.link == self.me else {}


class ForgetsWhatWaitsForTheNumberOnRestart(ArrowCounter):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.finds = {}


# Combining ----------------------------------------------------------------------------------------------------------


class DoesNotLock(CombiningCounter):
    """A second request goes up behind the first, and takes its place."""

    def go_up(self) -> None:
        if self.locked_for and self.met:
            self.locked_for = []
        super().go_up()


class DoesNotUnlock(CombiningCounter):
    def come_down(self, after: int) -> None:
        locked = self.locked_for
        super().come_down(after)
        self.locked_for = self.locked_for or locked


class DoesNotGoOnWhenUnlocked(CombiningCounter):
    """What waited for the node to be unlocked waits for the next one to come by."""

    unlocking: bool

    def initialise(self) -> None:
        super().initialise()
        self.unlocking = False

    def come_down(self, after: int) -> None:
        self.unlocking = True
        super().come_down(after)
        self.unlocking = False

    def go_up(self) -> None:
        if not self.unlocking:
            super().go_up()


class GivesAllTheSameNumbers(CombiningCounter):
    """Everybody who met gets the numbers from the same one on."""

    def come_down(self, after: int) -> None:
        self.locked_for = [(who, 0) for who, _ in self.locked_for]
        super().come_down(after)


class RootCountsRequestsNotMessages(CombiningCounter):
    def go_up(self) -> None:
        issued = self.issued
        super().go_up()
        if self.issued > issued and self.options.place.parent is None:
            self.issued = issued + 1


class GivesTheNewestFirst(CombiningCounter):
    def come_down(self, after: int) -> None:
        self.own[: len(self.locked_for)] = reversed(self.own[: len(self.locked_for)])
        super().come_down(after)


class ForgetsWhatIsIssuedOnRestart(CombiningCounter):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.issued = 0


class ForgetsForWhomItIsLockedOnRestart(CombiningCounter):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.locked_for = []


class SkipsANumber(CombiningCounter):
    def on_give(self, sender: ProcessId, give: Give) -> None:
        super().on_give(sender, Give(give.after + 1 if give.after % 5 == 4 else give.after))


# The multicast ------------------------------------------------------------------------------------------------------


class DeliversAsItComes(Counting):
    def when_received(self, place: MessageId | int, m: Message) -> None:
        self.deliver_next(m)


class DeliversOneOfThoseThatWait(Counting):
    def when_received(self, place: MessageId | int, m: Message) -> None:
        assert isinstance(place, int)
        self.holdback[place] = m
        following = self.holdback.pop(self.delivered + 1, None)
        if following is not None:
            self.deliver_next(following)


class ForgetsWhatItDeliveredOnRestart(Counting):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.delivered = 0


class HandsToOneAfterTheOther(Counting):
    handed: int

    def initialise(self) -> None:
        super().initialise()
        self.handed = 0

    def contact(self, group: GroupId) -> ProcessId:
        self.handed += 1
        members = self.topology.members(group)
        return members[self.handed % len(members)]


PARTS = (
    DoesNotWaitForTheNumber,
    DoesNotIncrement,
    KeepsTheNumber,
    SendsTheNumberToTheOrigin,
    GivesTheNumberToWhoeverCameLast,
    CounterDoesNotFlipTheLink,
    ForgetsTheNumberOnRestart,
    ForgetsWhatWaitsForTheNumberOnRestart,
    DoesNotLock,
    DoesNotUnlock,
    DoesNotGoOnWhenUnlocked,
    GivesAllTheSameNumbers,
    RootCountsRequestsNotMessages,
    GivesTheNewestFirst,
    ForgetsWhatIsIssuedOnRestart,
    ForgetsForWhomItIsLockedOnRestart,
    SkipsANumber,
    DoesNotFlood,
    FloodsToOneNeighbour,
    LeavesOutTheLastMember,
)
MUTANTS = (
    *(with_parts(Counting, kind) for kind in PARTS),
    DeliversAsItComes,
    DeliversOneOfThoseThatWait,
    ForgetsWhatItDeliveredOnRestart,
    HandsToOneAfterTheOther,
)
