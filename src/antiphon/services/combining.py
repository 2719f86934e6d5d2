"""Distributed swap by a truncated combining tree (swap.txt, section 5). L1-L11: docs/protocols/combining.md.

What meets at a node goes on as one chain, in the order in which it came. So the swaps of one node keep their order all
the way, where channels keep theirs.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from antiphon.core import ProcessId, Timer, Transport
from antiphon.services.swap import BOTTOM, LinkedSwap, Swap

WindowMs = Annotated[int, msgspec.Meta(ge=0, le=10_000)]  # 0: what one turn of the process brings


class Window(Timer, frozen=True):
    """The time is over in which swaps can meet."""


class CombiningOptions(msgspec.Struct, frozen=True):
    window: WindowMs = 0


class Combining(LinkedSwap):
    """The nodes of a tree, each linked with its parent; the value is at the root."""

    Options = CombiningOptions
    options: CombiningOptions
    transport = Transport.FIFO

    met: list[Swap]  # what came to this node and has not gone on, in the order in which it came

    def begin_anew(self) -> None:
        self.link = self.place().parent or self.me
        self.value = BOTTOM  # L1
        self.met = []

    def on_swap(self, sender: ProcessId, swap: Swap) -> None:  # L2
        if sender in self.neighbours() and sender != self.link:
            self.enter(swap)

    def enter(self, swap: Swap) -> None:  # L3
        if self.link == self.me:
            self.designate(swap, self.value)  # L4
            self.value = swap.b  # L5
        else:
            self.wait_for_others(swap)

    def wait_for_others(self, swap: Swap) -> None:
        self.met.append(swap)  # L6
        if self.options.window == 0:
            self.at_turn_end()
        elif len(self.met) == 1:
            self.set_timer(Window(), self.options.window * 1_000_000)

    def on_turn_end(self) -> None:  # L7
        self.combine()

    def on_window(self, timer: Window) -> None:  # L8
        self.combine()

    def combine(self) -> None:
        """From ``first`` on, each is the predecessor of the next; the predecessor of the first is to be found above."""
        if not self.met:
            return  # it began anew, or left, in this turn
        first, *others = self.met
        self.met = []
        combined = first
        for swap in others:
            self.designate(swap, combined.b)  # L9
            combined = Swap(combined.source, combined.a, swap.b)  # L10
        assert self.link != self.me, "at the root nothing waits"
        self.send(self.link, combined)  # L11

    def quiesce(self) -> None:
        self.combine()
