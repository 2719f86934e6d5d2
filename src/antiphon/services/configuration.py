"""What transis, allack and toto have in common: one causal graph among all machines, and a sender outside of it.

The machines of the configuration are the members of all groups, or those of them that are connected. A message is in
the graph of each, and is delivered where it is addressed.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, ClassVar, Literal
from zlib import crc32

import msgspec

from antiphon.core import (
    Assumptions,
    Detector,
    Failures,
    Message,
    OrderingProtocol,
    ProcessId,
    Promise,
    Table,
    Transport,
    ViewId,
    Wire,
)
from antiphon.core.errors import BadFrame
from antiphon.core.sessions import Mark
from antiphon.services.causal_graph import CausalGraph, GraphOptions
from antiphon.services.dag import Name, Node
from antiphon.services.marks import Marks
from antiphon.services.membership import Membership, View

CAUSAL_PROMISES = (
    Promise.VALIDITY,
    Promise.INTEGRITY,
    Promise.UNIFORM_AGREEMENT,
    Promise.FIFO,
    Promise.CAUSAL,
)
VIEW_PROMISES = (  # with a membership service
    Promise.INTEGRITY,
    Promise.VIRTUAL_SYNCHRONY,
    Promise.GRAPH_DELIVERY,
    Promise.CAUSAL_EXTENSION,
)
AGREED_PROMISES = (*CAUSAL_PROMISES, Promise.TOTAL_ORDER, Promise.ACYCLIC_ORDER)


class Hand(Wire, frozen=True, tag=1):
    """A sender outside to one machine: multicast this for me."""

    message: Message


class GraphProtocol(OrderingProtocol):
    """A message enters the graph of every machine; what is delivered then is up to the service."""

    Options: ClassVar[type[msgspec.Struct]] = GraphOptions
    options: Any
    SERVICE: ClassVar[Literal["agreed", "causal"]] = "agreed"  # of messages whose sender does not choose

    transport = Transport.FIFO  # of what is handed over, so that it keeps its order; the graph is on datagrams

    added_options = ("membership",)

    graph: CausalGraph
    membership: Membership  # where the options say so
    marks: Marks  # with it

    delivered: int  # in the present view
    waiting_multicasts: list[Message]  # they go out in the next view
    held_back: Table[Name, list[Node]]  # by an agreed message that is not delivered: causal ones that wait for it

    def initialise(self) -> None:
        options = GraphOptions(self.options.idle, self.options.membership)
        self.graph = self.part(CausalGraph, "graph", options, entered=self.has_entered, came=self.when_came)
        if self.options.membership:
            self.membership = self.part(
                Membership, "membership", graph=lambda: self.graph, flush=self.flush, begun=self.when_begun
            )
            self.marks = self.part(Marks, "marks", graph=lambda: self.graph, opened=self.when_open)
        self.delivered = 0
        self.waiting_multicasts = []
        self.held_back = {}

    @classmethod
    def assumes(cls, options: Any) -> Assumptions:
        if options.membership:
            return Assumptions(failures=Failures.ALL_BUT_ONE, detector=Detector.TIMEOUT)
        return super().assumes(options)

    @classmethod
    def own_promises(cls, options: Any) -> tuple[Promise, ...]:
        if options.membership:
            return VIEW_PROMISES if cls.SERVICE == "causal" else (*VIEW_PROMISES, Promise.VIEW_ORDER)
        return super().own_promises(options)

    def begin(self) -> None:
        if self.options.membership and self.members:
            self.announce(self.membership.view)

    def validate(self, message: Wire) -> None:
        if not self.members:
            raise BadFrame(f"{self.me} is in no group, and multicasts nothing for others.")

    def multicast(self, m: Message) -> None:
        if not self.members:
            self.send(self.contact(), Hand(m))
        elif self.must_wait:
            self.waiting_multicasts.append(m)
        else:
            self.graph.multicast(self.service_of(m) or self.SERVICE, m)

    @property
    def must_wait(self) -> bool:
        """Whether this machine multicasts nothing now: its view is about to end, or has not begun for clients yet."""
        return self.graph.still or (self.options.membership and bool(self.marks.unheard))

    def contact(self) -> ProcessId:
        """The machine to which a sender outside hands all its messages."""
        machines = self.topology.processes
        return machines[crc32(self.me.encode()) % len(machines)]

    def on_hand(self, sender: ProcessId, hand: Hand) -> None:
        self.multicast(hand.message)

    # Views ----------------------------------------------------------------------------------------------------------

    def when_came(self) -> None:
        self.membership.look_whether_ready()

    def flush(self, gone: tuple[ProcessId, ...], staying: tuple[ProcessId, ...]) -> None:
        """All that belongs to the view has entered the graph. First those are out of it who are gone, then all."""
        for machine in (*gone, *staying):
            self.crash(machine)
        assert not self.undelivered(), "when a view ends, all that entered its graph is delivered"
        assert not self.held_back, "and what waited for that"

    def crash(self, machine: ProcessId) -> None:
        """Crash(q): no more will come from this machine, and all that it sent has entered."""

    def when_begun(self, view: View) -> None:
        self.delivered = 0
        self.begin_view(view.machines)
        self.announce(view)
        self.marks.begin_view(view)

    def when_open(self) -> None:
        """From here on messages go out in the view."""
        waiting, self.waiting_multicasts = self.waiting_multicasts, []
        for m in waiting:
            self.graph.multicast(self.service_of(m) or self.SERVICE, m)
        self.process.begin_for_clients()

    def tell_all(self, mark: Mark) -> None:
        self.marks.ask(mark)

    def begin_view(self, machines: tuple[ProcessId, ...]) -> None:
        """Begin anew, with an empty graph among these."""

    def announce(self, view: View) -> None:
        self.announce_view(self.name_of(view), view.machines)

    def name_of(self, view: View) -> ViewId:
        return ViewId(view.number, self.membership.leader_of(view.number))

    def present_view(self) -> tuple[ViewId, tuple[ProcessId, ...]] | None:
        if not self.options.membership:
            return None
        view = self.membership.view
        return self.name_of(view), view.machines

    # Messages -------------------------------------------------------------------------------------------------------

    def has_entered(self, m: Node) -> None:
        self.when_entered(m)
        if self.options.membership:
            self.marks.look_at(m)

    def when_entered(self, m: Node) -> None:
        raise NotImplementedError

    def undelivered(self) -> int:
        """How many messages have entered the graph, and wait for their place in the order."""
        return 0

    def pending(self) -> int:
        held_back = sum(len(held) for held in self.held_back.values())
        return self.undelivered() + held_back + self.graph.pending() + len(self.waiting_multicasts)

    def deliver_causal(self, m: Node) -> None:
        """A causal message has entered, where agreed ones share the graph: it waits for those that it follows.

        What it follows of the causal ones waits for some of these too, or is delivered: so nothing else is to be asked.
        """
        agreed = self.undelivered_before(m)
        if agreed is None:
            self.deliver_unordered(m)
        else:
            self.held_back.setdefault(agreed, []).append(m)

    def deliver_held_back(self, delivered: list[Node]) -> None:
        """These were delivered. Called before the next ones are, which may follow what is let go here."""
        let_go = [m for agreed in delivered for m in self.held_back.pop(agreed.name, ())]
        for m in sorted(let_go, key=lambda m: m.entered):  # which is a causal order
            self.deliver_causal(m)

    def undelivered_before(self, m: Node) -> Name | None:
        """Of some machine the newest agreed message that this one follows, if that has entered but is not delivered.

        The newest, so that a causal message is looked at again once for each machine at most, however many wait.
        """
        raise NotImplementedError

    def newest_agreed(self, queue: list[Node], m: Node) -> Name | None:
        """Of messages of one machine, in their order: the newest agreed one that m follows."""
        place = self.graph.dag.places[queue[0].name.sender]
        followed = queue[: bisect_right(queue, m.clock[place], key=lambda o: o.name.number)]
        return next((o.name for o in reversed(followed) if o.service == "agreed"), None)

    def deliver_unordered(self, m: Node) -> None:
        assert m.message is not None, "an acknowledgement is not delivered"
        if self.group in m.message.destinations:
            self.deliver(m.message)

    def deliver_next(self, node: Node) -> None:
        """All machines have the same order, so each can number it by itself."""
        assert node.message is not None, "an acknowledgement is not delivered"
        self.delivered += 1
        if self.group in node.message.destinations:
            place = (self.graph.view, self.delivered) if self.options.membership else (self.delivered,)
            self.deliver(node.message, place)

    def waits_for(self) -> tuple[ProcessId, ...]:
        return self.graph.missed_senders()

    def counters(self) -> dict[str, int]:
        return {"unstable": self.graph.dag.unstable, "missing": len(self.graph.requested)}
