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
    Wire,
)


class Request(Wire, frozen=True, tag=1):
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
        source="slides.txt, Totally ordered multicast 2-3",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY, fifo=True, one_group=True),
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

    numbered: int  # at the sequencer: the timestamp of the newest message
    delivered: int
    holdback: dict[int, Message]

    def initialise(self) -> None:
        self.numbered = 0
        self.delivered = 0
        self.holdback = {}

    def multicast(self, m: Message) -> None:  # L1
        (group,) = m.destinations
        sequencer = self.topology.members(group)[0]  # L2
        self.send(sequencer, Request(m))  # L3

    def on_request(self, sender: ProcessId, request: Request) -> None:  # L4
        self.numbered += 1  # L5
        (group,) = request.message.destinations
        self.send(self.topology.members(group), Ordered(self.numbered, request.message))  # L6

    def on_ordered(self, sender: ProcessId, ordered: Ordered) -> None:  # L7
        self.holdback[ordered.number] = ordered.message  # L8
        while (m := self.holdback.pop(self.delivered + 1, None)) is not None:  # L9
            self.delivered += 1
            self.deliver(m, f"{self.delivered:016d}.{m.destinations[0]}")

    def pending(self) -> int:
        return len(self.holdback)
