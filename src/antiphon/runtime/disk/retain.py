"""How much of a delivered log is kept, and for how long: what `antiphon up --retain` says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from antiphon.core.errors import UsageError

EVERYTHING = "all"
_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_UNITS |= {"b": 1, "tib": 1 << 40}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_LIMIT = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)\s*([a-zA-Z]+)")
_SEGMENTS = 8  # a limit in bytes is at least so many segments, where that is possible
_SEGMENT_BYTES_MIN = 64 << 10


class Retain(NamedTuple):
    """Where there are two limits, what is beyond either of them is let go."""

    bytes: int | None = None
    seconds: float | None = None

    @classmethod
    def parse(cls, words: Iterable[str]) -> Retain:
        """Of 10GB, 7d, or both, each given apart or all in one with commas; ``all`` is no limit."""
        text = ",".join(words)
        if text.strip().lower() == EVERYTHING:
            return cls()
        size: int | None = None
        seconds: float | None = None
        for limit in text.split(","):
            found = _LIMIT.fullmatch(limit.strip())
            number, unit = (float(found[1]), found[2]) if found else (0.0, "")
            if unit.lower() in _UNITS and size is None:
                size = int(number * _UNITS[unit.lower()])
            elif unit in _SECONDS and seconds is None:
                seconds = number * _SECONDS[unit]
            elif unit.lower() in _UNITS or unit in _SECONDS:
                raise UsageError(f"{text!r} has two limits of one kind: give one size and one age at most.")
            elif unit.lower() in _SECONDS:  # who means 5 MB must not lose all that is older than 5 minutes
                said = limit.strip()
                raise UsageError(f"{said!r} could be a size or an age; write {said.lower()} for an age, B for a size.")
            elif limit.strip().lower() == EVERYTHING:
                raise UsageError(f"{EVERYTHING!r} stands alone: beside it there is no limit.")
            else:
                raise UsageError(
                    f"{limit.strip()!r} does not say what to retain: give a size such as 10GB, an age such as 7d, both "
                    f"as 10GB,7d, or {EVERYTHING}."
                )
        if size == 0 or seconds == 0:
            raise UsageError(f"{text!r} would keep nothing: the newest is always kept, so give a size or an age.")
        return cls(size, seconds)

    def __str__(self) -> str:
        """As a sentence goes on behind "keeps"."""
        size = None if self.bytes is None else f"up to {self.bytes:,} bytes"
        age = None if self.seconds is None else f"what is younger than {_in_words(self.seconds)}"
        return " of ".join(filter(None, (size, age))) or "everything"

    @property
    def is_limited(self) -> bool:
        return self.bytes is not None or self.seconds is not None

    def is_beyond(self, size: int, age_seconds: float) -> bool:
        """Whether the oldest part of a log that has so many bytes may go; all in it has at least this age."""
        too_large = self.bytes is not None and size > self.bytes
        return too_large or (self.seconds is not None and age_seconds > self.seconds)

    def segment_bytes(self, usual: int) -> int:
        """Of a log whose whole segments are let go: so small that a limit is met closely."""
        return usual if self.bytes is None else min(usual, max(self.bytes // _SEGMENTS, _SEGMENT_BYTES_MIN))


def _in_words(seconds: float) -> str:
    for name, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= length and seconds % length == 0:
            count = int(seconds // length)
            return f"{count:,} {name}{'' if count == 1 else 's'}"
    return f"{seconds:g} seconds"
