"""Causal multicast on the graph of Transis with one mistake each."""

from __future__ import annotations

from antiphon.core import Message, ProcessId
from antiphon.protocols.transis import Transis
from antiphon.services.dag import Node
from mutants.dag import GRAPH_MUTANTS
from mutants.parts import with_parts


class DeliversAsItComes(Transis):
    """Some of what is held back is delivered at once."""

    def when_entered(self, m: Node) -> None:
        super().when_entered(m)
        for row in self.graph.held.values():
            for cast in row.values():
                message = getattr(cast, "message", None)
                if message is not None and self.group in message.destinations and message.id.number % 5 == 0:
                    self.deliver(message)


class DeliversItsOwnLater(Transis):
    """With the next message of another machine."""

    own: list[Node]

    def initialise(self) -> None:
        super().initialise()
        self.own = []

    def when_entered(self, m: Node) -> None:
        if m.name.sender == self.me:
            self.own.append(m)
            return
        super().when_entered(m)
        for mine in self.own:
            super().when_entered(mine)
        self.own = []


class HandsToOneAndThenToAnother(Transis):
    turn: int

    def initialise(self) -> None:
        super().initialise()
        self.turn = 0

    def contact(self) -> ProcessId:
        self.turn += 1
        return self.topology.processes[self.turn % len(self.topology.processes)]


class HandsToOneOfItsAddressees(Transis):
    """Whichever that is: another one for another set of groups."""

    def multicast(self, m: Message) -> None:
        self.wanted = m.destinations
        super().multicast(m)

    def contact(self) -> ProcessId:
        return self.topology.addressees(self.wanted)[0]


MUTANTS = (
    DeliversAsItComes,
    DeliversItsOwnLater,
    HandsToOneAndThenToAnother,
    HandsToOneOfItsAddressees,
    *(with_parts(Transis, kind) for kind in GRAPH_MUTANTS),
)
