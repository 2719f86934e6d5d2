"""Multicast by broadcast with one mistake each: those of the broadcast, and some of its own."""

from __future__ import annotations

from antiphon.core import Message
from antiphon.core.keys import Key
from antiphon.protocols.nonminimal import NonMinimal
from antiphon.services.label import Label
from mutants.ctbroadcast import mutants_of


class TellsTheAddresseesOnly(NonMinimal):
    """The others are asked to order what they never get."""

    to_everybody = False


class DeliversItsOwnMessagesAtOnce(NonMinimal):
    def multicast(self, m: Message) -> None:
        super().multicast(m)
        if self.topology.group_of.get(self.me) in m.destinations:
            self.deliver(m)

    def deliver(self, m: Message, key: Key | None = None) -> None:
        if key is None or m.id.origin != self.me:
            super().deliver(m, key)


class DeliversToTheFirstGroupOnly(NonMinimal):
    def order(self, m: Message) -> None:
        if self.group == m.destinations[0]:
            self.deliver(m)


class DeliversSmallMessagesFirst(NonMinimal):
    """Messages to one group need no order among all, it thinks, and delivers them when they arrive."""

    def when_r_delivered(self, m: Message, label: Label) -> None:
        super().when_r_delivered(m, label)
        if m.destinations == (self.group,):
            self.deliver(m)

    def order(self, m: Message) -> None:
        if len(m.destinations) > 1:
            super().order(m)


MUTANTS = (
    TellsTheAddresseesOnly,
    DeliversItsOwnMessagesAtOnce,
    DeliversToTheFirstGroupOnly,
    DeliversSmallMessagesFirst,
    *mutants_of(NonMinimal),
)
