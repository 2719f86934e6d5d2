"""The vocabulary of the world: processes, groups, messages, and who is in which group."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple, NewType

import msgspec

from antiphon.core.buffers import Buffers
from antiphon.core.errors import UsageError

ProcessId = NewType("ProcessId", str)
GroupId = NewType("GroupId", str)

Service = Literal["agreed", "causal"]  # how a sender wants a message delivered, where the protocol leaves it the choice

GROUPS_MAX = 1024
MEMBERS_MAX = 1024
SETS_MAX = 1 << 14  # sets of groups about which something is remembered: callers may name any number of them
NAME_MAX = 32  # letters in a group's name
NAME = re.compile(rf"[a-z][a-z0-9_-]{{0,{NAME_MAX - 1}}}")
_NO_NAMES = "Groups are given as a name, or as a set or list of names."
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class MessageId(NamedTuple):
    """The ``number``-th message that ``origin`` multicasts. The origin is the paper's sender: a process."""

    origin: ProcessId
    number: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.number}"


class ViewId(NamedTuple):
    """The name of a view. Two partitions may come to the same ``number``: so it also says who counted."""

    number: int
    counter: ProcessId

    def __str__(self) -> str:
        return f"{self.number}@{self.counter}"


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What protocols order: a body for every member of the destination groups, which they never open.

    The body holds the requests of one or many clients with ``count`` payloads in all (core/requests.py).
    """

    id: MessageId
    destinations: tuple[GroupId, ...]
    count: int
    body: Buffers


class Roster(msgspec.Struct, frozen=True, array_like=True):
    """A topology, as it is written down and sent."""

    epoch: int
    groups: dict[GroupId, tuple[ProcessId, ...]]
    joined: dict[ProcessId, int]  # those who took another's place: as of which epoch


class Topology:
    """Who is in which group, as of an epoch. Groups are disjoint.

    A member that is lost for good is replaced: in the next epoch another one, of a new name, has its place.
    """

    def __init__(
        self, groups: Mapping[str, Iterable[str]], epoch: int = 0, joined: Mapping[ProcessId, int] | None = None
    ) -> None:
        self.epoch = epoch
        self.joined: dict[ProcessId, int] = dict(joined or {})
        self.groups: dict[GroupId, tuple[ProcessId, ...]] = {
            GroupId(group): tuple(ProcessId(member) for member in members) for group, members in groups.items()
        }
        self.processes: tuple[ProcessId, ...] = tuple(p for members in self.groups.values() for p in members)
        self.index_of: dict[ProcessId, int] = {p: index for index, p in enumerate(self.processes)}
        self.group_of: dict[ProcessId, GroupId] = {p: g for g, members in self.groups.items() for p in members}
        self._members_with = {p: members for members in self.groups.values() for p in members}
        self._since = {
            g: max((self.joined.get(p, 0) for p in members), default=0) for g, members in self.groups.items()
        }
        self._addressees: dict[tuple[GroupId, ...], tuple[ProcessId, ...]] = {}
        self._destination_sets: set[tuple[GroupId, ...]] = set()  # those checked before
        if len(self.group_of) != len(self.processes):
            raise UsageError("A process belongs to one group only, but the groups given overlap.")

    @classmethod
    def sized(cls, sizes: Mapping[str, int]) -> Topology:
        """Groups by name and size; the members of ``orders`` are ``orders.1``, ``orders.2``, ..."""
        if not sizes or len(sizes) > GROUPS_MAX:
            raise UsageError(f"A system has 1 to {GROUPS_MAX} groups, not {len(sizes)}.")
        for name, size in sizes.items():
            if not NAME.fullmatch(name):
                raise UsageError(
                    f"{name!r} is not a valid group name: use a lowercase letter, "
                    f"then lowercase letters, digits, _ or - ({NAME_MAX} at most)."
                )
            if not 1 <= size <= MEMBERS_MAX:
                raise UsageError(f"Group {name} needs 1 to {MEMBERS_MAX} members, not {size}.")
        return cls({name: [f"{name}.{i}" for i in range(1, size + 1)] for name, size in sizes.items()})

    @classmethod
    def of(cls, roster: Roster) -> Topology:
        return cls({str(group): members for group, members in roster.groups.items()}, roster.epoch, roster.joined)

    @property
    def roster(self) -> Roster:
        return Roster(self.epoch, self.groups, self.joined)

    def replacing(self, process: ProcessId) -> tuple[Topology, ProcessId]:
        """The next topology, in which somebody new has the place of a process; and who that is.

        A name is never used twice: the numbers of a group's members only grow.
        """
        group = self.group_of[process]
        newcomer = ProcessId(f"{group}.{max(int(p.rpartition('.')[2]) for p in self.groups[group]) + 1}")
        epoch = self.epoch + 1
        groups = {str(g): [newcomer if p == process else p for p in members] for g, members in self.groups.items()}
        joined = {p: e for p, e in self.joined.items() if p != process}
        return Topology(groups, epoch, {**joined, newcomer: epoch}), newcomer

    def since(self, group: GroupId) -> int:
        """The epoch as of which the group has the members that it has."""
        return self._since[group]

    def gone_since(self, before: Topology) -> tuple[ProcessId, ...]:
        """Those who were replaced since an earlier one."""
        return tuple(p for p in before.processes if p not in self.group_of)

    def is_stranger(self, process: ProcessId) -> bool:
        """Whether it is called like a member and is none: it was replaced, or it takes another's place in a topology
        that is yet to come. Nothing is taken from it; clients and outside senders are called otherwise."""
        return process not in self.group_of and process.rpartition(".")[0] in self.groups

    def members(self, group: GroupId) -> tuple[ProcessId, ...]:
        return self.groups[group]

    def members_with(self, process: ProcessId) -> tuple[ProcessId, ...]:
        """Those of the group of a process, and itself among them; nobody, if it is in none."""
        return self._members_with.get(process, ())

    def addressees(self, destinations: tuple[GroupId, ...]) -> tuple[ProcessId, ...]:
        """Every member of the destination groups, in the order of the groups."""
        found = self._addressees.get(destinations)
        if found is None:
            found = tuple(p for group in destinations for p in self.groups[group])
            if len(self._addressees) == SETS_MAX:
                self._addressees.clear()
            self._addressees[destinations] = found
        return found

    def destinations(self, names: Iterable[str]) -> tuple[GroupId, ...]:
        """Check a user's destination set and put it into the one order that every process uses."""
        try:
            if type(names) is tuple and self.is_destination_set(names):
                return names
            wanted = {names} if isinstance(names, str) else set(names)
        except TypeError:  # not a collection, or not of names
            raise UsageError(_NO_NAMES) from None
        if not wanted:
            raise UsageError("A multicast needs at least one destination group.")
        if not all(isinstance(name, str) for name in wanted):
            raise UsageError(_NO_NAMES)
        unknown = [repr(_shortened(name)) for name in sorted(wanted - self.groups.keys())]
        if unknown:
            named = f"is no group {unknown[0]}" if len(unknown) == 1 else f"are no groups {_some(unknown, 3)}"
            raise UsageError(f"There {named}; the groups are {_some(list(self.groups), 20)}.")
        return tuple(group for group in self.groups if group in wanted)

    def is_destination_set(self, groups: tuple[GroupId, ...]) -> bool:
        """Whether groups from the network are what ``destinations`` gives: known, some, each once, in their order."""
        if groups not in self._destination_sets:
            found = set(groups)
            if not groups or groups != tuple(group for group in self.groups if group in found):
                return False
            if len(self._destination_sets) == SETS_MAX:
                self._destination_sets.clear()
            self._destination_sets.add(groups)
        return True


def _shortened(name: str) -> str:
    return name if len(name) <= NAME_MAX else f"{name[:NAME_MAX]}..."


def _some(names: list[str], most: int) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


@lru_cache(maxsize=1 << 12)
def without(one: ProcessId, processes: tuple[ProcessId, ...]) -> tuple[ProcessId, ...]:
    """All but one."""
    return tuple([p for p in processes if p != one])


def parse_groups(text: str) -> dict[str, int]:
    """``3x4`` is three groups of four, named g1, g2, g3; ``orders=3,billing=5`` names them."""
    shape = re.fullmatch(r"(\d{1,4})x(\d{1,4})", text)
    if shape:
        count, size = int(shape[1]), int(shape[2])
        return {f"g{i}": size for i in range(1, count + 1)}
    groups: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size_text = part.strip().partition("=")
        if not equals or not re.fullmatch(r"\d{1,4}", size_text) or name in groups:
            raise UsageError(f"{text!r} does not name groups: write 3x3, or orders=3,billing=3 with each name once.")
        groups[name] = int(size_text)
    return groups
