"""Causal multicast with vector clocks (slides.txt, "Causally ordered multicast"), to any set of groups.

L1-L11 are the lines of docs/protocols/causal.md. A process waits only for what is addressed to its own group, so there
is a vector for each group. What travels is transitive: it tells of groups that the receiver is not in, too, for the
receiver may be the next to send there.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from antiphon.core import (
    Assumptions,
    Declaration,
    Failures,
    GroupId,
    Message,
    OrderingProtocol,
    ProcessId,
    Promise,
    Table,
)
from antiphon.services.numbered import Copy, NumberedMulticast, NumberedOptions, PastCounts, TransportKind


class CausalOptions(msgspec.Struct, frozen=True):
    transport: TransportKind = "reliable"
    timestamps: Literal["whole", "nearest"] = "whole"  # nearest: without what another entry implies


class Causal(OrderingProtocol):
    declaration = Declaration(
        name="causal",
        title="Causal multicast with vector clocks",
        source="lecture slides, Causally ordered multicast 1 to 3",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY),
        promises=(
            Promise.VALIDITY,
            Promise.INTEGRITY,
            Promise.UNIFORM_AGREEMENT,
            Promise.FIFO,
            Promise.CAUSAL,
            Promise.GENUINENESS,
        ),
    )
    Options = CausalOptions
    options: CausalOptions

    numbered: NumberedMulticast

    vt: Table[ProcessId, int]  # VT: how many messages of each process to this group were delivered here
    past: PastCounts  # for each group, what precedes the next message from here. Its vectors are replaced, not changed
    holdback: dict[ProcessId, dict[int, Copy]]  # by sender and number

    def initialise(self) -> None:
        options = NumberedOptions(self.options.transport)
        self.numbered = self.part(NumberedMulticast, "numbered", options, arrived=self.when_arrived)
        self.vt, self.past, self.holdback = {}, {}, {}

    def multicast(self, m: Message) -> None:  # L1
        copy = self.numbered.multicast(m, self.past)  # L2
        self.learn(self.me, copy)  # L3
        group = self.topology.group_of.get(self.me)
        if group in m.destinations:
            self.vt[self.me] = copy.numbers[m.destinations.index(group)]
            self.deliver(m)  # L4

    def when_arrived(self, sender: ProcessId, number: int, copy: Copy) -> None:  # L5
        self.holdback.setdefault(sender, {})[number] = copy
        for other, count in self.precedes(copy).items():
            if other != self.me:
                self.numbered.expect(other, count)  # L6
        while (ready := next((p for p in self.holdback if self.is_ready(p)), None)) is not None:  # L7
            self.deliver_next(ready)

    def precedes(self, copy: Copy) -> dict[ProcessId, int]:
        """TS, as far as it concerns this process: what must be delivered here before the message."""
        return copy.past.get(self.group, {})

    def is_ready(self, sender: ProcessId) -> bool:
        copy = self.holdback[sender].get(self.vt.get(sender, 0) + 1)  # L8
        if copy is None:
            return False
        return all(self.vt.get(k, 0) >= count for k, count in self.precedes(copy).items() if k != sender)  # L9

    def deliver_next(self, sender: ProcessId) -> None:
        self.vt[sender] = number = self.vt.get(sender, 0) + 1
        queue = self.holdback[sender]
        copy = queue.pop(number)
        if not queue:
            del self.holdback[sender]
        self.learn(sender, copy)  # L10
        self.deliver(copy.message)

    def learn(self, sender: ProcessId, copy: Copy) -> None:
        """The message, and all that precedes it, precede whatever this process sends from now on."""
        past = {group: maxima(self.past.get(group, {}), vector) for group, vector in copy.past.items()}
        for group, number in zip(copy.message.destinations, copy.numbers, strict=True):
            vector = past.get(group) or self.past.get(group, {})
            if self.options.timestamps == "nearest":
                vector = self.beyond(copy, group, vector)  # L11
            past[group] = maxima(vector, {sender: number})
        self.past = {**self.past, **past}

    def beyond(self, copy: Copy, group: GroupId, vector: dict[ProcessId, int]) -> dict[ProcessId, int]:
        """Whoever waits for the message waits for what it waits for: only what it does not imply need be told."""
        implied = copy.past.get(group, {})
        return {process: count for process, count in vector.items() if count > implied.get(process, 0)}

    def pending(self) -> int:
        return sum(len(queue) for queue in self.holdback.values()) + self.numbered.pending()

    def waits_for(self) -> tuple[ProcessId, ...]:
        return self.numbered.missed_senders()

    def counters(self) -> dict[str, int]:
        entries = sum(len(vector) for vector in self.past.values())
        return {"missing": self.numbered.missing(), "unstable": self.numbered.unstable(), "entries": entries}


def maxima(one: dict[ProcessId, int], other: dict[ProcessId, int]) -> dict[ProcessId, int]:
    return {**one, **{process: max(count, one.get(process, 0)) for process, count in other.items()}}
