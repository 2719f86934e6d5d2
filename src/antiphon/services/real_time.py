"""Whether everything that comes before a message has been delivered somewhere, in each group that it addresses.

R1-R8 are the lines of docs/protocols/real_time.md. A group's order is known to its members alone, so one of them tells
the other destination groups: all of ours that come before this message are delivered, and nothing more will come before
it. That stays true, whatever becomes of who said it.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.core import Component, GroupId, Message, MessageId, ProcessId, Table, Transport, Wire
from antiphon.services.label import Label


class Ready(Wire, frozen=True, tag=1):
    """Member to other groups: in ours, all is delivered that ever comes before this message."""

    id: MessageId
    groups: tuple[GroupId, ...]
    numbers: tuple[int, ...]


class Waiting(Wire, frozen=True, tag=2):
    """Member to a group from which it has waited for that for long: is it so?"""

    id: MessageId
    groups: tuple[GroupId, ...]
    numbers: tuple[int, ...]


class RealTime(Component):
    transport = Transport.FIFO
    was_delivered: Callable[[Label], bool]  # here
    comes_next: Callable[[MessageId], bool]  # whether nothing but what other groups say keeps it from being delivered
    heard: Callable[[], None]  # a group is ready

    ready: Table[MessageId, set[GroupId]]  # of messages that are not delivered here: the other groups that said so
    said: MessageId | None  # the last message of which this member has said it

    def initialise(self) -> None:
        self.ready = {}
        self.said = None

    def validate(self, message: Wire) -> None:
        assert isinstance(message, Ready | Waiting)
        label_of(message).check(self.topology, self.me)

    def speak(self, m: Message, numbers: tuple[int, ...]) -> None:
        """For the own group, in which the message comes next, however soon it is delivered here."""
        others = tuple(group for group in m.destinations if group != self.group)
        if others and self.said != m.id:
            self.said = m.id
            self.send(self.topology.addressees(others), Ready(m.id, m.destinations, numbers))  # R2

    def admits(self, m: Message) -> bool:
        """Whether the message, which comes next, is delivered now."""
        if len(m.destinations) == 1:
            return True  # R1
        if self.missing(m):
            return False
        self.forget(m.id)
        return True  # R3

    def missing(self, m: Message) -> list[GroupId]:
        """The groups that have not said that they are ready."""
        ready = self.ready.get(m.id, ())
        return [group for group in m.destinations if group != self.group and group not in ready]

    def on_ready(self, sender: ProcessId, ready: Ready) -> None:  # R4
        group = self.topology.group_of.get(sender)
        if group == self.group or group not in ready.groups or self.was_delivered(label_of(ready)):
            return
        self.ready.setdefault(ready.id, set()).add(group)
        self.heard()

    def forget(self, id: MessageId) -> None:
        """It is delivered here."""
        self.ready.pop(id, None)  # R5

    def ask(self, m: Message, numbers: tuple[int, ...]) -> None:
        """It has come next for long: whoever was to speak for another group may be gone."""
        asked = self.topology.addressees(tuple(self.missing(m)))
        self.send(asked, Waiting(m.id, m.destinations, numbers))  # R6

    def on_waiting(self, sender: ProcessId, waiting: Waiting) -> None:  # R7
        if self.was_delivered(label_of(waiting)) or self.comes_next(waiting.id):
            self.send(sender, Ready(waiting.id, waiting.groups, waiting.numbers))  # R8


def label_of(message: Ready | Waiting) -> Label:
    return Label(message.id.origin, message.groups, message.numbers)
