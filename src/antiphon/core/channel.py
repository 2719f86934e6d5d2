"""The two ends of a channel: numbers that make resending harmless. Both drivers move the frames in between."""

from __future__ import annotations

import msgspec

from antiphon.core.model import ProcessId


class Outbox(msgspec.Struct):
    """Frames for one peer, from the first that it has not acknowledged."""

    sent: int = 0  # the number of the newest frame
    acknowledged: int = 0
    frames: dict[int, bytes] = {}
    size: int = 0  # of the frames kept, in bytes
    spilled: int = 0  # frames up to this one are no longer kept here: the driver has them on disk

    def push(self, frame: bytes) -> int:
        self.sent += 1
        self.frames[self.sent] = frame
        self.size += len(frame)
        return self.sent

    def acknowledge(self, number: int) -> None:
        """Forget what the peer holds durably: everything up to ``number``."""
        assert number <= self.sent, "a peer cannot hold what was never sent"
        for held in range(self.first_kept, number + 1):
            self.size -= len(self.frames.pop(held))
        self.acknowledged = max(self.acknowledged, number)

    @property
    def first_kept(self) -> int:
        return max(self.acknowledged, self.spilled) + 1

    def spill(self) -> None:
        """Keep nothing here: the driver has all of it on disk. For a peer that is away for long."""
        self.frames.clear()
        self.size = 0
        self.spilled = self.sent


class Inbox(msgspec.Struct):
    """Which frames of one peer were taken: all up to ``received``, and on a channel without order some beyond."""

    received: int = 0
    early: set[int] = msgspec.field(default_factory=set)

    def is_new(self, number: int) -> bool:
        return number > self.received and number not in self.early

    def take(self, number: int) -> None:
        assert self.is_new(number), "the driver discards what was taken before"
        if number != self.received + 1:
            self.early.add(number)
            return
        self.received = number
        while self.early and self.received + 1 in self.early:
            self.received += 1
            self.early.remove(self.received)


class Endpoints(msgspec.Struct):
    """All channels of one process; a part of its snapshot."""

    outboxes: dict[ProcessId, Outbox] = {}
    inboxes: dict[ProcessId, Inbox] = {}

    def outbox(self, peer: ProcessId) -> Outbox:
        box = self.outboxes.get(peer)
        if box is None:
            box = self.outboxes[peer] = Outbox()
        return box

    def inbox(self, peer: ProcessId) -> Inbox:
        box = self.inboxes.get(peer)
        if box is None:
            box = self.inboxes[peer] = Inbox()
        return box
