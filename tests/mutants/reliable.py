"""Eager reliable multicast with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from antiphon.core import ProcessId
from antiphon.core.channel import Inbox
from antiphon.protocols.reliable import Reliable
from antiphon.services.reliable import Copy, EagerReliableMulticast


class NoForwarding(EagerReliableMulticast):
    def forward(self, copy: Copy) -> None:
        pass


class DeliversEveryCopy(EagerReliableMulticast):
    def on_copy(self, sender: ProcessId, copy: Copy) -> None:
        if self.is_first(copy):
            self.forward(copy)
        self.delivered(copy.message)


class OneMemoryForAllOrigins(EagerReliableMulticast):
    def is_first(self, copy: Copy) -> bool:
        seen = self.received.setdefault(ProcessId("all"), Inbox())
        number = max(copy.numbers)
        if not seen.is_new(number):
            return False
        seen.take(number)
        return True


class ForwardsWithinItsGroupOnly(EagerReliableMulticast):
    def forward(self, copy: Copy) -> None:
        own = self.topology.members(self.topology.group_of[self.me])
        self.send([p for p in own if p not in (self.me, copy.origin)], copy)


class ForwardsToEverybody(EagerReliableMulticast):
    def on_copy(self, sender: ProcessId, copy: Copy) -> None:
        if self.topology.group_of[self.me] in copy.message.destinations:
            super().on_copy(sender, copy)

    def forward(self, copy: Copy) -> None:
        self.send([p for p in self.topology.processes if p not in (self.me, copy.origin)], copy)


class BelievesTheOriginOnly(EagerReliableMulticast):
    def on_copy(self, sender: ProcessId, copy: Copy) -> None:
        if sender == copy.origin:
            super().on_copy(sender, copy)


def _over(kind: type[EagerReliableMulticast]) -> type[Reliable]:
    class Mutant(Reliable):
        def initialise(self) -> None:
            self.eager = self.part(kind, delivered=self.deliver)

    Mutant.__name__ = kind.__name__
    return Mutant


MUTANTS = tuple(
    _over(kind)
    for kind in (
        NoForwarding,
        DeliversEveryCopy,
        OneMemoryForAllOrigins,
        ForwardsWithinItsGroupOnly,
        ForwardsToEverybody,
        BelievesTheOriginOnly,
    )
)
