"""What can go wrong where readers see a delivery before its input is durable.

BY_HAND are primcast's, with schedules in tests/papers/test_shown.py; SLIPS are the host's, found by runs on slow disks
(`mutants.foretold.runs_from`) or, where the protocol is another one, by the suite's.
"""

from __future__ import annotations

from typing import Any

from antiphon.core import GroupId, Message
from antiphon.core.effects import Log
from antiphon.core.host import Host
from antiphon.core.process import Process
from antiphon.protocols.primcast import Primcast
from mutants.host import Slip


class ShowsWithItsOwnVote(Primcast):
    """Which came with the same input, and is not durable."""

    def deliver_lowest(self, *, early: bool = False) -> None:
        super().deliver_lowest(early=True)


class ShowsWithItsOwnClock(Primcast):
    """Which another group's timestamp has raised just now."""

    def learn(self, group: GroupId, *, early: bool = True) -> None:
        super().learn(group, early=True)


BY_HAND = (ShowsWithItsOwnVote, ShowsWithItsOwnClock)

_deliver, _release_early = Process.deliver, Host.release_early


def _shows_all(self: Process, m: Message, key: Any = None, *, early: bool = False) -> None:
    _deliver(self, m, key, early=True)


def _shows_though_more_waits(self: Host) -> bool:
    """Also what rests on inputs before its own that are not durable."""
    left = _release_early(self)
    for turn in [] if self.journal is None else list(self._held)[1:]:
        for effect in turn.effects:
            if type(effect) is Log and effect.early and not turn.is_begun:
                self.outside.on_event_early(effect.event)
        turn.is_begun = turn.is_begun or any(type(e) is Log and e.early for e in turn.effects)
    return left


SHOWS_ALL = Slip(Process, "deliver", _shows_all)
SHOWS_THOUGH_MORE_WAITS = Slip(Host, "release_early", _shows_though_more_waits)
SLIPS = (SHOWS_ALL, SHOWS_THOUGH_MORE_WAITS)
