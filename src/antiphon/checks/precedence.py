"""FIFO and causal order: what the sender of a message had sent or seen before comes before it everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from antiphon.checks.graph import components
from antiphon.checks.history import History
from antiphon.checks.violation import VIOLATIONS_MAX, Violation
from antiphon.trace import Kind

Chain = list[str]
# For some chains, by sender: the position in the chain up to which all is in a message's past.
# A past has no holes: who has seen a sender's message has, through it, all that stands before it in the chain.
Clock = dict[str, int]

_MULTICAST = str(Kind.MULTICAST)
_NEVER = 1 << 62


def fifo(history: History) -> list[Violation]:
    sender_of = history.sender_of
    chains: dict[str, Chain] = {}
    clocks: dict[str, Clock] = {}
    for process in dict.fromkeys(sender_of.values()):
        chain = chains[process] = []
        for row in history.acts[process]:
            message = row[4]
            if row[3] == _MULTICAST and message in sender_of and message not in clocks:
                clocks[message] = {process: len(chain)}
                chain.append(message)
    late = islice(_late(history, chains, clocks), VIOLATIONS_MAX)
    return [_out_of_fifo(history, *found) for found in late]


def _out_of_fifo(history: History, process: str, earlier: str, later: str) -> Violation:
    sender = history.sender_of[later]
    detail = f"{sender} multicasts {earlier} and then {later}, but {_story(history, process, earlier, later)}."
    return Violation("fifo", (sender, process), (earlier, later), detail)


def causal(history: History) -> list[Violation]:
    past = _Past(history)
    late = islice(_late(history, past.chains, past.clocks()), VIOLATIONS_MAX)
    return [_out_of_cause(history, *found) for found in late]


def _out_of_cause(history: History, process: str, earlier: str, later: str) -> Violation:
    detail = (
        f"{earlier} precedes {later}, which {history.sender_of[later]} multicasts, "
        f"but {_story(history, process, earlier, later)}."
    )
    return Violation("causal", (process,), (earlier, later), detail)


def _story(history: History, process: str, earlier: str, later: str) -> str:
    if earlier in history.delivered[process]:
        return f"{process} delivers {later} before {earlier}"
    return f"{process} delivers {later} and never {earlier}"


class _Past:
    """What every message's sender had multicast or delivered before it, directly.

    ``chains``, by sender: the messages it multicast, in order; among these, where it delivered them, messages that a
    client's retry gave several senders. Those belong to nobody's chain by sending; so they stand where they were seen.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.chains: dict[str, Chain] = {}
        self.place: dict[str, tuple[str, int]] = {}
        self.direct: dict[str, list[str]] = {}  # the sender's previous message comes last
        for process in dict.fromkeys(history.sender_of.values()):
            self.chains[process] = self._chain(process)

    def _chain(self, process: str) -> Chain:
        sender_of, multicasts, place = self.history.sender_of, self.history.multicasts, self.place
        chain: Chain = []
        seen: list[str] = []
        previous: str | None = None
        for row in self.history.acts[process]:
            message = row[4]
            if message not in multicasts:
                continue  # invented: integrity's business
            sender = sender_of.get(message)
            if row[3] != _MULTICAST:
                if sender is None:
                    chain.append(message)
                elif sender != process or message not in place:
                    seen.append(message)
            elif sender is not None and message not in place:
                place[message] = process, len(chain)
                chain.append(message)
                if previous is not None:
                    seen.append(previous)
                self.direct[message] = seen
                seen, previous = [], message
        return chain

    def clocks(self) -> dict[str, Clock]:
        """The whole past of every message, through chains of any length.

        Times of different processes prove nothing, but they usually give an order in which every message comes after
        its past. Where they do not, the order is computed; a past that is its own future (a forgery) is one component.
        """
        multicasts = self.history.multicasts
        by_time = sorted(self.direct, key=lambda message: min(row.time_ns for row in multicasts[message].rows))
        clocks = self._closed([[message] for message in by_time])
        return clocks if clocks is not None else self._closed(components(self.direct)) or {}

    def _closed(self, ordered: Iterable[list[str]]) -> dict[str, Clock] | None:
        """Clocks from an order of components that are each behind their past; None if it is not such an order."""
        place, clocks = self.place, dict[str, Clock]()
        for component in ordered:
            clock: Clock = {}
            for message in component:
                for cause in reversed(self.direct[message]):
                    known = clocks.get(cause)
                    if known is None:
                        if len(component) == 1 and cause != message:
                            return None
                        continue  # in the same component
                    sender, position = place[cause]
                    if clock.get(sender, -1) >= position:
                        continue  # with a later message of that sender, all of this came in
                    if clock:
                        for other, reach in known.items():
                            if clock.get(other, -1) < reach:
                                clock[other] = reach
                    else:
                        clock = known.copy()
            for message in component:
                sender, position = place[message]
                clock[sender] = max(position, clock.get(sender, -1))
                clocks[message] = clock
        return clocks


def _late(history: History, chains: dict[str, Chain], clocks: dict[str, Clock]) -> Iterator[tuple[str, str, str]]:
    """Each (process, earlier, later) where the process delivers ``later`` though ``earlier`` of its past is missing.

    At most one for each delivery. It suffices to look at the witnesses: a prefix misses nothing that the whole has.
    """
    multicasts = history.multicasts
    for process, sequence in history.witnesses.items():
        waiting = {sender: _Waiting(chain, process, history) for sender, chain in chains.items()}
        needed = {sender: queue.position for sender, queue in waiting.items()}
        delivered: set[str] = set()
        for later in sequence:
            delivered.add(later)
            if later not in clocks or process not in multicasts[later].addressed:
                continue
            for sender, reach in clocks[later].items():
                if needed[sender] <= reach:
                    queue = waiting[sender]
                    needed[sender] = queue.skip(delivered)
                    if needed[sender] <= reach:
                        yield process, queue.message, later
                        break


class _Waiting:
    """The messages of one chain that address a process, and the first of them that it has not delivered yet."""

    __slots__ = ("_rest", "message", "position")

    def __init__(self, chain: Chain, process: str, history: History) -> None:
        multicasts = history.multicasts
        self._rest = iter([(i, m) for i, m in enumerate(chain) if process in multicasts[m].addressed])
        self.position, self.message = next(self._rest, (_NEVER, ""))

    def skip(self, delivered: set[str]) -> int:
        """Move on to the first one that is not delivered; say where in the chain it stands."""
        while self.message in delivered:
            self.position, self.message = next(self._rest, (_NEVER, ""))
        return self.position
