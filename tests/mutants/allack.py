"""All-ack with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from antiphon.core import ProcessId
from antiphon.protocols.allack import AllAck
from antiphon.services.dag import Node
from mutants.chosen import chosen_wrongly
from mutants.dag import (
    AcknowledgesNothing,
    EntersBeforeItsPredecessors,
    ForgetsBeforeStable,
    LosesWhatItFetched,
    NeverAcknowledges,
)
from mutants.parts import with_parts


class WaitsForAMajority(AllAck):
    def deliver_what_can(self) -> None:
        while 2 * len(self.waiting) > len(self.graph.machines):
            oldest = [self.waiting[p][0] for p in self.graph.machines if p in self.waiting]
            self.deliver_these([m for m in oldest if self.is_first(m, oldest)])

    def deliver_these(self, first: list[Node]) -> None:
        for m in first:
            self.waiting[m.name.sender].remove(m)
            if not self.waiting[m.name.sender]:
                del self.waiting[m.name.sender]
            if m.service == "agreed":
                self.deliver_next(m)
        self.deliver_held_back(first)


class WaitsForAllButOne(WaitsForAMajority):
    def deliver_what_can(self) -> None:
        while len(self.waiting) >= max(len(self.graph.machines) - 1, 1):
            oldest = [self.waiting[p][0] for p in self.graph.machines if p in self.waiting]
            self.deliver_these([m for m in oldest if self.is_first(m, oldest)])


class DeliversTheOldestOfEachMachine(AllAck):
    """Whether they follow one another or not."""

    def is_first(self, m: Node, oldest: list[Node]) -> bool:
        return True


class DeliversASetAsItCame(AllAck):
    def deliver_set(self) -> None:
        oldest = [queue[0] for queue in self.waiting.values()]
        WaitsForAMajority.deliver_these(self, [m for m in oldest if self.is_first(m, oldest)])  # type: ignore[arg-type]


class DeliversItsOwnFirst(AllAck):
    def deliver_set(self) -> None:
        oldest = [self.waiting[p][0] for p in sorted(self.graph.machines, key=lambda p: p != self.me)]
        WaitsForAMajority.deliver_these(self, [m for m in oldest if self.is_first(m, oldest)])  # type: ignore[arg-type]


class AcknowledgementsDoNotCount(AllAck):
    def when_entered(self, m: Node) -> None:
        if m.service != "ack":
            super().when_entered(m)


class CountsWhoeverHasSentBefore(AllAck):
    """Once a machine was heard it is not waited for again."""

    heard: dict[ProcessId, None]

    def initialise(self) -> None:
        super().initialise()
        self.heard = {}

    def when_entered(self, m: Node) -> None:
        self.heard[m.name.sender] = None
        super().when_entered(m)

    def deliver_what_can(self) -> None:
        while self.waiting and len(self.heard) == len(self.graph.machines):
            oldest = [self.waiting[p][0] for p in self.graph.machines if p in self.waiting]
            first = [m for m in oldest if self.is_first(m, oldest)]
            WaitsForAMajority.deliver_these(self, first)  # type: ignore[arg-type]


class ForgetsWhatWaitsOnRestart(AllAck):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.waiting = {}


class DeliversASetOnlyWhereItSent(AllAck):
    """A message of the set is left out where the machine itself has only an acknowledgement."""

    def deliver_next(self, node: Node) -> None:
        if self.delivered % 10 != 9 or node.name.sender != self.me:
            super().deliver_next(node)
        else:
            self.delivered += 1


MUTANTS = (
    WaitsForAMajority,
    WaitsForAllButOne,
    DeliversTheOldestOfEachMachine,
    DeliversASetAsItCame,
    DeliversItsOwnFirst,
    AcknowledgementsDoNotCount,
    CountsWhoeverHasSentBefore,
    ForgetsWhatWaitsOnRestart,
    DeliversASetOnlyWhereItSent,
    *chosen_wrongly(AllAck),
    *(
        with_parts(AllAck, kind)
        for kind in (
            AcknowledgesNothing,
            EntersBeforeItsPredecessors,
            ForgetsBeforeStable,
            LosesWhatItFetched,
            NeverAcknowledges,
        )
    ),
)
