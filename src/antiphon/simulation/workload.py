"""The application of a run: makes the planned multicasts and knows what is still to be delivered."""

from __future__ import annotations

import hashlib
from collections import deque

from antiphon.core.effects import Record
from antiphon.core.events import Delivered
from antiphon.core.model import MessageId, ProcessId
from antiphon.simulation.site import Site
from antiphon.simulation.values import MILLISECOND, Plan
from antiphon.simulation.world import World

SETTLE_NS = 5_000 * MILLISECOND  # how long the world goes on after the last delivery, to see what should not come


def payloads_of(plan: Plan, index: int) -> tuple[bytes, ...]:
    """The bytes of a planned multicast: no two alike, so that a swap or a flipped bit shows."""
    return tuple(
        (hashlib.blake2b(f"{plan.sender}/{index}/{k}".encode()).digest() * (plan.size // 64 + 1))[: plan.size]
        for k in range(plan.payloads)
    )


class Application:
    def __init__(self, world: World) -> None:
        self.world = world
        self.scenario = world.scenario
        self.queues: dict[str, deque[Plan]] = {}
        for plan in world.scenario.plans:
            self.queues.setdefault(plan.sender, deque()).append(plan)
        self.asked: dict[str, int] = {}  # multicasts that a sender was told to make
        self.made: dict[str, int] = {}  # and those that left it
        self.unasked: set[MessageId] = set()  # those that raise a floor: no sender waits for them
        self.missing: dict[MessageId, set[ProcessId]] = {}  # who has yet to deliver a message
        # Who never returns; and who is told to do something that may be to go away.
        leaving = [tell for tell in world.scenario.commands if not tell.command.startswith("advance")]
        self.gone: set[ProcessId] = {ProcessId(tell.process) for tell in leaving}
        world.on_multicast = self.on_multicast
        world.on_delivered = self.on_delivered
        world.on_restart = self.on_restart
        world.on_gone = self.on_gone
        for sender, queue in self.queues.items():
            if self.scenario.closed_loop:
                world.at(queue[0].at, self._next, sender)
            else:
                for plan in queue:
                    world.at(plan.at, self._next, sender)

    def _next(self, sender: str) -> None:
        """Make a sender's next multicast; if it is down, at its restart."""
        site = self.world.sites[ProcessId(sender)]
        self.asked[sender] = self.asked.get(sender, 0) + 1
        if site.up:
            self._make(site, self.asked[sender] - 1)

    def _make(self, site: Site, index: int) -> None:
        plan = self.queues[site.id][index]
        self.world.multicast(site, plan.destinations, payloads_of(plan, index), plan.service)

    def on_restart(self, site: Site) -> None:
        """What the journal did not keep was never multicast: the application asks again."""
        for index in range(self.made.get(site.id, 0), self.asked.get(site.id, 0)):
            self._make(site, index)

    def on_multicast(self, site: Site, record: Record) -> None:
        assert record.message is not None
        assert record.destinations is not None
        if record.message in self.world.observations.forgotten:
            return  # it has heard again of what it made, and was asked for once more
        if record.requests:
            self.made[site.id] = self.made.get(site.id, 0) + 1
        else:
            self.unasked.add(record.message)
        topology = self.world.topology
        awaited = set(topology.addressees(record.destinations)).difference(topology.joined, self.gone)
        self.missing.setdefault(record.message, awaited)

    def on_delivered(self, site: Site, event: Delivered) -> None:
        missing = self.missing.get(event.id)
        if missing is not None:
            missing.discard(site.id)
            if not missing:
                self._done(event.id)

    def on_gone(self, site: Site) -> None:
        """A process that never returns is not waited for, and makes no more multicasts."""
        self.queues.pop(site.id, None)
        self.gone.add(site.id)
        for id, missing in list(self.missing.items()):
            missing.discard(site.id)
            if not missing:
                self._done(id)

    def _done(self, id: MessageId) -> None:
        """Everybody has delivered it who will."""
        del self.missing[id]
        self.world.observations.forget(id)
        sender = id.origin
        queue = self.queues.get(sender, ())
        if self.scenario.closed_loop and id not in self.unasked and self.asked[sender] < len(queue):
            self.world.at(queue[self.asked[sender]].at, self._next, sender)
        elif not self.missing and all(self.made.get(s, 0) == len(q) for s, q in self.queues.items()):
            self.world.end_ns = min(self.world.end_ns, self.world.now + SETTLE_NS)
