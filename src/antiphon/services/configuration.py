"""What transis, allack and toto have in common: one causal graph among all machines, and a sender outside of it.

The machines of the configuration are the members of all groups. A message is in everybody's graph, and is delivered
where it is addressed.
"""

from __future__ import annotations

from typing import Any, ClassVar
from zlib import crc32

import msgspec

from antiphon.core import Message, OrderingProtocol, ProcessId, Promise, Transport, Wire
from antiphon.core.errors import BadFrame
from antiphon.services.dag import CausalGraph, GraphOptions, Node, Service

CAUSAL_PROMISES = (
    Promise.VALIDITY,
    Promise.INTEGRITY,
    Promise.UNIFORM_AGREEMENT,
    Promise.FIFO,
    Promise.CAUSAL,
)
AGREED_PROMISES = (*CAUSAL_PROMISES, Promise.TOTAL_ORDER, Promise.ACYCLIC_ORDER)


class Hand(Wire, frozen=True, tag=1):
    """A sender outside to one machine: multicast this for me."""

    message: Message


class GraphProtocol(OrderingProtocol):
    """A message enters the graph of every machine; what is delivered then is up to the service."""

    Options: ClassVar[type[msgspec.Struct]] = GraphOptions
    options: Any
    SERVICE: ClassVar[Service] = "agreed"

    transport = Transport.FIFO  # of what is handed over, so that it keeps its order; the graph is on datagrams

    graph: CausalGraph

    delivered: int

    def initialise(self) -> None:
        self.graph = self.part(CausalGraph, "graph", GraphOptions(self.options.idle), entered=self.when_entered)
        self.delivered = 0

    def validate(self, message: Wire) -> None:
        if not self.members:
            raise BadFrame(f"{self.me} is in no group, and multicasts nothing for others.")

    def multicast(self, m: Message) -> None:
        if self.members:
            self.graph.multicast(self.SERVICE, m)
        else:
            self.send(self.contact(), Hand(m))

    def contact(self) -> ProcessId:
        """The machine to which a sender outside hands all its messages."""
        machines = self.topology.processes
        return machines[crc32(self.me.encode()) % len(machines)]

    def on_hand(self, sender: ProcessId, hand: Hand) -> None:
        self.graph.multicast(self.SERVICE, hand.message)

    def when_entered(self, m: Node) -> None:
        raise NotImplementedError

    def deliver_next(self, node: Node) -> None:
        """All machines have the same order, so each can number it by itself."""
        assert node.message is not None, "an acknowledgement is not delivered"
        self.delivered += 1
        if self.group in node.message.destinations:
            self.deliver(node.message, (self.delivered,))

    def waits_for(self) -> tuple[ProcessId, ...]:
        return self.graph.missed_senders()

    def counters(self) -> dict[str, int]:
        return {"unstable": self.graph.dag.unstable(), "missing": len(self.graph.requested)}
