"""Figures 1 to 9 of swap.txt, played again by processes, one step of one process at a time.

The drawings are lost. What they show was worked out from their captions: the tree of Figures 1 to 5 has the edges v-x,
w-x and x-u, with the sink u; in Figures 6 to 9 m1 and m2 meet at a, and at b they meet m3, which was there first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from antiphon.core import Buffers, MessageId, OrderingProtocol, Process, ProcessId, Topology, Transport
from antiphon.core.effects import AnyEffect, Log, Send
from antiphon.core.events import Delivered
from antiphon.core.inputs import AnyInput, Multicast, Receive, TurnEnd
from antiphon.protocols.arrow import ArrowMulticast
from antiphon.protocols.combining import CombiningMulticast
from antiphon.services.spread import Pair
from antiphon.services.swap import BOTTOM, Swap
from antiphon.services.tree import Place

ARROW_TREE = {"u": None, "x": "u", "v": "x", "w": "x"}
COMBINING_TREE = {"r": None, "b": "r", "a": "b", "3": "b", "1": "a", "2": "a"}  # 1 sends m1, and so on


class Travelling(NamedTuple):
    """A swap on an edge of the tree."""

    name: str  # of the messages in it: m1, m3m1m2
    sender: str
    receiver: str


class Figure(NamedTuple):
    number: int
    caption: str
    links: dict[str, str]  # by node: where its arrow points; in a combining tree, to its parent
    values: dict[str, str]  # by sink, or of the root
    travelling: list[Travelling]
    multicasts: list[tuple[str, str, str]]  # predecessor, message, and the node that multicasts them, in this figure


class Stage:
    """The nodes of a tree. Swaps wait on their edges until they are let on; what is multicast arrives at the end."""

    def __init__(self, protocol: type[OrderingProtocol], parents: dict[str, str | None]) -> None:
        children = {node: [c for c, parent in parents.items() if parent == node] for node in parents}
        topology = Topology({"g": parents})
        tree = {
            node: Place(None if parent is None else ProcessId(parent), tuple(map(ProcessId, children[node])))
            for node, parent in parents.items()
        }

        class Played(protocol):  # type: ignore[misc,valid-type]
            def place(self) -> Place:
                return tree[self.me]

        self.nodes = {node: Process(ProcessId(node), topology, Played) for node in parents}
        self.names: dict[MessageId, str] = {BOTTOM: "⊥"}
        self.chains: dict[MessageId, str] = {}  # by the first of a chain: the names of all in it
        self.edges: list[tuple[Travelling, Buffers]] = []
        self.copies: list[tuple[str, str, Buffers]] = []
        self.multicasts: list[tuple[str, str, str]] = []
        self.delivered: dict[str, list[str]] = {node: [] for node in parents}
        self.figures: list[Figure] = []

    def multicast(self, node: str, name: str) -> None:
        process = self.nodes[node]
        id = MessageId(process.me, process.state.multicasts + 1)
        self.names[id] = self.chains[id] = name
        self.step(node, Multicast(0, process.topology.destinations({"g"}), (b"",)))
        self.end_turn(node)

    def arrive(self, sender: str, receiver: str, *, turn_ends: bool = True) -> None:
        """The swap on an edge comes to its end."""
        (at,) = [i for i, (each, _) in enumerate(self.edges) if (each.sender, each.receiver) == (sender, receiver)]
        _, frame = self.edges.pop(at)
        self.step(receiver, Receive(0, ProcessId(sender), Transport.DATAGRAM, 0, frame))
        if turn_ends:
            self.end_turn(receiver)

    def end_turn(self, node: str) -> None:
        if self.nodes[node].turn_is_open:
            self.step(node, TurnEnd(0))

    def arrive_everywhere(self) -> None:
        while self.copies:
            sender, receiver, frame = self.copies.pop(0)
            self.step(receiver, Receive(0, ProcessId(sender), Transport.DATAGRAM, 0, frame))

    def step(self, node: str, happened: AnyInput) -> None:
        for effect in self.nodes[node].step(happened):
            self.carry_out(node, effect)

    def carry_out(self, node: str, effect: AnyEffect) -> None:
        if isinstance(effect, Log) and isinstance(effect.event, Delivered):
            self.delivered[node].append(self.names[effect.event.id])
        elif isinstance(effect, Send):
            message: Any = self.nodes[node].decode_frame(effect.frame)[1]
            if isinstance(message, Pair):
                place = message.place
                assert isinstance(place, MessageId)
                self.multicasts.append((self.names[place], self.names[message.message.id], node))
                self.copies += [(node, str(to), effect.frame) for to in effect.to]
            elif isinstance(message, Swap):
                self.edges.append((Travelling(self.chain(message), node, str(effect.to[0])), effect.frame))

    def chain(self, swap: Swap) -> str:
        """What travels, as the paper writes it: m3m1m2 is a chain from m3 to m2."""
        name = self.chains[swap.a]
        successors = {previous: message for previous, message, _ in self.multicasts}
        while name.endswith(tuple(successors)):
            previous = next(each for each in successors if name.endswith(each))
            name += successors.pop(previous)
        return name

    def figure(self, number: int, caption: str) -> None:
        """Keep what is to be seen now."""
        parts = {node: process.protocol.swap_object for node, process in self.nodes.items()}  # type: ignore[attr-defined]
        links: dict[str, str] = {}
        for node, part in parts.items():
            links[node] = str(part.link if hasattr(part, "link") else part.place().parent or node)
        values = {node: self.names[parts[node].value] for node, link in links.items() if link == node}
        before = sum(len(figure.multicasts) for figure in self.figures)
        travelling = [each for each, _ in self.edges]
        self.figures.append(Figure(number, caption, links, values, travelling, self.multicasts[before:]))


def arrow_figures() -> Stage:
    stage = Stage(ArrowMulticast, ARROW_TREE)
    stage.figure(1, "the initial state")
    stage.multicast("v", "m1")
    stage.figure(2, "v sends m1")
    stage.multicast("w", "m2")
    stage.figure(3, "w sends m2")
    stage.arrive("v", "x")
    stage.arrive("w", "x")
    stage.figure(4, "m2 is deflected towards v")
    stage.arrive("x", "u")
    stage.arrive("x", "v")
    stage.figure(5, "both find their predecessors")
    stage.arrive_everywhere()
    return stage


def combining_figures() -> Stage:
    stage = Stage(CombiningMulticast, COMBINING_TREE)
    for node in "123":
        stage.multicast(node, f"m{node}")
    stage.figure(6, "m1, m2 and m3 start")
    stage.arrive("1", "a", turn_ends=False)
    stage.arrive("2", "a")
    stage.figure(7, "m1 and m2 meet at a")
    stage.arrive("3", "b", turn_ends=False)
    stage.arrive("a", "b")
    stage.figure(8, "m3 and m1m2 meet at b")
    stage.arrive("b", "r")
    stage.figure(9, "m3m1m2 is at the root")
    stage.arrive_everywhere()
    return stage
