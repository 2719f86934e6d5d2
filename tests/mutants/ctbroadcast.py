"""Chandra-Toueg's broadcast with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from antiphon.core import Message, MessageId
from antiphon.protocols.ctbroadcast import CtBroadcast
from antiphon.services.label import Label
from mutants.parts import (
    CtDecidesItsOwnValueOnSuspicion,
    CtDecidesOnOneAcknowledgement,
    CtNeverSuspects,
    CtRotatesAmongAMajority,
    HrDecidesItsOwnValueOnSuspicion,
    HrDecidesWithoutAMajority,
    HrNeverSuspects,
    HrRotatesAmongAMajority,
    HrVotesWithItsOwnEstimate,
    UniformDeliversTheFirstCopy,
    UniformDoesNotEcho,
    over_consensus,
    over_reliable,
)

CONSENSUS_MISTAKES = (
    (CtDecidesItsOwnValueOnSuspicion, HrDecidesItsOwnValueOnSuspicion),
    (CtDecidesOnOneAcknowledgement, HrDecidesWithoutAMajority),
    (CtNeverSuspects, HrNeverSuspects),
    (HrVotesWithItsOwnEstimate,),
)


def mutants_of(protocol: type[CtBroadcast]) -> tuple[type[CtBroadcast], ...]:
    """The mistakes that can be made in the broadcast, in this protocol that is built from it."""

    class DeliversWithoutConsensus(protocol):  # type: ignore[misc,valid-type]
        def start(self) -> None:
            for id in sorted(self.received):
                self.ordered += 1
                self.order(self.received.pop(id))

    class OrdersItsOwnProposal(protocol):  # type: ignore[misc,valid-type]
        """Carries out what it proposed as if it had been decided."""

        def start(self) -> None:
            if self.received and self.proposed <= self.applied:
                super().start()
                self.decisions.setdefault(self.applied + 1, list(self.received))
                self.apply()

        def when_decided(self, instance: Label, value: bytes) -> None:
            if instance.numbers[0] > self.applied:
                super().when_decided(instance, value)

    class OrdersABatchByArrival(protocol):  # type: ignore[misc,valid-type]
        def apply(self) -> None:
            while (batch := self.decisions.get(self.applied + 1)) is not None:
                if any(id not in self.received for id in batch):
                    return
                self.applied += 1
                del self.decisions[self.applied]
                for id in [id for id in self.received if id in batch]:
                    self.ordered += 1
                    self.order(self.received.pop(id))

    class DoesNotWaitForItsMessages(protocol):  # type: ignore[misc,valid-type]
        """Carries a decision out without the messages of it that are not here yet; they wait for another one."""

        def apply(self) -> None:
            while (batch := self.decisions.pop(self.applied + 1, None)) is not None:
                self.applied += 1
                for id in sorted(batch):
                    if id in self.received:
                        self.ordered += 1
                        self.order(self.received.pop(id))

    class AppliesDecisionsAsTheyCome(protocol):  # type: ignore[misc,valid-type]
        decisions: dict[int, list[MessageId]]  # here their order shows

        def apply(self) -> None:
            for number, batch in list(self.decisions.items()):
                if all(id in self.received for id in batch):
                    self.applied = max(self.applied, number)
                    del self.decisions[number]
                    for id in sorted(batch):
                        self.ordered += 1
                        self.order(self.received.pop(id))

    class LosesWhatComesAfterItsDecision(protocol):  # type: ignore[misc,valid-type]
        def when_r_delivered(self, m: Message, label: Label) -> None:
            batch = self.decisions.get(self.applied + 1, [])
            if m.id in batch:
                batch.remove(m.id)
            else:
                super().when_r_delivered(m, label)

    class LosesWhatWasNotDecided(protocol):  # type: ignore[misc,valid-type]
        """Believes that a decision holds everything that it proposed."""

        def when_decided(self, instance: Label, value: bytes) -> None:
            proposed: list[MessageId] = list(self.received)
            super().when_decided(instance, value)
            if not self.decisions:
                for id in proposed:
                    self.received.pop(id, None)

    class ForgetsWhatItReceivedOnRestart(protocol):  # type: ignore[misc,valid-type]
        def restore(self, data: bytes) -> None:
            super().restore(data)
            self.received = {}

    class ForgetsWhatItAppliedOnRestart(protocol):  # type: ignore[misc,valid-type]
        def restore(self, data: bytes) -> None:
            super().restore(data)
            self.applied = max(self.applied - 1, 0)

    class ProposesTheNewestOnly(protocol):  # type: ignore[misc,valid-type]
        """And forgets the others."""

        def start(self) -> None:
            if len(self.received) > 3 and self.proposed <= self.applied:
                self.received.pop(next(iter(self.received)))
            super().start()

    class ProposesItsOwnMessagesOnly(protocol):  # type: ignore[misc,valid-type]
        def start(self) -> None:
            received = self.received
            self.received = {id: m for id, m in received.items() if id.origin == self.me}
            super().start()
            self.received = received

    found = (
        ProposesItsOwnMessagesOnly,
        DeliversWithoutConsensus,
        OrdersItsOwnProposal,
        OrdersABatchByArrival,
        DoesNotWaitForItsMessages,
        AppliesDecisionsAsTheyCome,
        LosesWhatComesAfterItsDecision,
        LosesWhatWasNotDecided,
        ForgetsWhatItReceivedOnRestart,
        ForgetsWhatItAppliedOnRestart,
        ProposesTheNewestOnly,
    )
    return (
        *found,
        *(over_consensus(protocol, *kinds) for kinds in CONSENSUS_MISTAKES),
        over_consensus(protocol, CtRotatesAmongAMajority, HrRotatesAmongAMajority),
        over_reliable(protocol, UniformDoesNotEcho),
        over_reliable(protocol, UniformDeliversTheFirstCopy),
    )


MUTANTS = mutants_of(CtBroadcast)
