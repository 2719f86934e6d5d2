"""A failure detector of class ◇S for the virtual world.

Whoever has crashed is suspected sooner or later by everybody who asks; wrong suspicions are faults, and end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.inputs import Suspect, Trust
from antiphon.core.model import ProcessId
from antiphon.simulation.site import Site
from antiphon.simulation.values import MILLISECOND

if TYPE_CHECKING:
    from antiphon.simulation.world import World

DETECTION_NS = (5 * MILLISECOND, 30 * MILLISECOND)  # how long it takes to notice a crash


class FailureDetector:
    def __init__(self, world: World) -> None:
        self._world = world

    def tell(self, site: Site) -> None:
        """Tell a process what its failure detector thinks now, where that is not what it thought before."""
        if not site.up or site.held is not None:
            return
        world, suspected = self._world, site.process.state.suspects
        for other in site.monitored:
            fault = site.wronged.get(other)
            is_suspect = fault is not None or other in site.known_down
            if is_suspect and other not in suspected:
                world.effective(fault)
                world.take(site, Suspect(world.now, other))
            elif not is_suspect and other in suspected:
                world.take(site, Trust(world.now, other))

    def crashed(self, site: Site) -> None:
        world = self._world
        world.at(world.now + world.rng.randrange(*DETECTION_NS), self._notice, site, site.life)

    def _notice(self, crashed: Site, life: int) -> None:
        """Completeness: some time after a crash, everybody who asks is told."""
        if not crashed.up and crashed.life == life:
            for site in self._world.sites.values():
                site.known_down.add(crashed.id)
                self.tell(site)

    def returned(self, returned: Site) -> None:
        returned.monitored = returned.process.monitored()
        for site in self._world.sites.values():
            site.known_down.discard(returned.id)
            self.tell(site)

    def wrong(self, site: Site, other: ProcessId, fault: object, *, suspected: bool) -> None:
        """From now on, or no longer, a process is suspected for no reason."""
        if suspected:
            site.wronged[other] = fault
        elif site.wronged.get(other) is fault:
            del site.wronged[other]
        self.tell(site)
