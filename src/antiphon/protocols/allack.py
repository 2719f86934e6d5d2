"""All-ack (toto.txt, section 1): wait for a message from each machine, then deliver what follows no other.

L1-L9 are the lines of docs/protocols/allack.md; the graph is in services/causal_graph.py.
"""

from __future__ import annotations

from antiphon.core import Assumptions, Declaration, Failures, ProcessId
from antiphon.services.causal_graph import GraphOptions
from antiphon.services.configuration import AGREED_PROMISES, GraphProtocol
from antiphon.services.dag import Name, Node


class AllAck(GraphProtocol):
    declaration = Declaration(
        name="allack",
        title="All-ack: a message from each machine orders the oldest",
        source="Dolev, Kramer, Malki: Early Delivery Totally Ordered Multicast, section 1",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY),
        promises=AGREED_PROMISES,
    )
    Options = GraphOptions
    options: GraphOptions
    services = ("agreed", "causal")
    advances = True

    waiting: dict[ProcessId, list[Node]]  # by machine: what is in the graph and in no set that was delivered
    defunc: list[ProcessId]  # from whom no more will come

    def initialise(self) -> None:
        super().initialise()
        self.waiting, self.defunc = {}, []

    def begin_view(self, machines: tuple[ProcessId, ...]) -> None:
        self.waiting, self.defunc = {}, []

    def when_entered(self, m: Node) -> None:  # L1
        if m.service == "causal":
            self.deliver_causal(m)  # L8
        self.waiting.setdefault(m.name.sender, []).append(m)
        self.deliver_what_can()

    def crash(self, machine: ProcessId) -> None:  # L7
        self.defunc.append(machine)
        self.deliver_what_can()

    def deliver_what_can(self) -> None:
        while self.waiting and all(p in self.waiting or p in self.defunc for p in self.graph.machines):  # L2
            self.deliver_set()

    def deliver_set(self) -> None:
        """Nothing that is still to come can be among them: it follows what is here of its machine."""
        oldest = [self.waiting[p][0] for p in self.graph.machines if p in self.waiting]  # L5: in this order
        first = [m for m in oldest if self.is_first(m, oldest)]  # L3
        for m in first:
            queue = self.waiting[m.name.sender]
            del queue[0]  # L4
            if not queue:
                del self.waiting[m.name.sender]
            if m.service == "agreed":
                self.deliver_next(m)  # L6
        self.deliver_held_back(first)  # L9

    def undelivered_before(self, m: Node) -> Name | None:
        newest = (self.newest_agreed(queue, m) for queue in self.waiting.values())
        return next((name for name in newest if name), None)

    def is_first(self, m: Node, oldest: list[Node]) -> bool:
        """Whether it follows no other. What it follows, if anything, follows the oldest of its machine."""
        places = self.graph.dag.places
        return not any(m.clock[places[o.name.sender]] >= o.name.number for o in oldest if o is not m)

    def undelivered(self) -> int:
        return sum(m.service == "agreed" for queue in self.waiting.values() for m in queue)

    def waits_for(self) -> tuple[ProcessId, ...]:
        unheard = tuple(p for p in self.graph.machines if self.pending() and p not in self.waiting)
        return self.missed_groups() or unheard
