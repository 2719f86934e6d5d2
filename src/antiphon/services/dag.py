"""DAG_p of Transis (toto.txt, section 2): messages, each with those that it directly follows, as a plain value.

services/causal_graph.py brings the messages of all machines into it, in causal order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import takewhile
from typing import Literal, NamedTuple

import msgspec

from antiphon.core import Message, ProcessId, Wire
from antiphon.core.sessions import Mark

NodeService = Literal["agreed", "causal", "ack"]

FIRST_VIEW = 1  # the number of the configuration in which all machines begin


class Name(NamedTuple):
    """m_{p,i}: the ``number``-th message of ``sender`` in the graph, acknowledgements counted too."""

    sender: ProcessId
    number: int

    def __str__(self) -> str:
        return f"{self.sender}:{self.number}"


class Cast(Wire, frozen=True, tag=1):
    """A machine to all others, and whoever has it to those who miss it."""

    name: Name
    service: NodeService
    follows: tuple[Name, ...]
    message: Message
    view: int = FIRST_VIEW


class Ack(Wire, frozen=True, tag=2):
    """The same, of a machine that has nothing to say but that it is there."""

    name: Name
    follows: tuple[Name, ...]
    view: int = FIRST_VIEW


class Note(Ack, frozen=True, tag=5):
    """The same, with something for the machines themselves: where clients are (services/marks.py)."""

    marks: tuple[Mark, ...] = ()
    more: bool = False  # will come in the next note


class Node(msgspec.Struct, array_like=True):
    """A message in the graph."""

    name: Name
    service: NodeService
    follows: tuple[Name, ...]  # directly
    message: Message | None  # an acknowledgement brings nothing
    clock: list[int]  # for each machine: the newest of its messages that this one follows
    entered: int  # it was the so-manyth that entered here
    note: Note | None = None  # what came as an acknowledgement, if it brings marks

    @property
    def is_regular(self) -> bool:
        """Whether it brings anything."""
        return self.message is not None or self.note is not None


@lru_cache(maxsize=1024)
def places_of(machines: tuple[ProcessId, ...]) -> dict[ProcessId, int]:
    return {machine: place for place, machine in enumerate(machines)}


class Dag(msgspec.Struct, array_like=True, dict=True):
    """DAG_p, without what is stable: that is followed by a message of every machine, and nobody will ask for it."""

    machines: tuple[ProcessId, ...]  # the current configuration; their order breaks ties
    rows: dict[ProcessId, dict[int, Node]]  # by sender and number
    counts: list[int]  # for each machine: how many of its messages have entered, all up to this number
    newest: list[list[int]]  # for each machine: the clock of its newest message here
    leaves: dict[Name, None]  # what no other message here follows
    entered: int
    unstable: int = 0  # how many messages that bring something are not known to be everywhere

    @classmethod
    def among(cls, machines: tuple[ProcessId, ...], starts: Sequence[int] = ()) -> Dag:
        """An empty one. ``starts``: for each machine, how many messages it has sent in graphs before this one."""
        before = [*starts] or [0] * len(machines)
        return cls(machines, {p: {} for p in machines}, before, [[*before] for _ in machines], {}, 0)

    @cached_property
    def places(self) -> dict[ProcessId, int]:
        return places_of(self.machines)

    def enter(self, cast: Cast | Ack) -> Node:
        """Its predecessors are here, or were here and are stable."""
        name, follows = cast.name, cast.follows
        place = self.places[name.sender]
        clock = self.newest[place].copy()
        for earlier in follows:
            self.leaves.pop(earlier, None)
            node = self.rows[earlier.sender].get(earlier.number)
            if node is not None:  # else it is a message of the same sender, whose clock is in already
                clock = [a if a > b else b for a, b in zip(clock, node.clock, strict=True)]  # max is slow
        clock[place] = self.counts[place] = name.number
        self.entered += 1
        self.newest[place] = clock
        self.leaves[name] = None
        if isinstance(cast, Cast):
            node = Node(name, cast.service, follows, cast.message, clock, self.entered)
        else:
            note = cast if isinstance(cast, Note) else None
            node = Node(name, "ack", follows, None, clock, self.entered, note)
        self.unstable += node.is_regular
        self.rows[name.sender][name.number] = node
        return node

    def has(self, name: Name) -> bool:
        """Whether it has entered, be it forgotten or not."""
        return name.number <= self.counts[self.places[name.sender]]

    def is_followed(self, earlier: Name, later: Node) -> bool:
        """A message follows itself."""
        return later.clock[self.places[earlier.sender]] >= earlier.number

    def first_following(self, machine: ProcessId, m: Name, begin: int) -> int:
        """The number of the machine's first message, from this one on, that follows m; its newest does. What its
        messages follow only grows, so that halving finds it. What is forgotten is taken not to follow m."""
        row, place = self.rows[machine], self.places[m.sender]
        begin, last = max(begin, next(iter(row))), self.counts[self.places[machine]]
        return bisect_left(range(last), m.number, begin, key=lambda number: row[number].clock[place])

    def unstable_messages(self) -> list[Node]:
        """What is kept here, in the order in which it entered."""
        return sorted((m for row in self.rows.values() for m in row.values()), key=lambda m: m.entered)

    def forget_stable(self) -> None:
        """Whoever has sent a message that follows m has m."""
        for machine, of_all in zip(self.machines, zip(*self.newest, strict=True), strict=True):
            row, stable = self.rows[machine], min(of_all)
            for number in [*takewhile(stable.__ge__, row)]:  # a row is in the order of its numbers
                self.unstable -= row.pop(number).is_regular
