"""What a member knows of another group's log: the timestamps announced to it, and which of them are decided.

A timestamp is decided when a majority of its group has acknowledged the log beyond it in one epoch. Then every later
primary of that group goes on with it, so nothing can change it any more.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from antiphon.core import MessageId, ProcessId, Table


class Announced(NamedTuple):
    """An entry of a group's log, for another group."""

    at: int  # its index
    timestamp: int
    id: MessageId
    number: int  # which of its sender's messages to the receiver's group it is


class Learner(msgspec.Struct):
    """Of one other group."""

    epoch: int = 0  # the newest of which anything came
    entries: dict[int, Announced] = {}  # announced in it and not decided, by index
    lengths: Table[ProcessId, tuple[int, int]] = {}  # the newest acknowledgement of each member: epoch and length

    def heed(self, member: ProcessId, epoch: int, length: int) -> bool:
        """An acknowledgement; whether it counts. What was not decided in an earlier epoch may be gone in this one."""
        if epoch < self.epoch:
            return False
        if epoch > self.epoch:
            self.epoch, self.entries = epoch, {}
        self.lengths[member] = (epoch, length)
        return True

    def take_decided(self, members: tuple[ProcessId, ...]) -> list[Announced]:
        newest = [self.lengths.get(p, (0, 0)) for p in members]
        length = of_majority([length if epoch == self.epoch else 0 for epoch, length in newest])
        return [self.entries.pop(index) for index in [index for index in self.entries if index < length]]

    def forget(self, id: MessageId) -> None:
        self.entries = {index: announced for index, announced in self.entries.items() if announced.id != id}


def of_majority(numbers: list[int]) -> int:
    """What a majority of them is not below."""
    return sorted(numbers, reverse=True)[len(numbers) // 2]
