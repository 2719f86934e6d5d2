"""A process and what surrounds it."""

from __future__ import annotations

from collections import deque

from antiphon.core.effects import AnyEffect
from antiphon.core.inputs import AnyInput
from antiphon.core.model import ProcessId
from antiphon.core.process import Process
from antiphon.simulation.disk import Disk
from antiphon.simulation.links import Link

Steps = dict[str, int]  # for a message in flight: the longest chain of frames since its multicast


class Site:
    """A process and what surrounds it: its disk, its links, and whether it is up."""

    def __init__(self, process: Process, disk: Disk | None) -> None:
        self.id = process.me
        self.process = process
        self.disk = disk
        self.up = True
        self.life = 0  # counts restarts: timers and syncs of an earlier life are void
        self.crashed_at = 0
        self.held: list[tuple[AnyInput, Steps]] | None = None  # inputs that came during a pause
        self.pause: object = None
        self.delay_ns = 0
        self.slowness: object = None
        self.last_release = 0
        self.waiting: deque[tuple[list[AnyEffect], Steps]] = deque()  # effects whose inputs are not durable yet
        self.doom: tuple[int, object] | None = None  # crash after so many effects of the next release
        self.links: dict[ProcessId, Link] = {}
        self.monitored: tuple[ProcessId, ...] = ()
        self.known_down: set[ProcessId] = set()  # crashed, and the failure detector has noticed
        self.wronged: dict[ProcessId, object] = {}  # suspected for no reason, and the fault that makes it so
        self.steps: Steps = {}
        self.released_seq = 0  # effects up to this one left the process, in this life or an earlier one
        self.released: dict[ProcessId, int] = {}  # the newest frame that left, by peer
        self.durable: dict[ProcessId, int] = {}  # the newest frame held durably, by peer
