"""Multicast by broadcast with one mistake each: those of the broadcast, and some of its own."""

from __future__ import annotations

import msgspec

from antiphon.core import Message
from antiphon.protocols.nonminimal import NonMinimal
from mutants.ctbroadcast import mutants_of


class TellsTheAddresseesOnly(NonMinimal):
    """The others are asked to order what they never get."""

    def multicast(self, m: Message) -> None:
        envelope = msgspec.structs.replace(m, payload=msgspec.msgpack.encode(m))
        self.reliable.multicast(envelope)


class DeliversItsOwnMessagesAtOnce(NonMinimal):
    def multicast(self, m: Message) -> None:
        super().multicast(m)
        if self.topology.group_of.get(self.me) in m.destinations:
            self.deliver(m)

    def deliver(self, m: Message, order_key: str | None = None) -> None:
        if order_key is None or not m.id.startswith(f"{self.me}:"):
            super().deliver(m, order_key)


class DeliversToTheFirstGroupOnly(NonMinimal):
    def order(self, m: Message) -> None:
        inner = msgspec.msgpack.decode(m.payload, type=Message)
        if self.topology.group_of[self.me] == inner.destinations[0]:
            self.deliver(inner)


class DeliversSmallMessagesFirst(NonMinimal):
    """Messages to one group need no order among all, it thinks, and delivers them when they arrive."""

    def on_r_deliver(self, m, label) -> None:  # type: ignore[no-untyped-def]
        super().on_r_deliver(m, label)
        inner = msgspec.msgpack.decode(m.payload, type=Message)
        if inner.destinations == (self.topology.group_of[self.me],):
            self.deliver(inner)

    def order(self, m: Message) -> None:
        inner = msgspec.msgpack.decode(m.payload, type=Message)
        if len(inner.destinations) > 1:
            super().order(m)


MUTANTS = (
    TellsTheAddresseesOnly,
    DeliversItsOwnMessagesAtOnce,
    DeliversToTheFirstGroupOnly,
    DeliversSmallMessagesFirst,
    *mutants_of(NonMinimal),
)
