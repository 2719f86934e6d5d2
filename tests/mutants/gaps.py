"""Order with gaps with one mistake each, to be put into any protocol by swap.

Some break what is promised, and seeds catch them. Others only lose more than they must, for ever: order with gaps lets
messages be lost, so no promise is broken, and tests/simulation/test_gaps.py looks at what comes after the last gap.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from antiphon.core import GroupId, Message, MessageId, ProcessId, Wire
from antiphon.core.component import Component
from antiphon.services.gaps import Eras, InEra
from antiphon.services.reduction import OrderedBySwap
from antiphon.services.swap import BOTTOM
from mutants.parts import with_parts

# What the seeds catch -----------------------------------------------------------------------------------------------


class TakesFramesOfErasThatAreOver(Eras):
    def on_in_era(self, sender: ProcessId, sent: InEra) -> None:
        self.learn(sent.dead)
        self.process.handle(sender, sent.frame)


class CarriesNoEra(Eras):
    def send_for(self, part: Component, to: tuple[ProcessId, ...], message: Wire) -> None:
        dead, self.dead = self.dead, []
        super().send_for(part, to, message)
        self.dead = dead


class DoesNotMoveWithAFrame(Eras):
    """Takes a frame of a later era in its own, and waits for its own detector."""

    def on_in_era(self, sender: ProcessId, sent: InEra) -> None:
        if set(sent.dead) >= set(self.era(self.group)):
            self.process.handle(sender, sent.frame)


class GoesWhereverAFrameComesFrom(Eras):
    """To the era of the frame, and not to the one that has the dead of both: eras are not in one order."""

    def on_in_era(self, sender: ProcessId, sent: InEra) -> None:
        if sent.dead and sent.dead != self.era(self.group):
            self.dead = [p for p in self.dead if self.topology.group_of[p] != self.group]
        super().on_in_era(sender, sent)


class ForgetsItsEraOnRestart(Eras):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.dead = []


class AnnouncesNoGap(OrderedBySwap):
    def announce_gap(self) -> None:
        pass


class AnnouncesTheFirstGapOnly(OrderedBySwap):
    announced: bool

    def initialise(self) -> None:
        super().initialise()
        self.announced = False

    def announce_gap(self) -> None:
        if not self.announced:
            super().announce_gap()
        self.announced = True


class AnnouncesTheGapTooLate(OrderedBySwap):
    """Behind the first message of the new era."""

    owed: bool

    def initialise(self) -> None:
        super().initialise()
        self.owed = False

    def announce_gap(self) -> None:
        self.owed = True

    def deliver_next(self, m: Message) -> None:
        super().deliver_next(m)
        if self.owed:
            super().announce_gap()
        self.owed = False


class AnnouncesAGapOnlyIfItMissesSomething(OrderedBySwap):
    """What it holds back at the end of an era is all that it thinks it misses."""

    def announce_gap(self) -> None:
        if self.holdback:
            super().announce_gap()


class DeliversWhatItHeldBack(OrderedBySwap):
    """Rather than give it up, as if there were no messages missing before it."""

    def when_moved(self) -> None:
        for previous in sorted(self.holdback):
            self.deliver_next(self.holdback[previous])
        super().when_moved()


class DeliversWhatItHeldBackBehindTheGap(OrderedBySwap):
    """Where messages may be missing; but others may have delivered them before what it has delivered."""

    def when_moved(self) -> None:
        held = [self.holdback[previous] for previous in sorted(self.holdback)]
        super().when_moved()
        for m in held:
            self.deliver_next(m)


class SwapsAgainWhatIsUnderWay(OrderedBySwap):
    """What this process swapped in the era before, whether or not somebody has it."""

    swapped: dict[MessageId, Message]

    def initialise(self) -> None:
        self.swapped = {}
        super().initialise()

    def order(self, m: Message) -> None:
        if self.options.gaps:
            self.swapped[m.id] = m
        super().order(m)

    def when_moved(self) -> None:
        self.waiting = {}
        super().when_moved()
        again, self.swapped = self.swapped, {}
        for m in again.values():
            self.order(m)


class NumbersItsSwapObjectsAlike(OrderedBySwap):
    """Begins anew with the answers of the era before still to come: an answer is believed in whichever era."""

    def when_swapped(self, a: MessageId, previous: MessageId) -> None:
        m = self.waiting.get(a)
        super().when_swapped(a, previous)
        if m is not None and self.options.gaps:
            self.waiting[a] = m  # and is asked for again


# What only shows behind the last gap --------------------------------------------------------------------------------


class HearsNoDetector(Eras):
    def on_suspect(self, process: ProcessId) -> None:
        pass


class BelievesItsOwnDetectorOnly(Eras):
    """And discards all frames of other eras, later ones too: what it discards nobody sends again."""

    def on_in_era(self, sender: ProcessId, sent: InEra) -> None:
        if sent.dead == self.era(self.group):
            self.process.handle(sender, sent.frame)


class ForgetsTheDeadItHeardOf(Eras):
    """Knows one dead at a time."""

    def learn(self, dead: Iterable[ProcessId]) -> None:
        super().learn(dead)
        self.dead = self.dead[-1:]


class KeepsWhatItHeldBack(OrderedBySwap):
    """Shows where a message is swapped again that others were said to follow in the era before."""

    def when_moved(self) -> None:
        held = self.holdback
        super().when_moved()
        self.holdback = held


class GoesOnBehindTheLast(OrderedBySwap):
    """Waits for a message that follows the last one of the era before."""

    def when_moved(self) -> None:
        last = self.last
        super().when_moved()
        self.last = last


class KeepsTheOldSwapObject(OrderedBySwap):
    """A sink or root that crashed is not replaced."""

    def when_moved(self) -> None:
        self.announce_gap()
        self.last, self.holdback, self.delivered = BOTTOM, {}, 0


class KeepsTheDeadInTheTree(OrderedBySwap):
    def nodes(self) -> tuple[ProcessId, ...]:
        group = self.topology.group_of.get(self.me)
        return () if group is None else self.topology.members(group)


class HandsToTheDead(OrderedBySwap):
    def contact(self, group: GroupId) -> ProcessId:
        eras, self.eras = self.eras, _NobodyIsDead()  # type: ignore[assignment]
        found = super().contact(group)
        self.eras = eras
        return found


class _NobodyIsDead:
    def era(self, group: GroupId) -> tuple[ProcessId, ...]:
        return ()


def gaps_mutants(protocol: Any) -> tuple[Any, ...]:
    """Each of those mistakes in a protocol that break what it promises."""
    parts = (
        TakesFramesOfErasThatAreOver,
        CarriesNoEra,
        DoesNotMoveWithAFrame,
        GoesWhereverAFrameComesFrom,
        ForgetsItsEraOnRestart,
    )
    mistakes = (
        AnnouncesNoGap,
        AnnouncesTheFirstGapOnly,
        AnnouncesTheGapTooLate,
        AnnouncesAGapOnlyIfItMissesSomething,
        DeliversWhatItHeldBack,
        DeliversWhatItHeldBackBehindTheGap,
        SwapsAgainWhatIsUnderWay,
        NumbersItsSwapObjectsAlike,
    )
    return (*(with_parts(protocol, kind) for kind in parts), *(_mixed(protocol, mistake) for mistake in mistakes))


def losing_mutants(protocol: Any) -> tuple[Any, ...]:
    """And of those that lose for ever."""
    parts = (
        HearsNoDetector,
        BelievesItsOwnDetectorOnly,
        ForgetsTheDeadItHeardOf,
    )
    mistakes = (KeepsWhatItHeldBack, GoesOnBehindTheLast, KeepsTheOldSwapObject, KeepsTheDeadInTheTree, HandsToTheDead)
    return (*(with_parts(protocol, kind) for kind in parts), *(_mixed(protocol, mistake) for mistake in mistakes))


def _mixed(protocol: Any, mistake: type) -> Any:
    return type(mistake.__name__, (mistake, protocol), {})
