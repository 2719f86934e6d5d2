"""Reliable multicast alone (slides.txt, "Atomic multicast"): all or nothing, in no order. The ground for the others."""

from __future__ import annotations

from antiphon.core import Assumptions, Declaration, Failures, Message, OrderingProtocol, Promise
from antiphon.services.reliable import EagerReliableMulticast


class Reliable(OrderingProtocol):
    declaration = Declaration(
        name="reliable",
        title="Eager reliable multicast",
        source="slides.txt, Atomic multicast 1-4",
        assumes=Assumptions(failures=Failures.CRASH_STOP),
        promises=(Promise.VALIDITY, Promise.INTEGRITY, Promise.AGREEMENT, Promise.GENUINENESS),
    )

    eager: EagerReliableMulticast

    def initialise(self) -> None:
        self.eager = self.part(EagerReliableMulticast, delivered=self.deliver)

    def multicast(self, m: Message) -> None:
        self.eager.multicast(m)

    def pending(self) -> int:
        return 0
