"""Ordered multicast by distributed counting, the baseline of swap.txt (sections 3 to 5).

A1-A8 (arrow) and C1-C13 (combining) are the lines of docs/protocols/counting.md, L1-L3 those that they share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from antiphon.core import (
    Assumptions,
    Component,
    Declaration,
    Failures,
    Message,
    MessageId,
    ProcessId,
    Table,
    Timer,
    Transport,
    Wire,
)
from antiphon.core.errors import BadFrame
from antiphon.services.combining import WindowMs
from antiphon.services.reduction import PROMISES, TreeOptions, TreeProtocol
from antiphon.services.spread import NUMBER_MAX
from antiphon.services.swap import BOTTOM
from antiphon.services.tree import Place

WANTED_MAX = 1 << 32  # no honest tree wants so many numbers at a time, and those given so add up to none too large


class CounterOptions(msgspec.Struct, frozen=True):
    place: Place = Place()
    window: WindowMs = 0


class Counter(Component):
    """Gives each message the next number: ``counted(m, number)``, once, at some node."""

    Options = CounterOptions
    options: CounterOptions
    transport = Transport.FIFO
    counted: Callable[[Message, int], None]

    def count(self, m: Message) -> None:
        raise NotImplementedError

    def pending(self) -> int:
        """How many messages wait here for a number."""
        raise NotImplementedError


# A number that travels ----------------------------------------------------------------------------------------------


class Find(Wire, frozen=True, tag=1):
    """m, on its way along the arrows. ``source``: where it began it, and where the number is to go next."""

    source: ProcessId
    message: Message


class Number(Wire, frozen=True, tag=2):
    """To the sink that m left behind: m has this number, and you have it now."""

    id: MessageId
    number: int


class ArrowCounter(Counter):
    """The arrow protocol, not truncated: a message that has found its sink waits there for the number.

    A node is a sink time and again. What it is waiting for, and what waits there, is kept by the message with which it
    became one.
    """

    link: ProcessId
    value: MessageId  # the message with which this node became a sink
    numbers: Table[MessageId, int]  # numbers that wait for a message
    finds: Table[MessageId, Find]  # messages that wait for a number

    def initialise(self) -> None:
        self.link = self.options.place.parent or self.me
        self.value = BOTTOM
        self.numbers = {BOTTOM: 0} if self.link == self.me else {}  # A1
        self.finds = {}

    def count(self, m: Message) -> None:  # A2
        link, self.link = self.link, self.me
        value, self.value = self.value, m.id
        self.follow(link, Find(self.me, m), value)

    def on_find(self, sender: ProcessId, find: Find) -> None:  # A3
        if sender in self.options.place.neighbours:
            link, self.link = self.link, sender
            self.follow(link, find, self.value)

    def follow(self, link: ProcessId, find: Find, value: MessageId) -> None:
        if link != self.me:
            self.send(link, find)
        else:
            self.finds[value] = find  # A4
            self.go_on(value)

    def on_number(self, sender: ProcessId, number: Number) -> None:  # A5
        self.numbers[number.id] = number.number
        self.go_on(number.id)

    def go_on(self, value: MessageId) -> None:
        if value in self.finds and value in self.numbers:
            find, number = self.finds.pop(value), self.numbers.pop(value) + 1  # A6
            self.counted(find.message, number)  # A7
            self.send(find.source, Number(find.message.id, number))  # A8

    def validate(self, message: Wire) -> None:
        group = self.topology.group_of.get(self.me)
        if group is None:
            raise BadFrame(f"{self.me} is in no group, and counts nothing.")
        if isinstance(message, Find):
            if message.message.destinations != (group,) or self.topology.group_of.get(message.source) != group:
                raise BadFrame(f"What is counted is for {group}, and comes from one of its members.")
        elif isinstance(message, Number) and not 0 < message.number < NUMBER_MAX:
            raise BadFrame("Messages are numbered from 1.")

    def pending(self) -> int:
        return len(self.finds)


# Up to the root and down again --------------------------------------------------------------------------------------


class Ask(Wire, frozen=True, tag=1):
    """Child to parent: so many numbers are wanted."""

    count: int


class Give(Wire, frozen=True, tag=2):
    """Parent to child: your numbers are those after ``after``."""

    after: int


class Meeting(Timer, frozen=True):
    """The time is over in which requests can meet."""


class CombiningCounter(Counter):
    """A combining tree, not truncated: a number is known only after the way to the root and back."""

    issued: int  # meaningful only at the root
    own: list[Message]  # this node's messages without a number, in their order
    met: list[tuple[ProcessId, int]]  # requests that came and have not gone on: who wants how many numbers
    locked_for: list[tuple[ProcessId, int]]  # those that went up as one. While there are any, the node is locked

    def initialise(self) -> None:
        self.issued = 0
        self.own, self.met, self.locked_for = [], [], []

    def count(self, m: Message) -> None:  # C1
        self.own.append(m)
        self.meet(self.me, 1)

    def on_ask(self, sender: ProcessId, ask: Ask) -> None:  # C2
        wanted = sum(count for _, count in self.met) + ask.count
        if sender in self.options.place.children and wanted < WANTED_MAX:
            self.meet(sender, ask.count)

    def meet(self, who: ProcessId, count: int) -> None:
        self.met.append((who, count))  # C3
        if self.options.window == 0 or self.options.place.parent is None:
            self.at_turn_end()
        elif len(self.met) == 1:
            self.set_timer(Meeting(), self.options.window * 1_000_000)

    def on_turn_end(self) -> None:  # C4
        self.go_up()

    def on_meeting(self, timer: Meeting) -> None:
        self.go_up()

    def go_up(self) -> None:
        if self.locked_for or not self.met:  # C5
            return
        self.locked_for, self.met = self.met, []  # C6
        count = sum(count for _, count in self.locked_for)
        if self.options.place.parent is None:
            after, self.issued = self.issued, self.issued + count  # C7
            self.come_down(after)
        else:
            self.send(self.options.place.parent, Ask(count))  # C8

    def on_give(self, sender: ProcessId, give: Give) -> None:  # C9
        if sender == self.options.place.parent and self.locked_for:
            self.come_down(give.after)

    def come_down(self, after: int) -> None:
        waiting, self.locked_for = self.locked_for, []  # C10
        for who, count in waiting:
            if who == self.me:
                self.counted(self.own.pop(0), after + 1)  # C11
            else:
                self.send(who, Give(after))  # C12
            after += count
        self.go_up()  # C13

    def validate(self, message: Wire) -> None:
        if self.me not in self.topology.group_of:
            raise BadFrame(f"{self.me} is in no group, and counts nothing.")
        if isinstance(message, Ask) and not 0 < message.count < WANTED_MAX:
            raise BadFrame("Who asks wants at least one number, and not billions.")
        if isinstance(message, Give) and not 0 <= message.after < NUMBER_MAX:
            raise BadFrame("Messages are numbered from 1.")

    def pending(self) -> int:
        return len(self.own)


# The multicast ------------------------------------------------------------------------------------------------------


class CountingOptions(TreeOptions, frozen=True):
    by: Literal["arrow", "combining"] = "arrow"
    # Combining: for how many milliseconds a node waits for others to meet; 0: until its turn is over.
    window: WindowMs = 0


class Counting(TreeProtocol):
    declaration = Declaration(
        name="counting",
        title="Ordered multicast by distributed counting",
        source="Herlihy, Tirthapura, Wattenhofer, sections 3 to 5",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY, one_group=True),
        promises=PROMISES,
    )
    Options = CountingOptions
    options: CountingOptions

    counter: Counter

    holdback: Table[int, Message]  # by number

    def initialise(self) -> None:
        super().initialise()
        kind: type[Counter] = ArrowCounter if self.options.by == "arrow" else CombiningCounter
        options = CounterOptions(self.place(), self.options.window)
        self.counter = self.part(kind, "counter", options, counted=self.when_counted)
        self.holdback = {}

    def order(self, m: Message) -> None:
        self.counter.count(m)  # L1

    def when_counted(self, m: Message, number: int) -> None:
        self.spread.multicast(number, m)  # L2

    def when_received(self, place: MessageId | int, m: Message) -> None:
        if isinstance(place, int):
            self.holdback[place] = m
        while (following := self.holdback.pop(self.delivered + 1, None)) is not None:  # L3
            self.deliver_next(following)

    def pending(self) -> int:
        return len(self.holdback) + self.counter.pending()
