"""The error tree: what the caller did wrong, what surely did not happen, what may have happened."""

from __future__ import annotations


class AntiphonError(Exception):
    """Root of every error that Antiphon raises on purpose. Its text is one clear sentence."""


class UsageError(AntiphonError):
    """The caller asked for something that makes no sense: nothing happened, and a repeat fails too."""


class PositionGone(UsageError):
    """A log no longer holds what is at a position: reading can go on from ``first``, the oldest that is kept."""

    def __init__(self, sentence: str, first: int) -> None:
        super().__init__(sentence)
        self.first = first


class Unavailable(AntiphonError):
    """The cluster could not do it now: it surely did not happen, and a repeat may succeed."""


class OutcomeUnknown(AntiphonError):
    """It may have happened or not: only a repeat with the same request number is safe."""


class BadFrame(AntiphonError):
    """Bytes from the network that are not a message of ours; nothing was changed by them."""


class JournalError(AntiphonError):
    """The journal cannot be trusted or written: the process must not run on it."""


class JournalCorrupt(JournalError):
    """Bytes before the journal's tail are damaged."""


class JournalBehind(JournalError):
    """A peer holds more from this process than its journal knows of: an old copy or a cut journal."""


class JournalFull(JournalError):
    """No space could be reserved: the input was refused and the journal is unharmed."""


class RecordsGone(JournalError):
    """A log no longer holds these records: they were let go."""


class TraceError(AntiphonError):
    """A folder that is not a trace of ours, or one of another version."""


class NotJudged(AntiphonError):
    """Spark could not do its work: nothing is said of what it was to look at."""


class DamagedInside(NotJudged):
    """A file of a trace turned out to be damaged when its rows were read: without it, the rest can be judged."""
