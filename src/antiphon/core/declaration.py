"""What a protocol assumes and what it promises, as data that checks, docs and commands read."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from antiphon.core.promises import Promise


class Failures(StrEnum):
    """How processes fail. In every model they may also pause, be slow, or lose contact for a while."""

    CRASH_RECOVERY = "crash-recovery"  # every crashed process returns, with its journal
    MINORITY = "minority"  # a minority of each group, and any sender, may crash for good; the others may return
    ALL_BUT_ONE = "all but one"  # all but one of each group, and any sender, may crash for good; the others may return


class Detector(StrEnum):
    NONE = "none"
    EVENTUALLY_STRONG = "eventually strong"
    PERFECT = "perfect"  # suspects those who never return, all of them in the end, and nobody else ever
    TIMEOUT = (
        "by timeout"  # suspects whom it cannot hear, sooner or later, and others at times, but nobody wrongly for ever
    )


class Watched(StrEnum):
    """About whom processes ask their failure detector."""

    NOBODY = "nobody"
    MEMBERS = "the members of the groups that agree on something"
    SENDERS = "the senders of messages"


class FaultModel(msgspec.Struct, frozen=True):
    """What crashes can do in a run, beyond making processes slow."""

    permanent: bool  # some processes never return
    sent_survives: bool  # what a process has sent arrives even though it then crashes


class Assumptions(msgspec.Struct, frozen=True, kw_only=True):
    failures: Failures
    detector: Detector = Detector.NONE
    one_group: bool = False  # whether a message may address one group only
    all_groups: bool = False  # whether a message must address all groups
    sent_survives: bool = False  # whether what a process has sent must arrive even though it then crashes


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """``promises`` hold under every option; a protocol's method of that name adds its options' and the host's."""

    name: str
    title: str
    source: str
    assumes: Assumptions
    promises: tuple[Promise, ...]
