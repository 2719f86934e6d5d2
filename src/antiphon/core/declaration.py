"""What a protocol assumes and what it promises, as data that checks, docs and commands read."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Promise(StrEnum):
    """A property of every run that meets the assumptions. docs/trace.md defines each on a trace."""

    VALIDITY = "validity"
    INTEGRITY = "integrity"
    AGREEMENT = "agreement"
    UNIFORM_AGREEMENT = "uniform_agreement"
    FIFO = "fifo"
    CAUSAL = "causal"
    TOTAL_ORDER = "total_order"
    ACYCLIC_ORDER = "acyclic_order"
    GENUINENESS = "genuineness"
    LOCALITY = "locality"
    REAL_TIME_ORDER = "real_time_order"
    VIRTUAL_SYNCHRONY = "virtual_synchrony"


class Failures(StrEnum):
    """How processes fail. In every model they may also pause, be slow, or lose contact for a while."""

    CRASH_RECOVERY = "crash-recovery"  # every crashed process returns, with its journal
    MINORITY = "minority"  # a minority of each group, and any sender, may crash for good; the others may return


class Detector(StrEnum):
    NONE = "none"
    EVENTUALLY_STRONG = "eventually strong"


class Channels(StrEnum):
    RELIABLE = "reliable"  # what is sent between two correct processes arrives, once
    LOSSY = "lossy"  # frames may be lost, doubled and overtaken


class FaultModel(msgspec.Struct, frozen=True):
    """What crashes can do in a run, beyond making processes slow."""

    permanent: bool  # some processes never return
    sent_survives: bool  # what a process has sent arrives even though it then crashes


class Assumptions(msgspec.Struct, frozen=True, kw_only=True):
    failures: Failures
    channels: Channels = Channels.RELIABLE
    fifo: bool = False  # whether reliable channels must also keep the order of what is sent
    detector: Detector = Detector.NONE
    one_group: bool = False  # whether a message may address one group only
    all_groups: bool = False  # whether a message must address all groups
    sent_survives: bool = False  # whether what a process has sent must arrive even though it then crashes


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    source: str
    assumes: Assumptions
    promises: tuple[Promise, ...]
