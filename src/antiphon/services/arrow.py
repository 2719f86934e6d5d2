"""Distributed swap by path reversal (swap.txt, section 4). L1-L9 are the lines of docs/protocols/arrow.md.

Invariant: on each edge of the tree there is at all times one arrow, at one of its two ends, or one swap on its way, and
never both. So whoever follows the arrows comes to a sink in at most as many hops as the tree's diameter, and no channel
need keep an order: there is nothing on it to be overtaken.
"""

from __future__ import annotations

from antiphon.core import MessageId, ProcessId
from antiphon.services.swap import BOTTOM, LinkedSwap, Swap


class Arrow(LinkedSwap):
    """The nodes of a tree, each of which knows only in which direction the object's value is: at a sink."""

    def begin_anew(self) -> None:
        self.link = self.place().parent or self.me  # L1
        self.value = BOTTOM

    def enter(self, swap: Swap) -> None:  # L2
        link, self.link = self.link, self.me  # L3
        value, self.value = self.value, swap.b  # L4
        self.follow(link, swap, value)  # L5

    def on_swap(self, sender: ProcessId, swap: Swap) -> None:  # L6
        if sender in self.neighbours():
            link, self.link = self.link, sender  # L7
            self.follow(link, swap, self.value)

    def follow(self, link: ProcessId, swap: Swap, value: MessageId) -> None:
        """Along the arrow that was here before it was flipped."""
        if link != self.me:
            self.send(link, swap)  # L8
        else:
            self.designate(swap, value)  # L9
