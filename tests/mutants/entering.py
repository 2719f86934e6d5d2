"""Entering and leaving with one mistake each. Every one must be caught by the seeds of test_entering.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from antiphon.core import Message, MessageId, ProcessId, Wire
from antiphon.core.component import Component
from antiphon.core.sessions import Standing
from antiphon.services.arrow import Arrow
from antiphon.services.combining import Combining
from antiphon.services.entering import (
    Carried,
    HandOver,
    Join,
    Joined,
    Lock,
    Locked,
    Moving,
    OrderedByMovableSwap,
    Progress,
    StandingPiece,
    Unlock,
)
from mutants.parts import with_parts

# Locks --------------------------------------------------------------------------------------------------------------


class HoldsNothingBack(Moving):
    """Is locked, and goes on as if it were not."""

    def on_carried(self, sender: ProcessId, carried: Carried) -> None:
        self.process.handle(sender, carried.frame)


class DropsWhatCameWhileItWasLocked(Moving):
    def unlock(self) -> None:
        self.held = []
        super().unlock()


class DoesNotWaitForTheLocks(Moving):
    def leave(self) -> None:
        super().leave()
        if self.leaving:
            self.hand_over()


class WaitsForOneLock(Moving):
    def on_locked(self, sender: ProcessId, locked: Locked) -> None:
        self.locks = dict.fromkeys(self.locks, True)
        super().on_locked(sender, locked)


class WaitsForNobodyWhoLeavesToo(Moving):
    """Gives its lock to whoever asks, while it leaves: two neighbours are locked for each other."""

    def go_on(self) -> None:
        leaving, self.leaving = self.leaving, False
        requests = [p for p in self.requests if p in self.neighbours]
        if leaving and self.locker is None and requests:
            self.grant(requests[0])
        self.leaving = leaving
        super().go_on()


class YieldsToNobody(Moving):
    """Gives nobody its lock, while it leaves: two neighbours wait for each other."""

    def go_on(self) -> None:
        requests = self.requests
        if self.leaving:
            self.requests = []
        super().go_on()
        if self.inside:
            self.requests = requests if not self.requests or self.leaving else self.requests


class BeginsToLeaveWhileItIsLocked(Moving):
    def go_on(self) -> None:
        if self.locker is not None and self.inside and not self.wanted and not self.leaving:
            self.leave()
        super().go_on()


class LocksOnlyThoseItHadAtFirst(Moving):
    """And not the neighbours that it gets while it leaves."""

    def on_hand_over(self, sender: ProcessId, given: HandOver) -> None:
        if self.leaving:
            self.locks |= dict.fromkeys(given.others, True)
        super().on_hand_over(sender, given)


class IsLockedForNeighboursOnly(Moving):
    """Not for those of whom it has yet to hear that they are."""

    def on_lock(self, sender: ProcessId, lock: Lock) -> None:
        if sender in self.neighbours:
            super().on_lock(sender, lock)


# Handing over -------------------------------------------------------------------------------------------------------


class KeepsTheValue(Moving):
    """Who leaves makes nobody the sink or root in its place."""

    def say(self, to: ProcessId | tuple[ProcessId, ...], message: Wire) -> None:
        super().say(to, HandOver(message.others, None) if isinstance(message, HandOver) else message)


class HandsOverAnOldValue(Moving):
    """The last that it delivered; at the root of a combining tree, where everything comes by, that is the value."""

    def say(self, to: ProcessId | tuple[ProcessId, ...], message: Wire) -> None:
        if isinstance(message, HandOver) and message.value is not None:
            message = HandOver(message.others, self.progress().last)
        super().say(to, message)


class LinksStayAtTheLeaverArrow(Arrow):
    """The paper's sentence: it changes the links that lead to the new sink, and those to the leaver stay."""

    def relink(self, left: ProcessId, heir: ProcessId) -> None:
        pass


class LinksStayAtTheLeaverCombining(Combining):
    def relink(self, left: ProcessId, heir: ProcessId) -> None:
        pass


class ChoosesAnyHeir(Moving):
    """And not the one to which its own link leads."""

    def hand_over(self) -> None:
        swap = self.swap_object()
        link = swap.link
        if link != self.me:
            swap.link = self.neighbours[-1]
        super().hand_over()
        swap.link = link


class NeverUnlocks(Moving):
    def say(self, to: ProcessId | tuple[ProcessId, ...], message: Wire) -> None:
        if not isinstance(message, Unlock):
            super().say(to, message)


class UnlocksOneOfThem(Moving):
    def say(self, to: ProcessId | tuple[ProcessId, ...], message: Wire) -> None:
        super().say(to[:1] if isinstance(to, tuple) and isinstance(message, Unlock) else to, message)


class ForgetsTheOtherNeighbours(Moving):
    """The heir takes the value and none of the edges."""

    def on_hand_over(self, sender: ProcessId, given: HandOver) -> None:
        super().on_hand_over(sender, HandOver((), given.value))


class LeavesJoinersBehind(Moving):
    def hand_over(self) -> None:
        self.joining = []
        super().hand_over()


class SendsLaterWhatMet(Combining):
    """Is locked with swaps that wait for others."""

    def quiesce(self) -> None:
        pass


# Entering -----------------------------------------------------------------------------------------------------------


class DoesNotPassJoinersOn(Moving):
    def on_join(self, sender: ProcessId, join: Join) -> None:
        if self.inside:
            super().on_join(sender, join)


class HearsItselfLater(Moving):
    """Who enters in between misses what the node has just multicast."""

    def send_for(self, part: Component, to: tuple[ProcessId, ...], message: Wire) -> None:
        super().send_for(part, tuple(p for p in to if p != self.me), message)
        if self.me in to:
            self.process.send_to_self(part, message)


class ForgetsWhatIsHeldOnRestart(Moving):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.held = []


class ForgetsItsNeighboursOnRestart(Moving):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.neighbours = list(self.place().neighbours) if self.inside else []


class AnnouncesNoGap(OrderedByMovableSwap):
    def announce_gap(self, behind: Iterable[Standing] | None = None) -> None:
        pass


class GoesOnBehindItsOwnLast(OrderedByMovableSwap):
    """As if nothing had been delivered meanwhile."""

    def when_entered(self, by: ProcessId, progress: Progress) -> None:
        super().when_entered(by, progress._replace(last=self.last, delivered=self.delivered))


class NumbersAnew(OrderedByMovableSwap):
    def when_entered(self, by: ProcessId, progress: Progress) -> None:
        super().when_entered(by, progress._replace(delivered=0))


class IsNotToldWhatIsHeldBack(OrderedByMovableSwap):
    def when_welcomed(self, who: ProcessId) -> None:
        pass


class LinksToItself(OrderedByMovableSwap):
    """Who enters thinks that the value is where it is."""

    def when_entered(self, by: ProcessId, progress: Progress) -> None:
        super().when_entered(by, progress)
        self.swap_object.link = self.me


# Clients ------------------------------------------------------------------------------------------------------------


class DoesNotAskWhereClientsAre(OrderedByMovableSwap):
    """Admits the first request of each client behind the gap, whatever its number, as if messages had been lost."""

    def announce_gap(self, behind: Iterable[Standing] | None = None) -> None:
        super().announce_gap()


class ForgetsItsClients(OrderedByMovableSwap):
    def announce_gap(self, behind: Iterable[Standing] | None = None) -> None:
        super().announce_gap(())


class ThinksThatClientsAreWhereTheyWere(OrderedByMovableSwap):
    """When it left."""

    def announce_gap(self, behind: Iterable[Standing] | None = None) -> None:
        super().announce_gap(self.process.standing())


class IsNotToldWhatWaits(Moving):
    """For its predecessor, at the node by which it enters."""

    def say(self, to: ProcessId | tuple[ProcessId, ...], message: Wire) -> None:
        if isinstance(message, Joined):
            message = Joined(message.last, message.delivered, message.standing._replace(waiting=()))
        if not isinstance(message, StandingPiece):
            super().say(to, message)


class TellsOnlyOfThoseWhoWait(Moving):
    def say(self, to: ProcessId | tuple[ProcessId, ...], message: Wire) -> None:
        if isinstance(message, Joined):
            message = Joined(message.last, message.delivered, message.standing._replace(delivered=()))
        super().say(to, message)


# The multicast ------------------------------------------------------------------------------------------------------


class MulticastsToItsLocker(OrderedByMovableSwap):
    def when_found(self, m: Message, previous: MessageId) -> None:
        self.spread.multicast(previous, m)


class OrdersWhileItIsLocked(OrderedByMovableSwap):
    def order(self, m: Message) -> None:
        if self.options.moving and self.moving.inside:
            self.swap_object.swap(m.id, carrying=m)
        else:
            super().order(m)


class OrdersWhileItIsOutside(OrderedByMovableSwap):
    def order(self, m: Message) -> None:
        if self.options.moving and not self.moving.inside:
            self.swap_object.swap(m.id, carrying=m)
        else:
            super().order(m)


PARTS = (
    HoldsNothingBack,
    DropsWhatCameWhileItWasLocked,
    DoesNotWaitForTheLocks,
    WaitsForOneLock,
    WaitsForNobodyWhoLeavesToo,
    YieldsToNobody,
    BeginsToLeaveWhileItIsLocked,
    LocksOnlyThoseItHadAtFirst,
    IsLockedForNeighboursOnly,
    KeepsTheValue,
    ChoosesAnyHeir,
    NeverUnlocks,
    UnlocksOneOfThem,
    ForgetsTheOtherNeighbours,
    LeavesJoinersBehind,
    DoesNotPassJoinersOn,
    HearsItselfLater,
    ForgetsWhatIsHeldOnRestart,
    ForgetsItsNeighboursOnRestart,
)
MISTAKES = (
    AnnouncesNoGap,
    GoesOnBehindItsOwnLast,
    NumbersAnew,
    IsNotToldWhatIsHeldBack,
    LinksToItself,
    MulticastsToItsLocker,
    OrdersWhileItIsLocked,
    OrdersWhileItIsOutside,
)
OF_CLIENTS = (DoesNotAskWhereClientsAre, ForgetsItsClients, ThinksThatClientsAreWhereTheyWere)
PARTS_OF_CLIENTS = (IsNotToldWhatWaits, TellsOnlyOfThoseWhoWait)
OF_ARROW = (LinksStayAtTheLeaverArrow, HandsOverAnOldValue)
OF_COMBINING = (LinksStayAtTheLeaverCombining, SendsLaterWhatMet)


def entering_mutants(protocol: Any) -> tuple[Any, ...]:
    """Each of these mistakes in a protocol."""
    own = OF_ARROW if protocol.declaration.name == "arrow" else OF_COMBINING
    mixed = tuple(type(mistake.__name__, (mistake, protocol), {}) for mistake in MISTAKES)
    return (*(with_parts(protocol, kind) for kind in (*PARTS, *own)), *mixed)


def client_mutants(protocol: Any) -> tuple[Any, ...]:
    """Those that only clients notice, who hand their requests to members."""
    mixed = tuple(type(mistake.__name__, (mistake, protocol), {}) for mistake in OF_CLIENTS)
    return (*mixed, *(with_parts(protocol, kind) for kind in PARTS_OF_CLIENTS))
