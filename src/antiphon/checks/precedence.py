"""FIFO and causal order: what the sender of a message had sent or seen before comes before it everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from antiphon.checks.clocks import Chain, Clocks, Past
from antiphon.checks.history import RunHistory
from antiphon.checks.violation import VIOLATIONS_MAX, Violation
from antiphon.core.promises import Promise

Late = tuple[str, str, str]  # a process that delivers the third, a message, without the second before it


def fifo(history: RunHistory) -> list[Violation]:
    return [_out_of_fifo(history, *late) for late in islice(_fifo(history), VIOLATIONS_MAX)]


def _fifo(history: RunHistory) -> Iterator[Late]:
    chains = history.sent
    place = {message: (sender, i + 1) for sender, chain in chains.items() for i, message in enumerate(chain)}
    queues = _Queues(history, chains)
    for process, sequence in history.witnesses.items():
        waiting = queues.of(process)
        delivered: set[str] = set()
        for later in sequence:
            delivered.add(later)
            sender, reach = place.get(later, ("", 0))
            queue = waiting.get(sender)
            # A message that this process is not addressed by asks nothing of it: it is integrity's business.
            if queue and queue.skip(delivered) < reach and process in history.multicasts[later].addressed:
                yield process, queue.message, later


def _out_of_fifo(history: RunHistory, process: str, earlier: str, later: str) -> Violation:
    sender = history.multicasts[later].sender
    detail = f"{sender} multicasts {earlier} and then {later}, but {_story(history, process, earlier, later)}."
    return Violation(Promise.FIFO.value, (sender, process), (earlier, later), detail)


def causal(history: RunHistory) -> list[Violation]:
    late = islice(_causal(history, _Queues(history, history.sent)), VIOLATIONS_MAX)
    return [_out_of_cause(history, Promise.CAUSAL, *each) for each in late]


def causal_extension(history: RunHistory) -> list[Violation]:
    """The same, of what a process delivers at all."""
    late = islice(_causal(history, _Queues(history, history.sent, delivered=True)), VIOLATIONS_MAX)
    return [_out_of_cause(history, Promise.CAUSAL_EXTENSION, *each) for each in late]


def _causal(history: RunHistory, queues: _Queues) -> Iterator[Late]:
    past = Past(history)
    closed, clocks, place = past.close(), past.clocks, past.place
    for process, sequence in history.witnesses.items():
        waiting = queues.of(process)
        # By sender: how much of its chain may be in a message's past without anything missing here.
        limit = clocks.guards + sum(
            (waiting[sender].ahead if sender in waiting else Clocks.FIELD_MAX) << shift
            for sender, shift in clocks.shift.items()
        )
        delivered: set[str] = set()
        for later in sequence:
            delivered.add(later)
            clock = closed.get(later)
            if clock is None or process not in history.multicasts[later].addressed:
                continue
            sender: str | None = place[later][0]  # this limit has just moved, most likely; then no other is in the way
            while sender is not None:
                queue = waiting[sender]
                before = queue.ahead
                limit += (queue.skip(delivered) - before) << clocks.shift[sender]
                stuck, sender = sender, clocks.above(clock, limit)
                if sender == stuck:
                    yield process, queue.message, later
                    break


def _out_of_cause(history: RunHistory, promise: Promise, process: str, earlier: str, later: str) -> Violation:
    detail = (
        f"{earlier} precedes {later}, which {history.multicasts[later].sender} multicasts, "
        f"but {_story(history, process, earlier, later)}."
    )
    return Violation(promise.value, (process,), (earlier, later), detail)


def _story(history: RunHistory, process: str, earlier: str, later: str) -> str:
    if earlier in history.delivered[process]:
        return f"{process} delivers {later} before {earlier}"
    return f"{process} delivers {later} and never {earlier}"


class _Queue:
    """What one chain holds for a process, and the first of it that the process has not delivered yet."""

    __slots__ = ("_rest", "ahead", "message")

    def __init__(self, entries: list[tuple[int, str]]) -> None:
        self._rest = iter(entries)
        self.ahead, self.message = next(self._rest)  # ahead: how many stand before it in the whole chain

    def skip(self, delivered: set[str]) -> int:
        """Move on to the first message that is not delivered; say how many stand before it in the chain."""
        while self.message in delivered:
            self.ahead, self.message = next(self._rest, (Clocks.FIELD_MAX, ""))
        return self.ahead


class _Queues:
    """The chains, as each group sees them: only the messages that address it.

    ``delivered``: as each process sees them that leaves some out, only what it delivers.
    """

    def __init__(self, history: RunHistory, chains: dict[str, Chain], *, delivered: bool = False) -> None:
        self._delivered = history.delivered if delivered else None
        self._homes: dict[str, list[str]] = {}
        for group, members in history.groups.items():
            for process in members:
                self._homes.setdefault(process, []).append(group)
        self._entries: dict[str, dict[str, list[tuple[int, str]]]] = {group: {} for group in history.groups}
        for sender, chain in chains.items():
            for ahead, message in enumerate(chain):
                for group in history.multicasts[message].groups:
                    if group in self._entries:
                        self._entries[group].setdefault(sender, []).append((ahead, message))

    def of(self, process: str) -> dict[str, _Queue]:
        """By sender: the queue of what addresses the process. Senders that never address it are left out."""
        merged: dict[str, list[tuple[int, str]]] = {}
        for group in self._homes.get(process, ()):
            for sender, entries in self._entries[group].items():
                merged[sender] = sorted({*merged[sender], *entries}) if sender in merged else entries
        if self._delivered is not None:
            kept = self._delivered[process]
            merged = {sender: [each for each in entries if each[1] in kept] for sender, entries in merged.items()}
        return {sender: _Queue(entries) for sender, entries in merged.items() if entries}
