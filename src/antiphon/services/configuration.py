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
    GroupId,
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
from antiphon.core.floors import least_number
from antiphon.core.sessions import Mark
from antiphon.services.causal_graph import CausalGraph, GraphOptions
from antiphon.services.dag import Name, Node
from antiphon.services.marks import Marks
from antiphon.services.membership import MachineView, Membership

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
        else:
            self.waiting_multicasts.append(m)
            self.multicast_what_waits()

    def multicast_what_waits(self) -> None:
        """In its order: a message that waits for one of its groups keeps back those behind it, which follow it."""
        while self.waiting_multicasts and not self.is_shut(self.waiting_multicasts[0].destinations):
            m = self.waiting_multicasts.pop(0)
            self.graph.multicast(self.service_of(m) or self.SERVICE, m)

    def must_wait(self, destinations: tuple[GroupId, ...]) -> bool:
        return bool(self.waiting_multicasts) or self.is_shut(destinations)

    def is_shut(self, destinations: tuple[GroupId, ...]) -> bool:
        """Whether this machine multicasts nothing to these groups now: its view is about to end, or has not begun for
        clients yet, or nobody of one of them is in it."""
        if not self.options.membership:
            return False
        return self.graph.still or bool(self.marks.unheard) or bool(self.absent(destinations))

    def absent(self, destinations: tuple[GroupId, ...]) -> list[GroupId]:
        """Those of these groups of which nobody is in the present view."""
        if len(destinations) == 1 and destinations[0] == self.group:
            return []
        machines = self.membership.view.machines
        return [group for group in destinations if not any(p in machines for p in self.topology.members(group))]

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
        for m in self.graph.dag.unstable_messages():
            if m.message is not None and self.may_be_missed(m, staying):
                self.process.in_views.hold_again(m.message)

    def may_be_missed(self, m: Node, staying: tuple[ProcessId, ...]) -> bool:
        """Whether some group to which it goes may never get it: nobody of it goes on from the view, and not all of it
        who were there have shown that they have the message."""
        assert m.message is not None
        dag = self.graph.dag
        place = dag.places[m.name.sender]
        for group in m.message.destinations:
            there = [p for p in self.topology.members(group) if p in dag.places]
            have_it = all(dag.newest[dag.places[p]][place] >= m.name.number for p in there)
            if not have_it and not any(p in staying for p in there):
                return self.group in m.message.destinations
        return False

    def crash(self, machine: ProcessId) -> None:
        """Crash(q): no more will come from this machine, and all that it sent has entered."""

    def when_begun(self, view: MachineView) -> None:
        self.delivered = 0
        self.begin_view(view.machines)
        self.announce(view)
        self.marks.begin_view(view)

    def when_open(self) -> None:
        """From here on messages go out in the view."""
        self.multicast_what_waits()
        self.process.in_views.begin()

    def tell_all(self, mark: Mark) -> None:
        self.marks.ask(mark)

    def begin_view(self, machines: tuple[ProcessId, ...]) -> None:
        """Begin anew, with an empty graph among these."""

    def announce(self, view: MachineView) -> None:
        self.announce_view(self.name_of(view), view.machines)

    def name_of(self, view: MachineView) -> ViewId:
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
        waiting = len(self.waiting_multicasts) + sum(self.process.in_views.held_sets().values())
        return self.undelivered() + held_back + self.graph.pending() + waiting

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
        self.delivered = max(self.delivered + 1, least_number(node.message))
        if self.group in node.message.destinations:
            place = (self.graph.view, self.delivered) if self.options.membership else (self.delivered,)
            self.deliver(node.message, place)

    def waits_for(self) -> tuple[ProcessId, ...]:
        return self.missed_groups() or self.graph.missed_senders()

    def missed_groups(self) -> tuple[ProcessId, ...]:
        """The members of groups of which nobody is in the view, though something waits to go there."""
        waiting = dict.fromkeys(
            [*(m.destinations for m in self.waiting_multicasts), *self.process.in_views.held_sets()]
        )
        groups = dict.fromkeys(group for destinations in waiting for group in self.absent(destinations))
        return tuple(p for group in groups for p in self.topology.members(group))

    def counters(self) -> dict[str, int]:
        return {"unstable": self.graph.dag.unstable, "missing": len(self.graph.requested)}
