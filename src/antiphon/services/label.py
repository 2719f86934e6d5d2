"""Names that can be forgotten: a stream of things to groups, counted group by group.

The things that one origin addresses to a group are numbered 1, 2, 3, ... for that group. A member sees every number of
its own group, so "have I had this one?" needs one number per origin and the few that came early, however long it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from antiphon.core import GroupId, ProcessId, Table, Topology
from antiphon.core.channel import Inbox
from antiphon.core.errors import BadFrame

NUMBER_MAX = 1 << 62  # no honest process counts so far
LIFE = 1 << 32  # labels for one group: what an origin that forgets some of them counts anew from


def check_numbers(numbers: Sequence[int]) -> None:
    """Raise BadFrame for clocks and counters of a peer that are negative, or near the end of what can be encoded."""
    if numbers and not 0 <= min(numbers) <= max(numbers) < NUMBER_MAX:
        raise BadFrame(f"No honest process counts to {max(numbers)}, or from {min(numbers)}.")


class Label(NamedTuple):
    """The ``numbers[i]``-th thing that ``origin`` addressed to ``groups[i]``, for every i."""

    origin: str
    groups: tuple[GroupId, ...]
    numbers: tuple[int, ...]

    def check(self, topology: Topology, member: ProcessId) -> None:
        """Raise BadFrame for a label that no honest process sends to this member."""
        if not topology.is_destination_set(self.groups) or topology.group_of.get(member) not in self.groups:
            raise BadFrame(f"Something for the groups {', '.join(self.groups)} is not for {member}.")
        numbers = self.numbers
        if len(numbers) != len(self.groups) or min(numbers) < 1 or max(numbers) >= NUMBER_MAX:
            raise BadFrame("A label has a number from 1 on for each of its groups.")
        if not all(number % LIFE for number in numbers):
            raise BadFrame("In each of its origin's lives, labels are numbered from 1 on.")


class Labeller(msgspec.Struct):
    """At the origin: gives the labels."""

    counts: Table[GroupId, int] = {}
    lives: int = 0  # of the origin, before this one

    def next(self, origin: ProcessId, groups: tuple[GroupId, ...]) -> Label:
        for group in groups:
            self.counts[group] = self.counts.get(group, self.lives * LIFE) + 1
        return Label(origin, groups, tuple(self.counts[group] for group in groups))

    def begin_life(self) -> None:
        """It may have given labels that it has forgotten: none is given again."""
        self.lives += 1
        self.counts = {}


class Labels(msgspec.Struct):
    """At a member: the labels that it has had. What an origin has forgotten leaves holes at the end of one of its lives
    (``Labeller.begin_life``), so each life is counted by itself."""

    streams: Table[tuple[str, int], Inbox] = {}

    def has(self, label: Label, group: GroupId) -> bool:
        return self.had(label.origin, label.numbers[label.groups.index(group)])

    def had(self, origin: str, number: int) -> bool:
        """The same of the ``number``-th thing that an origin addressed to this member's group."""
        life, number = divmod(number, LIFE)
        stream = self.streams.get((origin, life))
        return stream is not None and not stream.is_new(number)

    def received(self, origin: str) -> int:
        """All up to this number, of an origin that never forgets."""
        return self.streams.get((origin, 0), _NOTHING).received

    def add(self, label: Label, group: GroupId) -> bool:
        """Whether it is the first time."""
        return self.take(label.origin, label.numbers[label.groups.index(group)])

    def take(self, origin: str, number: int) -> bool:
        if self.had(origin, number):
            return False
        life, number = divmod(number, LIFE)
        self.streams.setdefault((origin, life), Inbox()).take(number)
        return True


_NOTHING = Inbox()


def majority(members: tuple[ProcessId, ...]) -> int:
    return len(members) // 2 + 1


def has_qualified_majority(who: set[ProcessId], groups: tuple[GroupId, ...], topology: Topology) -> bool:
    """Whether ``who`` has a majority of every one of the groups (scalatom.txt, section 3.5)."""
    for group in groups:
        members = topology.members(group)
        if len(who.intersection(members)) < majority(members):
            return False
    return True
