"""The log of a group that a primary leads: where two copies of it part, and how one takes over another's end.

An entry is known by its index and by the epoch whose primary appended it. A primary appends to one log only, and
whoever holds one of its entries holds all that stands before it. So where two logs have an entry of the same epoch at
the same index, they are the same up to there.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from antiphon.core import MessageId

Runs = list[tuple[int, int]]  # the epochs in which entries were appended, each with the index after its last one


class Logged(NamedTuple):
    """The group's timestamp for a message."""

    timestamp: int
    id: MessageId


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """All that tells one log of a group from another: whoever adopted a later epoch, or has more of the same, knows
    whatever was decided."""

    epoch: int  # the last one that its member adopted
    base: int  # what is before it was cut
    runs: Runs

    @property
    def length(self) -> int:
        return self.runs[-1][1] if self.runs else 0

    @property
    def rank(self) -> tuple[int, int]:
        return self.epoch, self.length


def common(one: Runs, other: Runs) -> int:
    """Up to which index two logs are the same."""
    same = 0
    for (epoch, end), (other_epoch, other_end) in zip(one, other, strict=False):
        if epoch != other_epoch:
            break
        same = min(end, other_end)
        if end != other_end:
            break
    return same


class GroupLog(msgspec.Struct):
    base: int = 0
    entries: list[Logged] = []  # from the base on
    runs: Runs = []

    @property
    def length(self) -> int:
        return self.base + len(self.entries)

    def at(self, index: int) -> Logged:
        return self.entries[index - self.base]

    def since(self, index: int) -> list[Logged]:
        return self.entries[index - self.base :]

    def extent(self, epoch: int) -> Extent:
        return Extent(epoch, self.base, list(self.runs))

    def append(self, epoch: int, logged: Logged) -> None:
        self.entries.append(logged)
        if self.runs and self.runs[-1][0] == epoch:
            self.runs[-1] = (epoch, self.length)
        else:
            assert not self.runs or self.runs[-1][0] < epoch, "epochs only grow in a log"
            self.runs.append((epoch, self.length))

    def cut(self, count: int) -> None:
        del self.entries[:count]
        self.base += count

    def adopt(self, first: int, runs: Runs, entries: list[Logged]) -> list[Logged]:
        """Go on with what stands before ``first`` here, and then with the end of another log, whose runs these are.

        Where the two part before ``first``, or this log does not come so far, nothing of this one stays. Returns what
        is no longer in the log.
        """
        assert self.base <= first, "what is cut is decided, and so in every later log"
        if common(self.runs, runs) >= first:
            gone = self.since(first)
            del self.entries[first - self.base :]
        else:
            gone, self.entries, self.base = self.entries, [], first
        self.entries += entries
        self.runs = list(runs)
        assert self.length == (runs[-1][1] if runs else 0), "the runs of a log say how long it is"
        return gone
