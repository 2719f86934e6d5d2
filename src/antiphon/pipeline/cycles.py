"""Whether processes that deliver messages in orders of their own agree on one, and if not, a shortest cycle.

Messages and processes are numbers here. A cycle is told as (message, process that delivers it before the next).
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Cycle = list[tuple[int, int]]
NOWHERE = 2**62  # the place of what a process does not deliver: after everything
CELLS_MAX = 20_000_000  # numbers held to look for the shortest cycle of all


def merge(orders: list[list[int]], counts: list[int]) -> dict[int, int]:
    """Take messages while possible; the result has, for each process left over, how many it took.

    A message may be taken when it is the head of every sequence that has it. If each head waits for another sequence
    whose own head comes first there, walking from head to head returns to where it was: a cycle. If nothing gets stuck,
    the merged order contains the relation, which is acyclic.
    """
    heads = [0] * len(orders)
    waiting: dict[int, list[int]] = {}
    todo = [p for p, order in enumerate(orders) if order]
    while todo:
        p = todo.pop()
        message = orders[p][heads[p]]
        there = waiting.setdefault(message, [])
        there.append(p)
        if len(there) == counts[message]:
            del waiting[message]
            for q in there:
                heads[q] += 1
                if heads[q] < len(orders[q]):
                    todo.append(q)
    return {p: taken for p, taken in enumerate(heads) if taken < len(orders[p])}


def shortest_cycle(orders: list[list[int]], stuck: dict[int, int]) -> Cycle:
    """A shortest cycle among what is left. What was taken is in none: something in a cycle always waits.

    Where too much is left to look at all of it, a shortest one among the heads: no more of them than processes.
    """
    left = {p: np.asarray(orders[p][taken:], dtype=np.int64) for p, taken in stuck.items()}
    if len(left) ** 2 * max(len(order) for order in left.values()) <= CELLS_MAX:
        return _shortest(left)
    return _among_heads(orders, stuck)


# ---- among everything that is left


def _shortest(left: dict[int, Ints]) -> Cycle:
    """From every message at once, step by step: the first places of what comes after it at each process, of what comes
    after that, and so on, until some message is after itself. Of what is reached, only the first places count: all that
    is behind them is reached too."""
    who, orders = list(left), list(left.values())
    names, flat = np.unique(np.concatenate(orders), return_inverse=True)
    ends = np.cumsum([0, *map(len, orders)])
    numbered = [flat[a:b] for a, b in pairwise(ends.tolist())]
    place = np.full((len(orders), len(names)), NOWHERE, dtype=np.int64)
    for p, order in enumerate(numbered):
        place[p, order] = np.arange(len(order))
    # The first place at q of what p delivers from its i-th message on.
    first = [[_from_the_end(place[q, order]) for q in range(len(orders))] for order in numbered]
    reached = [place]
    there = place < NOWHERE
    while not (there & (reached[-1] < place)).any():
        reached.append(_step(reached[-1], first))
    q, start = (int(n) for n in np.argwhere(there & (reached[-1] < place))[0])
    found: Cycle = []
    for before in reversed(reached):
        at = int(before[q, start])
        message = int(numbered[q][at])
        found.append((int(names[message]), who[q]))
        if before is not place:
            earlier = reached[len(reached) - 1 - len(found)]
            q = next(p for p in range(len(orders)) if _leads(first[p], earlier[p, start], q, at))
    return found[::-1]


def _from_the_end(places: Ints) -> Ints:
    smallest = np.minimum.accumulate(places[::-1])[::-1]
    return np.append(smallest, NOWHERE)


def _step(reached: Ints, first: list[list[Ints]]) -> Ints:
    following = np.full_like(reached, NOWHERE)
    for p, to in enumerate(first):
        behind = np.minimum(reached[p] + 1, len(to[0]) - 1)
        for q, places in enumerate(to):
            np.minimum(following[q], places[behind], out=following[q])
    return following


def _leads(first: list[Ints], since: np.int64, q: int, at: int) -> bool:
    return bool(since < NOWHERE and first[q][min(int(since) + 1, len(first[q]) - 1)] == at)


# ---- among the heads


def _among_heads(orders: list[list[int]], stuck: dict[int, int]) -> Cycle:
    waits = _waits(orders, stuck)
    best: Cycle = []
    for start in sorted(waits):
        came: dict[int, tuple[int, int]] = {}
        queue = deque([start])
        while queue and start not in came:
            later = queue.popleft()
            for earlier, process in sorted(waits[later].items()):
                if earlier not in came:
                    came[earlier] = (later, process)
                    queue.append(earlier)
        if start not in came:
            continue
        cycle: Cycle = []
        message = start
        while not cycle or message != start:
            later, process = came[message]
            cycle.append((message, process))
            message = later
        if not best or len(cycle) < len(best):
            best = cycle
    return best


def _waits(orders: list[list[int]], stuck: dict[int, int]) -> dict[int, dict[int, int]]:
    """For each head, the heads that some process (the value) delivers before it."""
    heads = {p: orders[p][taken] for p, taken in stuck.items()}
    waits: dict[int, dict[int, int]] = {head: {} for head in heads.values()}
    for q, taken in stuck.items():
        for later in waits.keys() & set(orders[q][taken + 1 :]):
            waits[later].setdefault(heads[q], q)
    return waits
