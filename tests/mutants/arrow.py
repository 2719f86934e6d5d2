"""Arrow multicast with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from antiphon.core import MessageId, ProcessId
from antiphon.protocols.arrow import ArrowMulticast
from antiphon.services.arrow import Arrow
from antiphon.services.swap import BOTTOM, Swap
from mutants.parts import with_parts
from mutants.reduction import reduction_mutants


class DoesNotFlipTheLink(Arrow):
    """A swap leaves no trace of its way."""

    def on_swap(self, sender: ProcessId, swap: Swap) -> None:
        link = self.link
        super().on_swap(sender, swap)
        self.link = link


class FlipsToTheWrongSide(Arrow):
    """To its last neighbour, wherever the swap came from."""

    def on_swap(self, sender: ProcessId, swap: Swap) -> None:
        super().on_swap(sender, swap)
        self.link = self.place().neighbours[-1]


class TurnsBack(Arrow):
    """Follows the link after it has flipped it."""

    def on_swap(self, sender: ProcessId, swap: Swap) -> None:
        at_sink = self.link == self.me
        self.link = sender
        self.follow(self.me if at_sink else self.link, swap, self.value)


class KeepsItsOldValue(Arrow):
    def enter(self, swap: Swap) -> None:
        value = self.value
        super().enter(swap)
        self.value = value


class FollowsItself(Arrow):
    """As the text has it: a sink that swaps sends the swap to itself, with the new value already in place."""

    def enter(self, swap: Swap) -> None:
        link, self.link = self.link, self.me
        self.value = swap.b
        self.follow(link, swap, self.value)


class DoesNotBecomeASink(Arrow):
    def enter(self, swap: Swap) -> None:
        link = self.link
        super().enter(swap)
        self.link = link


class RemainsASink(Arrow):
    """Answers, and thinks that it still has the value."""

    def on_swap(self, sender: ProcessId, swap: Swap) -> None:
        was_sink = self.link == self.me
        super().on_swap(sender, swap)
        if was_sink:
            self.link = self.me


class ForgetsItsValueNowAndThen(Arrow):
    """So that two messages follow ⊥."""

    def designate(self, swap: Swap, previous: MessageId) -> None:
        super().designate(swap, BOTTOM if swap.a.number % 5 == 0 else previous)


class BeginsWithTwoSinks(Arrow):
    def begin_anew(self) -> None:
        super().begin_anew()
        if not self.place().children:
            self.link = self.me


class ForgetsItsLinkOnRestart(Arrow):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.link = self.place().parent or self.me


class ForgetsItsValueOnRestart(Arrow):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.value = BOTTOM


class GivesTheSourceItsOwnValue(Arrow):
    def designate(self, swap: Swap, previous: MessageId) -> None:
        super().designate(swap, swap.a)


ARROWS = (
    DoesNotFlipTheLink,
    FlipsToTheWrongSide,
    TurnsBack,
    KeepsItsOldValue,
    FollowsItself,
    RemainsASink,
    ForgetsItsValueNowAndThen,
    BeginsWithTwoSinks,
    ForgetsItsLinkOnRestart,
    ForgetsItsValueOnRestart,
    GivesTheSourceItsOwnValue,
)
SEARCHED = (*ARROWS, DoesNotBecomeASink)  # the last sends without end, which a random run is long in noticing
MUTANTS = (*(with_parts(ArrowMulticast, kind) for kind in ARROWS), *reduction_mutants(ArrowMulticast))
