"""What a soak is told, and what comes of it."""

from __future__ import annotations

import msgspec

DELIVERY_SECONDS_MAX = 10.0  # within which deliveries are on after the last fault of an episode


class SoakSettings(msgspec.Struct, frozen=True, kw_only=True):
    protocol: str
    options: dict[str, str] = {}
    groups: dict[str, int]
    seed: int = 1
    minutes: float = 1.0
    clients: int = 3
    pause_seconds: float = 0.05  # of a client's sender between two multicasts, on average


class Finding(msgspec.Struct, frozen=True):
    """Something that must not be. It can be looked for again: the seed gives the same episodes."""

    # receipts, trace, late, stuck, wedged client, memory, no start, ghost, traceback, reader, not drained, down,
    # crowd
    kind: str
    sentence: str
    seed: int
    episode: int | None = None  # None: found at the end


class EpisodeReport(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    faults: list[str]
    skipped: list[str]
    delivery_seconds: float | None  # from the last fault to a delivery in each group; None: never
    clients_seconds: float | None  # until each client had a receipt on each route; None: never


class Memory(msgspec.Struct, frozen=True):
    """Resident MiB of one process: when it was large in the first third of the time, in the last, and at most ever."""

    early: float | None  # None: the time was too short to tell
    late: float | None
    peak: float

    @property
    def growth(self) -> float | None:
        """None: there was nothing to compare."""
        return None if self.early is None or self.late is None else self.late - self.early


class SoakReport(msgspec.Struct, kw_only=True):
    """What came of a soak; its JSON."""

    holds: bool = True  # nothing was found
    came_to_its_end: bool = False  # otherwise the cluster stopped delivering, and nothing more could be judged
    settings: SoakSettings
    seconds: float = 0.0
    episodes: list[EpisodeReport] = []
    faults: dict[str, int] = {}  # how many of each kind struck
    unfelt: dict[str, int] = {}  # how many of each kind came to nothing: they struck what was down, or silent
    skipped: list[str] = []  # why some kinds could not
    receipts: int = 0  # payloads that clients were told are safe
    unknown: int = 0  # payloads without a receipt
    delivered: dict[str, int] = {}  # payloads by group
    verdicts: dict[str, str] = {}  # Spark's, by promise
    memory: dict[str, Memory] = {}  # by process
    findings: list[Finding] = []

    def add(self, kind: str, sentence: str, episode: int | None = None) -> None:
        self.holds = False
        self.findings.append(Finding(kind, sentence, self.settings.seed, episode))


def judge_delivery(seconds: float | None, patience: float) -> tuple[str, str] | None:
    """What is wrong with deliveries that were on so long after the last fault (None: not within ``patience``)."""
    if seconds is None:
        return "stuck", f"Nothing was delivered for {patience:.0f} s after the last fault."
    if seconds > DELIVERY_SECONDS_MAX:
        return "late", f"Deliveries were on only {seconds:.1f} s after the last fault."
    return None
