"""FIFO multicast: what one process sends comes in the order in which it was sent.

slides.txt has the hold-back queue in "Ordered multicast", and the condition TS[i] = VT_j[i] + 1 in "Causally ordered
multicast" 3.

L1-L6 are the lines of docs/protocols/fifo.md.
"""

from __future__ import annotations

import msgspec

from antiphon.core import Assumptions, Declaration, Failures, Message, OrderingProtocol, ProcessId, Promise, Table
from antiphon.services.numbered import Copy, NumberedMulticast, NumberedOptions, TransportKind


class FifoOptions(msgspec.Struct, frozen=True):
    transport: TransportKind = "reliable"


class Fifo(OrderingProtocol):
    declaration = Declaration(
        name="fifo",
        title="FIFO multicast",
        source="lecture slides, Ordered multicast, and the first condition of Causally ordered multicast 3",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY),
        promises=(
            Promise.VALIDITY,
            Promise.INTEGRITY,
            Promise.UNIFORM_AGREEMENT,
            Promise.FIFO,
            Promise.GENUINENESS,
        ),
    )
    Options = FifoOptions
    options: FifoOptions

    numbered: NumberedMulticast

    delivered: Table[ProcessId, int]  # by sender: the number, in its stream to this group, of the last one delivered
    holdback: Table[ProcessId, Table[int, Message]]  # by sender and number

    def initialise(self) -> None:
        options = NumberedOptions(self.options.transport)
        self.numbered = self.part(NumberedMulticast, "numbered", options, arrived=self.when_arrived)
        self.delivered, self.holdback = {}, {}

    def multicast(self, m: Message) -> None:  # L1
        self.numbered.multicast(m, {})  # L2
        if self.topology.group_of.get(self.me) in m.destinations:
            self.deliver(m)  # L3

    def when_arrived(self, sender: ProcessId, number: int, copy: Copy) -> None:  # L4
        queue = self.holdback.setdefault(sender, {})
        queue[number] = copy.message  # L5
        while (m := queue.pop(self.delivered.get(sender, 0) + 1, None)) is not None:  # L6
            self.delivered[sender] = self.delivered.get(sender, 0) + 1
            self.deliver(m)
        if not queue:
            del self.holdback[sender]

    def pending(self) -> int:
        return sum(len(queue) for queue in self.holdback.values()) + self.numbered.pending()

    def waits_for(self) -> tuple[ProcessId, ...]:
        return self.numbered.missed_senders()

    def counters(self) -> dict[str, int]:
        return {"missing": self.numbered.missing(), "unstable": self.numbered.unstable()}
