"""What a process is, beside its wiring: its snapshot."""

from __future__ import annotations

import msgspec

from antiphon.core.assurances import Assurances
from antiphon.core.buffers import Buffers
from antiphon.core.channel import ChannelId, FrameInbox
from antiphon.core.gather import Gathering
from antiphon.core.model import ProcessId, Roster
from antiphon.core.sessions import Sessions

SNAPSHOT_VERSION = 8

TimerId = tuple[int, bytes]  # the part, and the timer's value


class Life(msgspec.Struct, array_like=True, frozen=True):
    """What lies between two returns of a process."""

    multicasts: int  # the number of the last message that it remembers
    ended: int  # when it took the last input that it remembers


class ProcessState(msgspec.Struct, array_like=True):
    """Everything a process is, beside its wiring. A snapshot is this, encoded."""

    version: int = SNAPSHOT_VERSION
    now: int = 0
    seq: int = 0  # of the newest traced event
    multicasts: int = 0  # the number of the last message that this process has multicast
    own_payloads: int = 0  # that it has multicast on its own behalf
    position: int = 0  # of the next delivery
    timers: dict[TimerId, int] = {}
    monitored: dict[int, tuple[ProcessId, ...]] = {}  # by part
    suspects: list[ProcessId] = []
    turn: dict[int, None] = {}  # the parts that want to hear of the turn's end
    sent: dict[ChannelId, int] = {}  # the newest number on each channel
    inboxes: dict[ChannelId, FrameInbox] = {}
    foretold: dict[ChannelId, dict[int, Buffers]] = {}  # frames that are to come, by number
    lives: list[Life] = []  # before this one
    sessions: Sessions = msgspec.field(default_factory=Sessions)
    gathering: Gathering = msgspec.field(default_factory=Gathering)
    assurances: Assurances = msgspec.field(default_factory=Assurances)
    roster: Roster | None = None  # the topology, where it is not the one that the process was made with
    parts: list[bytes] = []
