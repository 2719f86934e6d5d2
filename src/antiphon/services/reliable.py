"""Eager reliable multicast (slides.txt, "Atomic multicast 3/4"): forward on first receipt, then deliver.

E1-E7 are the lines of docs/protocols/reliable.md.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.core import Component, GroupId, Message, ProcessId, Wire
from antiphon.core.channel import Inbox


class Copy(Wire, frozen=True, tag=1):
    """m, from its origin or forwarded. ``numbers`` counts the origin's messages to each destination group.

    A member sees every number of its own group, so it can forget all but the highest: duplicates are remembered in
    bounded memory.
    """

    message: Message
    origin: ProcessId
    numbers: tuple[int, ...]


class EagerReliableMulticast(Component):
    delivered: Callable[[Message], None]

    sent: dict[GroupId, int]
    received: dict[ProcessId, Inbox]

    def initialise(self) -> None:
        self.sent = {}
        self.received = {}

    def multicast(self, m: Message) -> None:  # E1
        for group in m.destinations:
            self.sent[group] = self.sent.get(group, 0) + 1  # E2
        numbers = tuple(self.sent[group] for group in m.destinations)
        self.send(self.topology.addressees(m.destinations), Copy(m, self.me, numbers))  # E3

    def on_copy(self, sender: ProcessId, copy: Copy) -> None:  # E4
        if self.is_first(copy):  # E5
            self.forward(copy)
            self.delivered(copy.message)  # E7

    def forward(self, copy: Copy) -> None:
        if copy.origin != self.me:  # the origin has just sent it to everybody
            others = self.topology.addressees(copy.message.destinations)
            self.send([p for p in others if p not in (self.me, copy.origin)], copy)  # E6

    def is_first(self, copy: Copy) -> bool:
        seen = self.received.setdefault(copy.origin, Inbox())
        number = copy.numbers[copy.message.destinations.index(self.topology.group_of[self.me])]
        if not seen.is_new(number):
            return False
        seen.take(number)
        return True
