"""Combining multicast with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from antiphon.core import MessageId, ProcessId
from antiphon.protocols.combining import CombiningMulticast
from antiphon.services.combining import Combining
from antiphon.services.swap import BOTTOM, Swap
from mutants.parts import with_parts
from mutants.reduction import reduction_mutants


class CombinesInTheWrongOrder(Combining):
    """The newest first: a node's own swaps no longer keep their order."""

    def combine(self) -> None:
        self.met.reverse()
        super().combine()


class RootForgetsToStore(Combining):
    def enter(self, swap: Swap) -> None:
        super().enter(swap)
        self.value = BOTTOM


class RootStoresTheFirst(Combining):
    """a instead of b."""

    def enter(self, swap: Swap) -> None:
        super().enter(swap)
        if self.place().parent is None:
            self.value = swap.a


class MulticastsTheFirstInsteadOfTheSecond(Combining):
    """Of two that meet, the wrong one is said to follow the other, and the wrong one goes on."""

    def combine(self) -> None:
        if len(self.met) > 1:
            first, second, *others = self.met
            self.designate(first, second.b)
            self.met = [Swap(second.source, second.a, first.b), *others]
        super().combine()


class DesignatesTheFirstOfTheChain(Combining):
    """a instead of b as the result of the one that follows."""

    def designate(self, swap: Swap, previous: MessageId) -> None:
        first = self.leading
        super().designate(swap, previous if first is None else first.a)

    leading: Swap | None

    def initialise(self) -> None:
        super().initialise()
        self.leading = None

    def combine(self) -> None:
        self.leading = self.met[0]
        super().combine()
        self.leading = None


class KeepsTheLastOfTheFirst(Combining):
    """swap(u, a, b) goes on instead of swap(u, a, d)."""

    def combine(self) -> None:
        first = self.met[0]
        send = self.send
        self.send = lambda to, message: send(  # type: ignore[method-assign]
            to, Swap(first.source, first.a, first.b) if isinstance(message, Swap) else message
        )
        super().combine()
        del self.send


class SendsOnEverything(Combining):
    """What has met goes on as well, as if it had not."""

    def combine(self) -> None:
        met = list(self.met)
        super().combine()
        for swap in met[1:]:
            self.send(self.place().parent or self.me, swap)


class LosesWhatComesThird(Combining):
    def combine(self) -> None:
        del self.met[2:]
        super().combine()


class ForgetsTheValueOnRestart(Combining):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.value = BOTTOM


class RootDoesNotStoreItsOwn(Combining):
    def enter(self, swap: Swap) -> None:
        before = self.value
        super().enter(swap)
        if self.place().parent is None and swap.a.origin == self.me:
            self.value = before


class TakesSwapsFromItsFirstChildOnly(Combining):
    def on_swap(self, sender: ProcessId, swap: Swap) -> None:
        if sender == self.place().children[0]:
            super().on_swap(sender, swap)


TREES = (
    CombinesInTheWrongOrder,
    RootForgetsToStore,
    RootStoresTheFirst,
    MulticastsTheFirstInsteadOfTheSecond,
    DesignatesTheFirstOfTheChain,
    KeepsTheLastOfTheFirst,
    SendsOnEverything,
    LosesWhatComesThird,
    ForgetsTheValueOnRestart,
    RootDoesNotStoreItsOwn,
    TakesSwapsFromItsFirstChildOnly,
)
MUTANTS = (*(with_parts(CombiningMulticast, kind) for kind in TREES), *reduction_mutants(CombiningMulticast))
