"""The distributed swap object (swap.txt, section 3): one operation, swap(a), which returns the value before a.

Three protocols implement it: services/arrow.py, services/combining.py and services/hybrid.py.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.core import Component, Message, MessageId, ProcessId, Wire
from antiphon.core.errors import BadFrame
from antiphon.services.tree import Place

BOTTOM = MessageId(ProcessId(""), 0)  # ⊥, the value of an object that nobody has swapped yet


class Swap(Wire, frozen=True, tag=1):
    """swap(u, a, b): a wants its predecessor. It leads a chain of values of which b is the last; alone, it is b itself.

    ``source``: u, who waits for the answer. In ordered multicast the message itself travels in the place of u, and is
    multicast where its predecessor is found: nobody has to know where it came from.
    """

    source: ProcessId | Message
    a: MessageId
    b: MessageId


class Result(Wire, frozen=True, tag=2):
    """To the source: this is what your swap(id) returns."""

    id: MessageId
    previous: MessageId


class DistributedSwap(Component):
    """``swapped(a, previous)`` is called where ``swap(a)`` was; ``found(m, previous)``, if m travels, where it ends."""

    swapped: Callable[[MessageId, MessageId], None]
    found: Callable[[Message, MessageId], None]

    def initialise(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """An object that nobody has swapped yet, on the tree as it is now."""
        raise NotImplementedError

    def swap(self, a: MessageId, carrying: Message | None = None) -> None:
        self.enter(Swap(self.me if carrying is None else carrying, a, a))

    def enter(self, swap: Swap) -> None:
        """A swap begins its way at this node."""
        raise NotImplementedError

    def designate(self, swap: Swap, previous: MessageId) -> None:
        """``previous`` is the result of the swap."""
        if isinstance(swap.source, Message):
            self.found(swap.source, previous)
        else:
            self.send(swap.source, Result(swap.a, previous))

    def on_result(self, sender: ProcessId, result: Result) -> None:
        self.swapped(result.id, result.previous)

    def validate(self, message: Wire) -> None:
        group = self.topology.group_of.get(self.me)
        if group is None:
            raise BadFrame(f"{self.me} is in no group, and swaps nothing.")
        values = [message.a, message.b] if isinstance(message, Swap) else []
        if isinstance(message, Result):
            values += [message.id, message.previous]
        if any(value.number < 1 and value != BOTTOM for value in values):
            raise BadFrame("The messages of a process are numbered from 1.")
        if values and values[0] == BOTTOM:
            raise BadFrame("Nobody asks for what precedes ⊥.")
        source = message.source if isinstance(message, Swap) else None
        if isinstance(source, Message):
            self.process.checks.body(source)
            if source.id != values[0] or source.destinations != (group,) or BOTTOM in values:
                raise BadFrame(f"A message that travels with its swap is for {group}, and is the one swapped.")
        elif source is not None and self.topology.group_of.get(source) != group:
            raise BadFrame(f"Who swaps is a member of {group}.")

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        values = (message.a, message.b) if isinstance(message, Swap) else super().about(message)
        return tuple(value for value in dict.fromkeys(values) if value != BOTTOM)


class LinkedSwap(DistributedSwap):
    """A swap whose nodes have one link each, towards where the object's value is."""

    place: Callable[[], Place]  # where this node is at first
    neighbours: Callable[[], tuple[ProcessId, ...]]  # in the tree as it is now

    link: ProcessId  # a neighbour or, where the value is, the node itself
    value: MessageId  # meaningful only there

    # Entering and leaving (services/entering.py) --------------------------------------------------------------------

    def quiesce(self) -> None:
        """Send at once what waits here for others."""

    def relink(self, left: ProcessId, heir: ProcessId) -> None:
        """A neighbour has left, and another node is where it was."""
        if self.link == left:
            self.link = heir

    def inherit(self, value: MessageId) -> None:
        """The value is here from now on."""
        self.link, self.value = self.me, value
