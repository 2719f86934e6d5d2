"""Causal order on every message between two processes, by matrix clocks (Raynal, Schiper and Toueg).

M1-M8 are the lines of docs/protocols/matrix.md. A message carries what its sender knows of who sent how many messages
to whom: a number for each pair of processes of the system, needed or not: the O(n²) of scalatom.txt, section 2.1.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from antiphon.core import Buffers, MessageId, ProcessId, Wire
from antiphon.core.component import Channel, Component
from antiphon.core.errors import BadFrame
from antiphon.core.model import without
from antiphon.services.label import check_numbers


class Carried(Wire, frozen=True, tag=1):
    """A message of another part, with the matrix of its past and the sender's logical time."""

    about: tuple[MessageId, ...]  # what the message inside is about
    time: int
    matrix: list[int]
    frame: Buffers


class MatrixOrder(Channel):
    """Hands every message to its part only when all that were sent to the same process before, by anybody, are there.

    Senders outside the groups only ever send and never receive, so nothing can be lost behind them: they are not in
    the matrix, and their messages are handed over at once.
    """

    tick: Callable[[int], None]  # the logical time of a message that came
    time: Callable[[], int]  # and of one that goes

    matrix: list[int]  # SENT: row by row, who sent how many to whom, as far as known here
    handed: list[int]  # DELIV: how many of each process's messages were handed over here
    waiting: list[tuple[ProcessId, Carried]]

    def initialise(self) -> None:
        size = len(self.topology.processes)
        self.matrix = [0] * (size * size)
        self.handed = [0] * size
        self.waiting = []

    def validate(self, message: Wire) -> None:
        assert isinstance(message, Carried)
        if len(message.matrix) != len(self.matrix):
            raise BadFrame(f"A matrix has {len(self.matrix)} numbers here, not {len(message.matrix)}.")
        check_numbers((message.time, min(message.matrix), max(message.matrix)))
        part, inner = self.process.decode_frame(message.frame)
        if isinstance(part, Channel):
            raise BadFrame("A channel carries no message of a channel.")
        self.process.checks.message(part, inner)

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        assert isinstance(message, Carried)
        return message.about

    def send_for(self, part: Component, to: tuple[ProcessId, ...], message: Wire) -> None:  # M1
        if self.me in to:
            self.process.send_to_self(part, message)
        others = without(self.me, to)
        if not others:
            return
        carried = Carried(
            part.about(message),
            self.time(),
            self.matrix.copy(),  # M2
            self.process.encode(part, message),
        )
        index_of, size = self.topology.index_of, len(self.handed)
        if self.me in index_of:
            for process in others:
                self.matrix[index_of[self.me] * size + index_of[process]] += 1  # M3
        self.process.send_for(self, others, carried)  # M4

    def on_carried(self, sender: ProcessId, carried: Carried) -> None:  # M5
        if not self.is_ready(sender, carried):
            self.waiting.append((sender, carried))
            return
        self.hand_over(sender, carried)
        at = 0  # nothing before this place is ready; what waits becomes so only by what is handed over
        while at < len(self.waiting):
            if self.is_ready(*self.waiting[at]):
                self.hand_over(*self.waiting.pop(at))
                at = 0
            else:
                at += 1

    def is_ready(self, sender: ProcessId, carried: Carried) -> bool:
        index_of = self.process.topology.index_of
        if sender not in index_of:
            return True
        sent_here = carried.matrix[index_of[self.me] :: len(self.handed)]  # this process's column
        return all(map(operator.ge, self.handed, sent_here))  # M6

    def hand_over(self, sender: ProcessId, carried: Carried) -> None:
        index_of = self.topology.index_of
        if sender in index_of:
            there = index_of[sender]
            self.handed[there] += 1  # M7
            self.matrix = [a if a > b else b for a, b in zip(self.matrix, carried.matrix, strict=True)]  # max is slow
            cell = there * len(self.handed) + index_of[self.me]
            self.matrix[cell] = max(self.matrix[cell], self.handed[there])
        self.tick(carried.time)
        self.process.handle(sender, carried.frame)  # M8
