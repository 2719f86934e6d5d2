"""Total order within each group, and one order without cycles over all groups together."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from itertools import islice, pairwise

from antiphon.checks.graph import components
from antiphon.checks.history import RunHistory, is_prefix, longest_of
from antiphon.checks.violation import VIOLATIONS_MAX, Violation
from antiphon.core.promises import Promise

# How much work may go into making a proof short, in positions looked at. The cycle found is the shortest one unless
# a component is so large that this does not suffice to start from each of its messages.
SEARCH_STEPS_MAX = 2_000_000


def total_order(history: RunHistory) -> list[Violation]:
    """All are prefixes of one another exactly when all are prefixes of the longest."""
    found: list[Violation] = []
    for group, members in history.groups.items():
        longest = longest_of(history.agreed, members)
        if longest is None:
            continue
        whole = history.agreed[longest]
        for process in members:
            sequence = history.agreed.get(process, [])
            if not is_prefix(sequence, whole):
                found.append(_fork(group, process, sequence, longest, whole))
    return found[:VIOLATIONS_MAX]


def _fork(group: str, process: str, sequence: list[str], longest: str, whole: list[str]) -> Violation:
    at = next(i for i, (mine, other) in enumerate(zip(sequence, whole, strict=False)) if mine != other)
    detail = f"Delivery {at + 1} in group {group} is {sequence[at]} at {process}, but {whole[at]} at {longest}."
    return Violation(Promise.TOTAL_ORDER.value, (process, longest), (sequence[at], whole[at]), detail)


def acyclic_order(history: RunHistory) -> list[Violation]:
    if _keys_prove_it(history):
        return []
    found = (cyclic(history, Promise.ACYCLIC_ORDER, c) for c in components(followers(history)) if len(c) > 1)
    return list(islice(found, VIOLATIONS_MAX))


def followers(history: RunHistory) -> dict[str, list[str]]:
    """By agreed message: what some process delivers next after it."""
    found: dict[str, list[str]] = {}
    for sequence in history.agreed_witnesses.values():
        for message in sequence:
            found.setdefault(message, [])
        for earlier, later in pairwise(sequence):
            found[earlier].append(later)
    return found


def _keys_prove_it(history: RunHistory) -> bool:
    """Whether each message has one key everywhere and each process delivers by growing keys: then no cycle is possible.

    Of agreed messages. Only the order that the keys show is used, never what they are: a protocol cannot talk itself
    out with them.
    """
    keys: dict[str | None, bytes] = {}
    causal = history.causal
    for process in history.agreed_witnesses:
        last = b""
        for row in history.deliveries[process]:
            key = row[12]
            if row[4] in causal:
                continue
            if key is None or key <= last or keys.setdefault(row[4], key) != key:
                return False
            last = key
    return True


Hops = list[tuple[str, str]]  # from message to message: each with the process that delivers the next one after it


class Lanes:
    """What each process delivers of some messages, and where."""

    def __init__(self, history: RunHistory, messages: Container[str]) -> None:
        self.lanes = {p: [m for m in sequence if m in messages] for p, sequence in history.agreed_witnesses.items()}
        self.places: dict[str, list[tuple[str, int]]] = {}
        for process, lane in self.lanes.items():
            for position, message in enumerate(lane):
                self.places.setdefault(message, []).append((process, position))

    def shortest_way(self, start: str, end: str) -> tuple[Hops, int]:
        """A shortest way from one message to another that comes after it, by breadth, and the work it took.

        One hop goes from a message to any later one of the same process, not only to the next: that keeps proofs short.
        Of each process's lane only the part before ``seen`` has not been looked at yet: each place is looked at once.
        """
        reached: dict[str, tuple[str, str]] = {}
        seen = {process: len(lane) for process, lane in self.lanes.items()}
        queue = deque([start])
        steps = 0
        while queue:
            message = queue.popleft()
            for process, position in self.places[message]:
                for later in self.lanes[process][position + 1 : seen[process]]:
                    steps += 1
                    if later == end:
                        return _walk_back(start, (message, process), reached), steps
                    if later not in reached:
                        reached[later] = (message, process)
                        queue.append(later)
                seen[process] = min(seen[process], position + 1)
        raise AssertionError(f"{end} comes after {start}, so there is a way")


def _shortest_cycle(history: RunHistory, component: set[str]) -> Hops:
    """The shortest cycle among messages that are known to be on cycles."""
    lanes = Lanes(history, component)
    best: Hops = []
    steps = 0
    for start in sorted(component):
        cycle, cost = lanes.shortest_way(start, start)
        steps += cost
        if not best or len(cycle) < len(best):
            best = cycle
        if len(best) == 2 or steps > SEARCH_STEPS_MAX:
            break
    return best


def _walk_back(start: str, last: tuple[str, str], reached: dict[str, tuple[str, str]]) -> Hops:
    hops = [last]
    while hops[-1][0] != start:
        hops.append(reached[hops[-1][0]])
    return hops[::-1]


def cyclic(history: RunHistory, promise: Promise, component: Iterable[str]) -> Violation:
    cycle = _shortest_cycle(history, set(component))
    messages = tuple(message for message, _ in cycle)
    processes = tuple(process for _, process in cycle)
    detail = f"The order has a cycle: {told(cycle, messages[0])}."
    return Violation(promise.value, processes, messages, detail)


def told(hops: Hops, end: str) -> str:
    following = [message for message, _ in hops[1:]] + [end]
    texts = [f"{earlier} before {later} at {p}" for (earlier, p), later in zip(hops, following, strict=True)]
    return " and ".join(text for text in (", ".join(texts[:-1]), texts[-1]) if text)
