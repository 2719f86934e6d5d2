"""What a check says when a property does not hold."""

from __future__ import annotations

import msgspec

VIOLATIONS_MAX = 10  # per property and run: more would prove nothing more


class Violation(msgspec.Struct, frozen=True):
    """A broken promise, with the few messages and processes that prove it."""

    property: str
    processes: tuple[str, ...]
    messages: tuple[str, ...]
    detail: str  # one sentence
