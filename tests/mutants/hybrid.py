"""Hybrid multicast with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from typing import Any

from antiphon.core import MessageId, ProcessId, Promise
from antiphon.protocols.hybrid import HybridMulticast
from antiphon.services.hybrid import Cluster, Hybrid
from antiphon.services.reduction import PROMISES
from antiphon.services.swap import BOTTOM, Swap
from mutants.parts import with_parts
from mutants.reduction import reduction_mutants


class EveryClusterIsARoot(Hybrid):
    """What finds ⊥ in its cluster is said to be the first of all."""

    def when_ended(self, swap: Swap, previous: MessageId) -> None:
        self.designate(swap, previous)


class DoesNotEmptyTheCluster(Hybrid):
    """The chain goes up as long as it was when it began, and what comes later in the turn follows it all the same."""

    def close(self) -> None:
        closing, self.gathering = self.gathering, BOTTOM
        self.when_closed(closing, closing)


class SendsUpTheFirstAlone(Hybrid):
    def when_closed(self, a: MessageId, last: MessageId) -> None:
        super().when_closed(a, self.leading[a].b)


class KeepsOneLeaderOnly(Hybrid):
    """A chain that begins before the one before it has gone up takes its place."""

    def when_ended(self, swap: Swap, previous: MessageId) -> None:
        if previous == BOTTOM and self.place().parent is not None:
            self.leading = {}
        super().when_ended(swap, previous)


class SendsUpTwice(Hybrid):
    """When it closes a chain, and again when the last of it is known."""

    def close(self) -> None:
        first = self.leading[self.gathering]
        super().close()
        self.send(self.place().parent or self.me, first)


class ClosesWithItsOwnValue(Cluster):
    """What is swapped in to close a chain is the leader, not ⊥."""

    def enter(self, swap: Swap) -> None:
        super().enter(swap)
        if swap.b == BOTTOM:
            self.value = swap.a


class GoesUpWithoutItsCluster(Hybrid):
    """A swap from below goes on to the parent, past what gathers in the cluster."""

    def on_swap(self, sender: ProcessId, swap: Swap) -> None:
        if self.place().parent is not None and swap.a.number % 3 == 0:
            self.send(self.place().parent, swap)
        else:
            super().on_swap(sender, swap)


class RootAnswersBottom(Hybrid):
    def designate(self, swap: Swap, previous: MessageId) -> None:
        super().designate(swap, BOTTOM if self.place().parent is None else previous)


class ForgetsWhatItLeadsOnRestart(Hybrid):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.leading = {}


class ClusterForgetsItsLinkOnRestart(Cluster):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.link = self.place().parent or self.me


class ClusterForgetsItsValueOnRestart(Cluster):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.value = BOTTOM


class ClusterDoesNotFlipTheLink(Cluster):
    def on_swap(self, sender: ProcessId, swap: Swap) -> None:
        link = self.link
        super().on_swap(sender, swap)
        self.link = link


class PromisesFifo(HybridMulticast):
    """With clusters below the root, too."""

    @classmethod
    def own_promises(cls, options: Any) -> tuple[Promise, ...]:
        return PROMISES


PARTS = (
    EveryClusterIsARoot,
    DoesNotEmptyTheCluster,
    SendsUpTheFirstAlone,
    KeepsOneLeaderOnly,
    SendsUpTwice,
    ClosesWithItsOwnValue,
    GoesUpWithoutItsCluster,
    RootAnswersBottom,
    ForgetsWhatItLeadsOnRestart,
    ClusterForgetsItsLinkOnRestart,
    ClusterForgetsItsValueOnRestart,
    ClusterDoesNotFlipTheLink,
)


def over_hybrid(kind: Any) -> Any:
    """A cluster is a part of a part."""
    if not issubclass(kind, Cluster):
        return with_parts(HybridMulticast, kind)
    mutant = with_parts(HybridMulticast, with_parts(Hybrid, kind))  # type: ignore[type-var]
    mutant.__name__ = mutant.__qualname__ = kind.__name__
    return mutant


MUTANTS = (*(over_hybrid(kind) for kind in PARTS), PromisesFifo, *reduction_mutants(HybridMulticast))
