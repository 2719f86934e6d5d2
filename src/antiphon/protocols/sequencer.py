"""The fixed sequencer (slides.txt, "Sequencer"): one member numbers the messages of its group.

L1-L9 are the lines of docs/protocols/sequencer.md.
"""

from __future__ import annotations

from antiphon.core import (
    Assumptions,
    Declaration,
    Failures,
    Message,
    OrderingProtocol,
    ProcessId,
    Promise,
    Table,
    Transport,
    Wire,
)


class Number(Wire, frozen=True, tag=1):
    """Sender to sequencer: number this."""

    message: Message


class Ordered(Wire, frozen=True, tag=2):
    """Sequencer to the group: this is message ``number``."""

    number: int
    message: Message


class Sequencer(OrderingProtocol):
    declaration = Declaration(
        name="sequencer",
        title="Fixed sequencer",
        source="lecture slides, Totally ordered multicast 2 and 3",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY, one_group=True),
        promises=(
            Promise.VALIDITY,
            Promise.INTEGRITY,
            Promise.UNIFORM_AGREEMENT,
            Promise.FIFO,
            Promise.TOTAL_ORDER,
            Promise.ACYCLIC_ORDER,
            Promise.GENUINENESS,
        ),
    )

    transport = Transport.FIFO

    numbered: int  # at the sequencer: the timestamp of the newest message
    delivered: int
    holdback: Table[int, Message]

    def initialise(self) -> None:
        self.numbered = 0
        self.delivered = 0
        self.holdback = {}

    def multicast(self, m: Message) -> None:  # L1
        (group,) = m.destinations
        sequencer = self.topology.members(group)[0]  # L2
        self.send(sequencer, Number(m))  # L3

    def on_number(self, sender: ProcessId, number: Number) -> None:  # L4
        self.numbered += 1  # L5
        (group,) = number.message.destinations
        self.send(self.topology.members(group), Ordered(self.numbered, number.message))  # L6

    def on_ordered(self, sender: ProcessId, ordered: Ordered) -> None:  # L7
        self.holdback[ordered.number] = ordered.message  # L8
        while (m := self.holdback.pop(self.delivered + 1, None)) is not None:  # L9
            self.delivered += 1
            self.deliver(m, (self.delivered, self.group))

    def pending(self) -> int:
        return len(self.holdback)

    def waits_for(self) -> tuple[ProcessId, ...]:
        return self.topology.members(self.group)[:1] if self.holdback else ()
