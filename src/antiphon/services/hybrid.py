"""Distributed swap by a combining tree whose nodes are clusters that run the arrow protocol (swap.txt, section 6.1).

L1-L10 are the lines of docs/protocols/hybrid.md. A cluster is a swap object of its own. Its value is ⊥ or, while it
gathers, the last of the chain that is to go up next. Invariant: between two swaps of ⊥ into it there is one swap that
finds ⊥, and that one leads the chain. So one process of the cluster, where that swap ended, sees to it that it goes up.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from antiphon.core import MessageId, ProcessId, Table, Transport
from antiphon.services.arrow import Arrow
from antiphon.services.combining import Window, WindowMs
from antiphon.services.swap import BOTTOM, DistributedSwap, Swap
from antiphon.services.tree import ClusterPlace, Place


class Cluster(Arrow):
    """The arrow protocol among the processes of one node of the tree."""

    ended: Callable[[Swap, MessageId], None]  # called at the sink

    def designate(self, swap: Swap, previous: MessageId) -> None:
        if swap.b == BOTTOM:
            super().designate(swap, previous)
        else:
            self.ended(swap, previous)


class HybridOptions(msgspec.Struct, frozen=True):
    window: WindowMs = 0


class Hybrid(DistributedSwap):
    Options = HybridOptions
    options: HybridOptions
    transport = Transport.FIFO
    place: Callable[[], ClusterPlace]  # where this process is in the tree of clusters

    cluster: Cluster

    leading: Table[MessageId, Swap]  # by a: the swaps that lead a chain which is to go up from here
    gathering: MessageId  # that of them whose chain still grows, or ⊥

    def initialise(self) -> None:
        self.cluster = self.part(
            Cluster,
            "cluster",
            place=self.place_within,
            neighbours=self.neighbours_within,
            swapped=self.when_closed,
            ended=self.when_ended,
        )
        super().initialise()

    def begin_anew(self) -> None:
        self.cluster.begin_anew()
        self.leading = {}
        self.gathering = BOTTOM

    def place_within(self) -> Place:
        return self.place().within

    def neighbours_within(self) -> tuple[ProcessId, ...]:
        return self.place().within.neighbours

    def enter(self, swap: Swap) -> None:  # L1
        self.cluster.enter(swap)  # L2

    def on_swap(self, sender: ProcessId, swap: Swap) -> None:  # L3
        if sender in self.place().children:
            self.enter(swap)

    def when_ended(self, swap: Swap, previous: MessageId) -> None:  # L4
        if previous != BOTTOM or self.place().parent is None:
            self.designate(swap, previous)  # L5
            return
        self.leading[swap.a] = swap  # L6
        self.gathering = swap.a
        if self.options.window == 0:
            self.at_turn_end()
        else:
            self.set_timer(Window(), self.options.window * 1_000_000)

    def on_turn_end(self) -> None:  # L7
        self.close()

    def on_window(self, timer: Window) -> None:
        self.close()

    def close(self) -> None:
        closing, self.gathering = self.gathering, BOTTOM
        if closing == BOTTOM:
            return  # the object began anew in this turn
        self.cluster.enter(Swap(self.me, closing, BOTTOM))  # L8

    def when_closed(self, a: MessageId, last: MessageId) -> None:  # L9
        first, parent = self.leading.pop(a, None), self.place().parent
        if first is not None and parent is not None:
            self.send(parent, Swap(first.source, first.a, last))  # L10
