"""What a check says when a property does not hold, and what is said of each property in the end."""

from __future__ import annotations

from enum import StrEnum

import msgspec

VIOLATIONS_MAX = 10  # per property and run: more would prove nothing more


class Violation(msgspec.Struct, frozen=True):
    """A broken promise, with the few messages and processes that prove it."""

    property: str
    processes: tuple[str, ...]
    messages: tuple[str, ...]
    detail: str  # one sentence


class Status(StrEnum):
    """The verdict on one property of one run."""

    HOLDS = "holds"
    BROKEN = "broken"
    INCOMPLETE = "incomplete"  # not broken by what is here, but rows are missing
    UNCHECKED = "unchecked"  # promised, but no check knows it, or it needs what the run does not have
    NOT_PROMISED = "not promised"
