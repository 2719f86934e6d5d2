"""Whether anything was multicast after the delivery of what comes after it: numpy, inside a Spark task.

Messages and processes are numbers here. If the order of deliveries has no cycle, a cycle with real time needs one pair
only: a message, and one that comes after it and was delivered before it was multicast. For in a cycle of several pairs,
take the delivery that was first of all: it was before each of the multicasts, also before that of the message which
comes before it. So it is enough to know of each message when it, or anything that comes after it, was first delivered.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Way = list[tuple[int, int]]  # message, process that delivers it before the next


def earliest(delivered_ns: Ints, orders: list[Ints]) -> Ints:
    """Of each message, the first delivery of it or of anything that comes after it.

    At one process that is the least of all that is not before it. What one process finds another goes on with, until
    nothing changes: in an honest run, whose deliveries are nearly in the order of time, soon.
    """
    found = delivered_ns.copy()
    changed = True
    while changed:
        changed = False
        for order in orders:
            least = np.minimum.accumulate(found[order][::-1])[::-1]
            if not np.array_equal(least, found[order]):
                found[order] = least
                changed = True
    return found


def too_late(multicast_ns: Ints, since: Ints, error: int) -> Ints:
    """The messages that were multicast after that, by more than the error, the first multicast first. Differences of
    the largest numbers need one bit more than these have."""
    later = multicast_ns > since
    distance = multicast_ns.astype(np.uint64) - since.astype(np.uint64)
    found = np.flatnonzero(later & (distance > np.uint64(error)))
    return found[np.argsort(multicast_ns[found], kind="stable")]


def shortest_way(start: int, delivered_ns: Ints, until: int, orders: list[Ints]) -> tuple[Way, int]:
    """From a message to one that comes after it and was delivered by then, over as few processes as can be."""
    places: dict[int, list[tuple[int, int]]] = {}
    for p, order in enumerate(orders):
        for at, message in enumerate(order.tolist()):
            places.setdefault(message, []).append((p, at))
    came: dict[int, tuple[int, int]] = {}
    seen = [len(order) for order in orders]
    queue, end = deque([start]), start if delivered_ns[start] <= until else -1
    while end < 0:
        message = queue.popleft()
        for p, at in places[message]:
            for later in orders[p][at + 1 : seen[p]].tolist():
                if later not in came:
                    came[later] = (message, p)
                    queue.append(later)
                    if delivered_ns[later] <= until:
                        end = later
            seen[p] = min(seen[p], at + 1)
    way: Way = []
    message = end
    while message != start:
        way.append(came[message])
        message = way[-1][0]
    return way[::-1], end
