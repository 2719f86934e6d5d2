"""The words of the search: frames under way, the steps of a member, what a state is, what is searched and found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from antiphon.core.channel import ChannelId, Transport
from antiphon.core.component import OrderingProtocol
from antiphon.core.inputs import Submit, Suspect
from antiphon.core.model import ProcessId

CLIENT = "client"  # and the number of its request: each has one
LAST = "last"  # a client of the end

SeenAt = tuple[int, str]  # a position, and the message that is there
UpTo = tuple[str, int]  # a client, and up to where its requests are delivered, or said to be safe
Wires = tuple[tuple["OnWire", ...], ...]  # from each member to each other, in their order


class OnWire(NamedTuple):
    """A frame on its way."""

    is_copy: bool  # it was foretold
    transport: Transport
    number: int
    frame: bytes


# What can happen to a member ----------------------------------------------------------------------------------------


class Arrives(NamedTuple):
    """From a peer."""

    sender: ProcessId
    what: OnWire


class ArriveTogether(NamedTuple):
    """One after the other, in one turn."""

    frames: tuple[Arrives, ...]


class Syncs(NamedTuple):
    """So many more inputs are durable, and it hears so."""

    inputs: int


class Crashes(NamedTuple):
    """What is not durable is forgotten, but for the first few inputs, of which it had not heard yet."""

    keeps: int


class Returns(NamedTuple):
    """From its journal."""


class Rings(NamedTuple):
    """All its timers do, in their order."""


Step = Arrives | ArriveTogether | Syncs | Crashes | Returns | Rings | Submit | Suspect


# States -------------------------------------------------------------------------------------------------------------


class MemberState(NamedTuple):
    """A member, as far as anybody can tell it from another."""

    number: int
    is_up: bool
    waiting: int  # inputs that are not durable
    turn: int  # so many of them are what it took first, with the end of that turn
    pending: int  # messages that it knows of and has not delivered
    held: tuple[tuple[ChannelId, int], ...]  # frames of each channel that it holds durably
    sent: tuple[tuple[ChannelId, tuple[bytes, ...]], ...]  # all that it ever let out on each
    shown: tuple[SeenAt, ...]  # to readers, whatever became of it
    log: tuple[SeenAt, ...]
    requests: tuple[UpTo, ...]  # that it has delivered: of each client, up to here
    promised: tuple[UpTo, ...]


class StepTaken(NamedTuple):
    """What came of a step."""

    after: int
    out: tuple[tuple[int, OnWire], ...]  # frames, each with the place of its receiver


class WholeState(NamedTuple):
    """A configuration: all members, and the frames on their way."""

    members: tuple[int, ...]  # the numbers of their states
    wires: Wires
    submitted: int  # requests that were made
    crashes: int
    suspicions: tuple[tuple[int, int], ...]


# The search ---------------------------------------------------------------------------------------------------------


class ForgettingScope(NamedTuple):
    """What a search may do."""

    protocol: type[OrderingProtocol]
    groups: Mapping[str, int]
    options: Mapping[str, str]
    requests: Sequence[tuple[str, tuple[str, ...]]]  # at which member each is handed in, and for which groups
    crashes: int = 1
    crashing: tuple[str, ...] = ()  # who may crash; anybody
    suspicions: bool = False  # whether those who crashed may be suspected before the end
    together: bool = False  # whether two frames may come in one turn


class SearchResult(NamedTuple):
    configurations: int
    steps: int
    is_complete: bool
    states: int  # of members
    violation: str | None
    path: tuple[str, ...] = ()


class Broken(Exception):
    """A promise, or an assertion."""
