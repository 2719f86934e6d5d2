"""What precedes what: the causal past of every message, exact and through chains of any length."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.checks.graph import components
from antiphon.checks.history import RunHistory
from antiphon.trace import EventKind

Chain = list[str]

_MULTICAST = str(EventKind.MULTICAST)


class Clocks:
    """Vector clocks, each packed into one integer: a merge costs a few operations, however many senders there are.

    A clock has one field per sender; it holds how much of that sender's chain is in the past. One number suffices:
    who has seen a message of a sender has, through it, all that stands before it in the chain.
    The top bit of each field is a guard, 0 in every clock; it takes the borrow when two clocks are subtracted.
    """

    BITS = 32
    FIELD_MAX = (1 << (BITS - 1)) - 1

    def __init__(self, senders: Iterable[str]) -> None:
        self.shift = {sender: self.BITS * i for i, sender in enumerate(senders)}
        self.guards = sum(1 << (shift + self.BITS - 1) for shift in self.shift.values())
        self.senders = list(self.shift)

    def merge(self, a: int, b: int) -> int:
        """The larger of a and b, field by field."""
        not_less = ((a | self.guards) - b) & self.guards  # the guard stands where a's field is at least b's
        choose = not_less - (not_less >> (self.BITS - 1))  # and there, this is all ones below the guard
        return b ^ ((a ^ b) & choose)

    def above(self, a: int, limit: int) -> str | None:
        """A sender whose field in a is larger than in the limit, if there is any. A limit has its guards set."""
        within = (limit - a) & self.guards
        if within == self.guards:
            return None
        return self.senders[(self.guards ^ within).bit_length() // self.BITS - 1]


class Past:
    """What every message's sender had multicast or delivered before it.

    ``chains``, by sender: the messages it multicast, in order. ``place``: of a message, its sender and how long the
    chain was with it.
    """

    def __init__(self, history: RunHistory) -> None:
        self.history = history
        self.chains: dict[str, Chain] = history.sent
        self.place = {m: (sender, i + 1) for sender, chain in self.chains.items() for i, m in enumerate(chain)}
        self._direct: dict[str, list[str]] = {}  # the sender's previous message comes last
        for process in self.chains:
            self._note_causes(process)
        self.clocks = Clocks(self.chains)

    def _note_causes(self, process: str) -> None:
        multicasts, direct = self.history.multicasts, self._direct
        seen: list[str] = []
        previous: str | None = None
        for row in self.history.acts[process]:
            message = row[4] or ""
            multicast = multicasts.get(message)
            if multicast is None:
                continue  # it is invented: integrity's business
            if row[3] != _MULTICAST:
                if message not in direct or multicast.sender != process:
                    seen.append(message)
            elif multicast.row is row:
                if previous is not None:
                    seen.append(previous)
                direct[message] = seen
                seen, previous = [], message

    def close(self) -> dict[str, int]:
        """By message: the clock of its past, itself included.

        Times of different processes prove nothing, but they usually give an order in which every message comes after
        its past. Where they do not, the order is computed; a past that is its own future (a forgery) is one component.
        """
        multicasts = self.history.multicasts
        by_time = sorted(self._direct, key=lambda message: multicasts[message].row[2])
        closed = self._close([message] for message in by_time)
        return closed if closed is not None else self._close(components(self._direct)) or {}

    def _close(self, ordered: Iterable[list[str]]) -> dict[str, int] | None:
        """Clocks along an order of components that come after their past each; None if it is no such order."""
        place, shifts, merge = self.place, self.clocks.shift, self.clocks.merge
        field = Clocks.FIELD_MAX
        closed: dict[str, int] = {}
        for component in ordered:
            clock = 0
            for message in component:
                for cause in reversed(self._direct[message]):
                    sender, reach = place[cause]
                    if clock >> shifts[sender] & field >= reach:
                        continue  # with a later message of that sender, all of this came in
                    known = closed.get(cause)
                    if known is not None:
                        clock = merge(clock, known)
                    elif len(component) == 1 and cause != message:
                        return None
            for message in component:
                sender, reach = place[message]
                clock = merge(clock, reach << shifts[sender])
            closed.update(dict.fromkeys(component, clock))
        return closed
