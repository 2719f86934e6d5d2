"""Why a log serves no call any more.

After a failed write or sync nobody knows what is on disk, and a repeat may succeed wrongly: so a failure is final.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from antiphon.core.errors import JournalError, JournalFull, UsageError


class Refusal:
    """Of one log, whatever thread it fails on."""

    def __init__(self, folder: Path) -> None:
        self.sentence: str | None = None  # None: it serves
        self._folder = folder

    def check(self) -> None:
        if self.sentence is not None:
            raise JournalError(self.sentence)

    @contextmanager
    def final_failure(self) -> Iterator[None]:
        """Around what changes the files, unless that failed before."""
        self.check()
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Serve nothing after this, unless nothing has been done. JournalError: why, in place of an OSError."""
        if isinstance(error, (JournalFull, UsageError)):
            return
        self.sentence = f"Journal {self._folder} stopped after a failed write or sync: {error}."
        if isinstance(error, OSError):
            raise JournalError(self.sentence) from error

    def close(self) -> None:
        """It was closed; where it had failed before, that stays the reason."""
        self.sentence = self.sentence or f"Journal {self._folder} is closed."
