"""A failure detector of class ◇S for the virtual world, and no better than that; or a perfect one, or a mere timeout.

Whoever has crashed is suspected sooner or later by everybody who asks, by each at a time of its own. Wrong suspicions
are faults. Some of them never end, but there is a member of each group whom in the end nobody suspects.

A perfect one suspects only those who never return. What they sent may still be under way.

A timeout makes a process suspect whom it cannot talk with: who is down, or cut off from it in either direction. Some
time after they can talk again it trusts them. Each process notices at a time of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from antiphon.core.declaration import Detector
from antiphon.core.inputs import AnyInput, Suspect, Trust
from antiphon.core.model import ProcessId
from antiphon.simulation.site import Arguments, Site
from antiphon.simulation.values import MILLISECOND, Scenario

DETECTION_NS = (5 * MILLISECOND, 30 * MILLISECOND)  # how long it takes one process to notice a crash
LATE_DETECTION_NS = (30 * MILLISECOND, 400 * MILLISECOND)
LATE = 0.2  # how likely it takes one process so long
RETURN_NS = (0, 10 * MILLISECOND)  # how long it takes one process to notice that somebody is back


class Observed(Protocol):
    """What a failure detector needs of the world that it is in."""

    now: int
    scenario: Scenario
    sites: dict[ProcessId, Site]

    def at(self, time: int, action: Callable[[*Arguments], None], *arguments: *Arguments) -> None: ...
    def take(self, site: Site, happened: AnyInput) -> None: ...
    def effective(self, fault: object) -> None: ...


class FailureDetector:
    def __init__(self, world: Observed, kind: Detector) -> None:
        self._world = world
        self._perfect = kind is Detector.PERFECT
        self._timeout = kind is Detector.TIMEOUT

    def tell(self, site: Site) -> None:
        """Tell a process what its failure detector thinks now, where that is not what it thought before."""
        if not site.up or site.held is not None:
            return
        world, suspected = self._world, site.process.state.suspects
        for other in site.monitored:
            faults = site.wronged.get(other)
            is_suspect = bool(faults) or other in site.known_down
            if is_suspect and other not in suspected:
                for fault in faults or ():
                    world.effective(fault)
                world.take(site, Suspect(world.now, other))
            elif not is_suspect and other in suspected:
                world.take(site, Trust(world.now, other))

    def crashed(self, crashed: Site, rng: random.Random, *, for_good: bool) -> None:
        """Completeness: some time after a crash, everybody who asks is told."""
        if self._timeout:
            for site in self._world.sites.values():
                self._look_soon(site, crashed)
            return
        if self._perfect and not for_good:
            return
        for site in self._world.sites.values():
            if site is not crashed:
                after = rng.randrange(*(LATE_DETECTION_NS if rng.random() < LATE else DETECTION_NS))
                self._world.at(self._world.now + after, self._notice, site, crashed, crashed.life)

    def _notice(self, site: Site, crashed: Site, life: int) -> None:
        if not crashed.up and crashed.life == life:
            site.known_down.add(crashed.id)
            self.tell(site)

    def returned(self, returned: Site, rng: random.Random) -> None:
        returned.monitored = returned.process.monitored()
        self.tell(returned)
        if self._timeout:
            for site in self._world.sites.values():
                self._look_soon(site, returned)
                self._look_soon(returned, site)
            return
        for site in self._world.sites.values():
            if returned.id in site.known_down:
                due = self._world.now + rng.randrange(*RETURN_NS)
                self._world.at(due, self._notice_return, site, returned, returned.life)

    def joined(self, newcomer: Site, rng: random.Random) -> None:
        """Who is down is suspected sooner or later by those who come later, too."""
        self.tell(newcomer)
        for site in self._world.sites.values():
            if not site.up and site is not newcomer:
                self._world.at(self._world.now + rng.randrange(*DETECTION_NS), self._notice, newcomer, site, site.life)

    def _notice_return(self, site: Site, returned: Site, life: int) -> None:
        if returned.life == life:  # else it is down again, or was
            site.known_down.discard(returned.id)
            self.tell(site)

    def contact_changed(self, one: Site, other: Site) -> None:
        """A link between two processes went down or is up again."""
        if self._timeout:
            self._look_soon(one, other)
            self._look_soon(other, one)

    def _look_soon(self, site: Site, other: Site) -> None:
        """Whatever one look misses has a look of its own, which comes later."""
        world = self._world
        if site is not other:
            rng = random.Random(f"{world.scenario.seed}/{site.id} looks at {other.id}/{world.now}")
            span = (
                RETURN_NS if self._can_talk(site, other) else LATE_DETECTION_NS if rng.random() < LATE else DETECTION_NS
            )
            world.at(world.now + rng.randrange(*span), self._look, site, other)

    def _look(self, site: Site, other: Site) -> None:
        if self._can_talk(site, other):
            site.known_down.discard(other.id)
        else:
            site.known_down.add(other.id)
        self.tell(site)

    @staticmethod
    def _can_talk(site: Site, other: Site) -> bool:
        return other.up and not (site.links[other.id].cuts or other.links[site.id].cuts)

    def wrong(self, site: Site, other: ProcessId, fault: object, *, suspected: bool) -> None:
        """From now on, or no longer, a process is suspected for no reason."""
        faults = site.wronged.setdefault(other, [])
        if suspected:
            faults.append(fault)
        else:
            faults.remove(fault)
        self.tell(site)
