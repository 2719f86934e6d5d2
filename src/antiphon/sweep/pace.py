"""How long runs take, and so how many of them make a task of about a second."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.core.model import parse_groups
from antiphon.simulation.settings import RANDOM, Settings
from antiphon.sweep.spec import Point, Sweep

SECONDS_PER_CHUNK = 1.0
RUNS_PER_CHUNK_MAX = 1_000
FIRST_GUESS = 50e-6  # seconds for one message at one process; whatever it is, the first runs correct it
RANDOM_SIZE = 32 * 8

Chunk = tuple[int, int]  # the first and the last of some runs in a row


class Pace:
    """The mean time of each point's runs; of a point without any, by its size, what the others let one expect."""

    def __init__(self, points: Iterable[Point]) -> None:
        self._sizes = [_size(point) for point in points]
        self._runs = [0] * len(self._sizes)
        self._seconds = [0.0] * len(self._sizes)

    @property
    def seconds_seen(self) -> float:
        return sum(self._seconds)

    def saw(self, point: int, seconds: float) -> None:
        self._runs[point] += 1
        self._seconds[point] += seconds

    def expected(self) -> list[float]:
        """Seconds of one run, by point."""
        seen = sum(runs * size for runs, size in zip(self._runs, self._sizes, strict=True))
        rate = self.seconds_seen / seen if seen else FIRST_GUESS
        every = zip(self._runs, self._seconds, self._sizes, strict=True)
        return [seconds / runs if runs else size * rate for runs, seconds, size in every]


def _size(point: Point) -> int:
    """About how much there is to do in a run: its messages, times the processes."""
    if not isinstance(point, Settings):
        scenario = point.scenario(0)
        return max(1, len(scenario.plans)) * sum(scenario.groups.values())
    if point.faults == RANDOM:
        return RANDOM_SIZE
    return max(1, point.messages) * (sum(parse_groups(point.groups).values()) + point.clients)


def chunks(sweep: Sweep, first: int, pace: Pace, budget: float) -> list[Chunk]:
    """The runs from one on, until so many seconds are planned, cut into chunks of about a second."""
    expected, found = pace.expected(), []
    begin, seconds = first, 0.0
    for number in range(first, sweep.runs):
        seconds += expected[sweep.run(number)[0]]
        if seconds >= SECONDS_PER_CHUNK or number - begin + 1 == RUNS_PER_CHUNK_MAX or number == sweep.runs - 1:
            found.append((begin, number))
            budget -= seconds
            begin, seconds = number + 1, 0.0
            if budget <= 0:
                break
    return found
