"""The virtual network: when a frame arrives, if it does."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from antiphon.core.model import ProcessId
from antiphon.core.prompt import PromptHost
from antiphon.simulation.values import Constant, Exponential, Latency, Uniform


class Link:
    """One direction between two processes."""

    __slots__ = (
        "_latency",
        "_rng",
        "_seed",
        "cuts",
        "draw",
        "host",
        "last_arrival",
        "last_datagram",
        "least",
        "lost",
        "source",
        "span",
        "target",
    )

    def __init__(self, source: ProcessId, target: ProcessId, latency: Latency, seed: int) -> None:
        self.source = source
        self.target = target
        # Who takes at once what comes; None, if it may be lost or have to wait, or if that was ever so.
        self.host: PromptHost | None = None
        self.last_arrival = 0
        self.last_datagram = 0  # the latest arrival of one; they hold nobody up
        self.cuts: list[object] = []  # the partitions that keep it down
        self.lost: set[int] = set()  # the tickets of frames under way that were lost with their sender
        self._latency, self._seed = latency, seed
        self._rng: random.Random | None = None
        # A frame takes ``least``, and if there is a ``draw``, ``int(span * draw())`` on top: see ``sampler``.
        self.draw: Callable[[], float] | None = None if isinstance(latency, Constant) else self._first_draw
        self.least, self.span = bounds(latency)

    @property
    def rng(self) -> random.Random:
        """A stream of its own for each link, so that taking one message out of a schedule leaves the others alone.
        Most links of a large group are never used, and a stream takes long to make."""
        if self._rng is None:
            self._rng = random.Random(f"{self._seed}/{self.source}>{self.target}")
        return self._rng

    def _first_draw(self) -> float:
        assert not isinstance(self._latency, Constant), "then nothing is drawn"
        self.draw = draw = drawing(self._latency, self)
        return draw()

    def takes(self) -> int:
        """How long the next frame is under way."""
        return self.least + (0 if self.draw is None else int(self.span * self.draw()))


class Drawing(Protocol):
    @property
    def rng(self) -> random.Random: ...


def bounds(latency: Latency) -> tuple[int, int]:
    """What everything takes, and by what a draw is multiplied that comes on top."""
    if isinstance(latency, Constant):
        return latency.ns, 0
    return (latency.low_ns, latency.high_ns - latency.low_ns) if isinstance(latency, Uniform) else (latency.floor_ns, 1)


def drawing(latency: Uniform | Exponential, owner: Drawing) -> Callable[[], float]:
    if isinstance(latency, Uniform):
        return owner.rng.random
    rate, expovariate = 1 / latency.mean_ns, owner.rng.expovariate
    return lambda: expovariate(rate)


def sampler(latency: Latency, owner: Drawing) -> Callable[[], int]:
    least, span = bounds(latency)
    if isinstance(latency, Constant):
        return lambda: least
    draw = drawing(latency, owner)
    return lambda: least + int(span * draw())
