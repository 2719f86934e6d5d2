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


class NumbersWhatItDelivers(NonMinimal):
    """The number in the order counts the messages of the own group only, so it is not the same in all groups."""

    own: int

    def initialise(self) -> None:
        super().initialise()
        self.own = 0

    def order(self, m: Message) -> None:
        if self.group in m.destinations:
            self.own += 1
            self.deliver(m, (self.own,))


class OrdersOnlyWhatItIsAddressedBy(NonMinimal):
    """A decision waits for the messages of the own group only; the others it takes for done."""

    def apply(self) -> None:
        batch = self.decisions.get(self.applied + 1)
        if batch is not None and self.present == 0:
            self.decisions[self.applied + 1] = [id for id in batch if id in self.received]
        super().apply()


MUTANTS = (
    OrdersOnlyWhatItIsAddressedBy,
    TellsTheAddresseesOnly,
    DeliversItsOwnMessagesAtOnce,
    DeliversToTheFirstGroupOnly,
    DeliversSmallMessagesFirst,
    *mutants_of(NonMinimal),
)
