"""FIFO multicast with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from antiphon.core import Message, ProcessId
from antiphon.protocols.fifo import Fifo
from antiphon.services.numbered import Copy
from mutants.numbered import NUMBERED_MUTANTS
from mutants.parts import with_parts


class DeliversAsItComes(Fifo):
    """Without a hold-back queue."""

    def when_arrived(self, sender: ProcessId, number: int, copy: Copy) -> None:
        self.deliver(copy.message)


class SkipsAGap(Fifo):
    """Waits for one missing message, but not for two."""

    def when_arrived(self, sender: ProcessId, number: int, copy: Copy) -> None:
        if number > self.delivered.get(sender, 0) + 2:
            self.delivered[sender] = number - 1
        super().when_arrived(sender, number, copy)


class DeliversOneAtATime(Fifo):
    """What waited for a message is not delivered with it."""

    def when_arrived(self, sender: ProcessId, number: int, copy: Copy) -> None:
        queue = self.holdback.setdefault(sender, {})
        queue[number] = copy.message
        m = queue.pop(self.delivered.get(sender, 0) + 1, None)
        if m is not None:
            self.delivered[sender] = self.delivered.get(sender, 0) + 1
            self.deliver(m)


class DoesNotDeliverItsOwn(Fifo):
    def multicast(self, m: Message) -> None:
        self.numbered.multicast(m, {})


class HoldsOneBack(Fifo):
    """The hold-back queue of a sender has one place."""

    def when_arrived(self, sender: ProcessId, number: int, copy: Copy) -> None:
        if len(self.holdback.get(sender, {})) < 1 or number == self.delivered.get(sender, 0) + 1:
            super().when_arrived(sender, number, copy)


class OneQueueForAllSenders(Fifo):
    def when_arrived(self, sender: ProcessId, number: int, copy: Copy) -> None:
        super().when_arrived(ProcessId(""), number, copy)


class ForgetsWhatItHoldsBackOnRestart(Fifo):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.holdback = {}


class ForgetsWhatItDeliveredOnRestart(Fifo):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.delivered = {}


class DeliversTheNewestFirst(Fifo):
    """Of what becomes deliverable together."""

    def when_arrived(self, sender: ProcessId, number: int, copy: Copy) -> None:
        ready: list[Message] = []
        deliver, self.deliver = self.deliver, lambda m, key=None: ready.append(m)  # type: ignore[method-assign]
        super().when_arrived(sender, number, copy)
        self.deliver = deliver  # type: ignore[method-assign]
        for m in reversed(ready):
            self.deliver(m)


MUTANTS = (
    DeliversAsItComes,
    SkipsAGap,
    DeliversOneAtATime,
    DoesNotDeliverItsOwn,
    HoldsOneBack,
    OneQueueForAllSenders,
    ForgetsWhatItHoldsBackOnRestart,
    ForgetsWhatItDeliveredOnRestart,
    DeliversTheNewestFirst,
    *(with_parts(Fifo, kind) for kind in NUMBERED_MUTANTS),
)
