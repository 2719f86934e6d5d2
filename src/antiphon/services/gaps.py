"""Eras: what survives the loss of a node is ordered anew, behind a gap (swap.txt, section 6.3).

G1-G9 are the lines of docs/protocols/gaps.md. The *era* of a group is the set of its members that are known to be dead.

Invariant: what a process knows to be dead only grows, so it goes through eras each of which contains the one before,
and is in each of them once. What parts of a group send to one another is handled in the era in which it was sent, or
not at all. So in each era the parts see a run of their own, in which some messages are lost and none is forged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from antiphon.core import Buffers, GroupId, MessageId, ProcessId, Transport, Wire
from antiphon.core.component import Channel, Component
from antiphon.core.errors import BadFrame


class InEra(Wire, frozen=True, tag=1):
    """A message of another part, and the dead of the receivers' group, as far as the sender knows them."""

    about: tuple[MessageId, ...]  # what the message inside is about
    dead: tuple[ProcessId, ...]
    frame: Buffers


class Eras(Channel):
    """Carries the messages of all other parts. ``moved()``: this process is in a new era, and all else is over."""

    transport = Transport.FIFO
    moved: Callable[[], None]

    dead: list[ProcessId]  # members of any group, in the order of their names
    discarded: int  # frames of eras that are over

    def initialise(self) -> None:
        self.dead = []
        self.discarded = 0

    def begin(self) -> None:
        self.monitor(self.topology.processes)  # G1

    def era(self, group: GroupId) -> tuple[ProcessId, ...]:
        return tuple(p for p in self.dead if self.topology.group_of[p] == group)

    def on_suspect(self, process: ProcessId) -> None:  # G2
        self.learn((process,))

    def learn(self, dead: Iterable[ProcessId]) -> None:
        new = [p for p in dead if p not in self.dead]
        self.dead = sorted([*self.dead, *new])  # G3
        if any(self.topology.group_of[p] == self.topology.group_of.get(self.me) for p in new):
            self.moved()  # G4

    def send_for(self, part: Component, to: tuple[ProcessId, ...], message: Wire) -> None:  # G5
        if self.me in to:
            self.process.send_to_self(part, message)  # handled before anything else comes, and so in the same era
        others = tuple(p for p in to if p != self.me)
        if others:
            era = self.era(self.topology.group_of[others[0]])
            self.process.send_for(self, others, InEra(part.about(message), era, self.process.encode(part, message)))

    def on_in_era(self, sender: ProcessId, sent: InEra) -> None:  # G6
        self.learn(sent.dead)  # G7
        outside = self.topology.group_of.get(sender) != self.group
        if outside or sent.dead == self.era(self.group):
            self.process.handle(sender, sent.frame)  # G8
        else:
            self.discarded += 1  # G9

    def validate(self, message: Wire) -> None:
        assert isinstance(message, InEra)
        if self.me not in self.topology.group_of:
            raise BadFrame(f"{self.me} is in no group, and in no era.")
        members = self.topology.members(self.group)
        if self.me in message.dead or any(p not in members for p in message.dead):
            raise BadFrame(f"The dead of an era are members of {self.group}, and {self.me} is not among them.")
        if list(message.dead) != sorted(set(message.dead)):
            raise BadFrame("The dead of an era are named once, in the order of their names.")
        part, inner = self.process.decode_frame(message.frame)
        if isinstance(part, Channel):
            raise BadFrame("A channel carries no message of a channel.")
        self.process.checks.message(part, inner)

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        assert isinstance(message, InEra)
        return message.about
