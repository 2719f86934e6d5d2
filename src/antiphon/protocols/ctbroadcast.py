"""Chandra and Toueg's atomic broadcast: reliable broadcast, and a sequence of consensus on what to deliver next.

L1-L7 are the lines of docs/protocols/ctbroadcast.md.
"""

from __future__ import annotations

import msgspec

from antiphon.core import (
    Assumptions,
    Declaration,
    Detector,
    Failures,
    GroupId,
    Message,
    MessageId,
    ProcessId,
    Promise,
    Table,
)
from antiphon.core.floors import least_number
from antiphon.services.label import Label
from antiphon.services.stack import StackedProtocol


class CtBroadcast(StackedProtocol):
    declaration = Declaration(
        name="ctbroadcast",
        title="Chandra-Toueg atomic broadcast",
        source="Rodrigues, Guerraoui, Schiper: Scalable Atomic Multicast, section 5.2",
        assumes=Assumptions(failures=Failures.MINORITY, detector=Detector.EVENTUALLY_STRONG, all_groups=True),
        promises=(
            Promise.VALIDITY,
            Promise.INTEGRITY,
            Promise.UNIFORM_AGREEMENT,
            Promise.TOTAL_ORDER,
            Promise.ACYCLIC_ORDER,
        ),
    )

    Value = list[MessageId]
    advances = True

    received: dict[MessageId, Message]  # R-delivered, not ordered yet
    decisions: Table[int, list[MessageId]]  # decided, not carried out yet
    applied: int  # the number of the newest decision carried out
    proposed: int
    present: int  # how many messages of the next decision are known to be here
    ordered: int  # messages ordered so far

    def initialise(self) -> None:
        super().initialise()
        self.received, self.decisions = {}, {}
        self.applied = self.proposed = self.ordered = self.present = 0

    @property
    def everyone(self) -> tuple[GroupId, ...]:
        return tuple(self.topology.groups)

    def multicast(self, m: Message) -> None:  # L1
        self.reliable.multicast(m)

    def when_r_delivered(self, m: Message, label: Label) -> None:  # L2
        self.received[m.id] = m
        self.apply()
        self.start()

    def start(self) -> None:  # L3
        number = self.applied + 1
        if not self.received or self.proposed == number or number in self.decisions:
            return
        self.proposed = number
        instance = Label("", self.everyone, (number,) * len(self.everyone))
        self.consensus.propose(instance, _encoder.encode(list(self.received)))  # L4

    def when_decided(self, instance: Label, value: bytes) -> None:  # L5
        self.decisions[instance.numbers[0]] = self.decode(value)
        self.apply()
        self.start()

    def apply(self) -> None:
        """Carry out decisions in their order, each once all of its messages are here."""
        while (batch := self.decisions.get(self.applied + 1)) is not None:
            while self.present < len(batch) and batch[self.present] in self.received:
                self.present += 1
            if self.present < len(batch):
                return
            self.present = 0
            self.applied += 1
            del self.decisions[self.applied]
            for id in sorted(batch):  # L6
                m = self.received.pop(id)
                self.ordered = max(self.ordered + 1, least_number(m))
                self.order(m)  # L7

    def order(self, m: Message) -> None:
        self.deliver(m, (self.ordered,))

    @staticmethod
    def ids_of(value: list[MessageId]) -> list[MessageId]:
        return value

    def counters(self) -> dict[str, int]:
        return {"consensus executions": self.applied}

    def pending(self) -> int:
        return len(self.received) + self.reliable.pending()

    def waits_for(self) -> tuple[ProcessId, ...]:
        """Everybody takes part in the decision. Whose copy of a message is missing is not known here."""
        deciding = self.proposed > self.applied and self.proposed not in self.decisions
        return tuple(p for p in self.topology.processes if p != self.me) if deciding else ()


_encoder = msgspec.msgpack.Encoder()
