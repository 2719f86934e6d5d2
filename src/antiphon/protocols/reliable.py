"""Reliable multicast alone (slides.txt, "Atomic multicast"): all or nothing, in no order. The ground for the others."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.core import (
    Assumptions,
    Declaration,
    Detector,
    Failures,
    Message,
    OrderingProtocol,
    ProcessId,
    Promise,
    Watched,
)
from antiphon.services.label import Label
from antiphon.services.reliable import KINDS, ReliableKind, ReliableMulticast


class ReliableOnly(msgspec.Struct, frozen=True):
    reliable: ReliableKind = "eager"


class Reliable(OrderingProtocol):
    declaration = Declaration(
        name="reliable",
        title="Reliable multicast",
        source="lecture slides, Atomic multicast 1 to 4; Rodrigues, Guerraoui, Schiper, section 3.4",
        assumes=Assumptions(failures=Failures.MINORITY, detector=Detector.EVENTUALLY_STRONG),
        promises=(Promise.VALIDITY, Promise.INTEGRITY, Promise.AGREEMENT, Promise.GENUINENESS),
    )
    Options = ReliableOnly
    options: ReliableOnly

    multicasting: ReliableMulticast

    def initialise(self) -> None:
        self.multicasting = self.part(KINDS[self.options.reliable], "reliable", delivered=self.when_delivered)

    @classmethod
    def own_promises(cls, options: Any) -> tuple[Promise, ...]:
        promised = super().own_promises(options)
        return (*promised, Promise.UNIFORM_AGREEMENT) if options.reliable == "uniform" else promised

    @classmethod
    def watched(cls, options: Any) -> Watched:
        return Watched.SENDERS if options.reliable == "lazy" else Watched.NOBODY

    def multicast(self, m: Message) -> None:
        self.multicasting.multicast(m)

    def when_delivered(self, m: Message, label: Label) -> None:
        self.deliver(m)

    def pending(self) -> int:
        return self.multicasting.pending()

    def waits_for(self) -> tuple[ProcessId, ...]:
        return self.multicasting.waits_for()
