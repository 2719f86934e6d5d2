"""The virtual network: when a frame arrives, if it does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from antiphon.core.channel import NUMBERED, ChannelId
from antiphon.core.model import ProcessId
from antiphon.simulation.values import Constant, Latency, Uniform

if TYPE_CHECKING:
    from antiphon.simulation.site import Site


class Link:
    """One direction between two processes."""

    __slots__ = (
        "channels",
        "cuts",
        "delay",
        "last_arrival",
        "last_datagram",
        "lost",
        "rng",
        "site",
        "source",
        "target",
    )

    def __init__(self, source: ProcessId, site: Site, latency: Latency, seed: int) -> None:
        self.source = source
        self.site = site  # of the target
        self.target = target = site.id
        self.channels = [ChannelId(source, transport) for transport in NUMBERED]  # as the target sees them
        # A stream of its own for each link, so that taking one message out of a schedule leaves the others alone.
        self.rng = random.Random(f"{seed}/{source}>{target}")
        self.delay = sampler(latency, self.rng)
        self.last_arrival = 0
        self.last_datagram = 0  # the latest arrival of one; they hold nobody up
        self.cuts: list[object] = []  # the partitions that keep it down
        self.lost: set[int] = set()  # the tickets of frames under way that were lost with their sender


def sampler(latency: Latency, rng: random.Random) -> Callable[[], int]:
    if isinstance(latency, Constant):
        fixed = latency.ns
        return lambda: fixed
    draw = rng.random
    if isinstance(latency, Uniform):
        low, span = latency.low_ns, latency.high_ns - latency.low_ns
        return lambda: low + int(span * draw())
    floor, rate = latency.floor_ns, 1 / latency.mean_ns
    return lambda: floor + int(rng.expovariate(rate))
