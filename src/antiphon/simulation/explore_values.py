"""What is searched, as a value that prints as code; the moves of a search, and what comes of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from antiphon.checks import Violation
from antiphon.core.declaration import FaultModel
from antiphon.simulation.values import Value


class Scope(Value, frozen=True, kw_only=True):
    """A small world, of which all states are wanted."""

    protocol: str
    options: dict[str, str] = {}  # noqa: RUF012 - a struct copies it
    groups: dict[str, int]
    plans: tuple[tuple[str, tuple[str, ...]], ...]  # sender and destinations; a sender makes its own in this order
    may_crash: tuple[str, ...] = ()  # for good, at any moment
    crashes: int = 0  # at most so many of them
    wrong_suspicions: int = 0  # at most so many
    restarts: bool = False  # whether processes may also stop and go on from a snapshot, at any moment
    sent_survives: bool = False  # whether what a process sent arrives though it then crashes
    fifo: bool = False  # whether a channel keeps the order of what is sent
    states_max: int = 1_000_000
    breadth: Literal["steps", "deviations"] = "steps"  # what is counted: see docs/exploration.md
    reduce: bool = True  # whether inert frames are taken out of flight at once

    @property
    def model(self) -> FaultModel:
        return FaultModel(bool(self.crashes), self.sent_survives)


class MoveKind(StrEnum):
    MULTICAST = "multicasts"  # the next of its planned ones
    FRAME = "receives"
    FIRE = "timer"
    SUSPECT = "suspects"  # a process that has crashed
    WRONG = "wrongly suspects"
    TRUST = "trusts"
    CRASH = "crashes"
    RESTART = "restarts"
    CUT = "crashes amid"  # after ``number`` of the sends and deliveries of the move ``during``


class Move(NamedTuple):
    """One thing that happens to one process. Processes are numbered as in the topology, then the other senders."""

    kind: MoveKind
    process: int
    peer: int = -1
    frame: bytes = b""
    number: int = 0
    timer: str = ""
    during: Move | None = None


class Exploration(msgspec.Struct, kw_only=True):
    """What a search found."""

    scope: Scope
    states: int  # distinct ones
    transitions: int
    depth: int  # the most moves behind a state
    deviations: int  # the most deviations behind a state; 0 where steps are counted
    complete: bool  # every state was visited, and the reduction is known to have hidden none
    terminal: int  # states in which nothing more has to happen
    seconds: float
    violations: list[Violation]
    path: list[Move]  # to the first violation
    story: list[str]  # the path in words
