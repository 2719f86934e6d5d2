"""One run, arranged once for all checks: who multicast what, who delivered what in which order, who is addressed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import itemgetter

from antiphon.trace import Kind, Row, RunFacts

Destinations = frozenset[str]

_MULTICAST = str(Kind.MULTICAST)
_DELIVER = str(Kind.DELIVER)
_TRAFFIC = {str(Kind.SEND), str(Kind.RECEIVE)}


class Multicast:
    """A message as its multicast rows tell it: who sent it, and to whom."""

    __slots__ = ("addressed", "destinations", "groups", "rows")

    def __init__(self, row: Row, destinations: Destinations, addressed: frozenset[str]) -> None:
        self.rows = [row]
        self.destinations = {destinations}  # more than one only where a retry addressed others: a forgery
        self.groups = destinations
        self.addressed = addressed

    @property
    def senders(self) -> list[str]:
        return sorted({row.process for row in self.rows})

    @property
    def sender(self) -> str | None:
        """The one sender, or None where a client's retry went through several members."""
        rows = self.rows
        if len(rows) == 1:
            return rows[0].process
        senders = self.senders
        return senders[0] if len(senders) == 1 else None


class History:
    """What the checks ask of a run. Rows must be free of duplicates; across processes they may come in any order.

    Where a process delivers a message twice (which breaks integrity), its first delivery is the one that counts
    for every other property; so a duplicate breaks one promise, and not every one that speaks of order.
    """

    def __init__(self, facts: RunFacts, rows: Sequence[Row]) -> None:
        self.facts = facts
        self.groups: dict[str, list[str]] = facts.groups
        self.faulty = frozenset(facts.faulty)
        self.traffic: list[Row] = []
        self.multicasts: dict[str, Multicast] = {}
        self.acts: dict[str, list[Row]] = {}  # by process: its multicast and deliver rows, in order
        self._sets: dict[tuple[str, ...] | None, tuple[Destinations, frozenset[str]]] = {}
        self._sort_out(rows)

    def _sort_out(self, rows: Sequence[Row]) -> None:
        """The one pass over all rows. Most are traffic, so that these take the short way."""
        keep = self.traffic.append
        for row in rows:
            kind = row[3]
            if kind in _TRAFFIC:
                keep(row)
            elif kind == _DELIVER or kind == _MULTICAST:  # noqa: PLR1714, SIM109 - a tuple to search is slower
                acts = self.acts.get(row[0])
                if acts is None:
                    acts = self.acts[row[0]] = []
                acts.append(row)
        by_seq = itemgetter(1)
        for process in sorted(self.acts):
            acts = self.acts[process]
            acts.sort(key=by_seq)  # linear where the rows came in order, as they nearly always do
            for row in acts:
                if row[3] == _MULTICAST:
                    self._note_multicast(row)

    def _note_multicast(self, row: Row) -> None:
        message = row.message
        if message is None:
            return
        destinations, addressed = self.resolve(row.destinations)
        known = self.multicasts.get(message)
        if known is None:
            self.multicasts[message] = Multicast(row, destinations, addressed)
            return
        known.rows.append(row)
        known.destinations.add(destinations)
        known.groups |= destinations
        known.addressed |= addressed

    def resolve(self, destinations: tuple[str, ...] | None) -> tuple[Destinations, frozenset[str]]:
        """A row's destination groups as a set, and their members; each distinct set is built once."""
        found = self._sets.get(destinations)
        if found is None:
            groups = frozenset(destinations or ())
            found = groups, frozenset(p for group in groups for p in self.groups.get(group, ()))
            self._sets[destinations] = found
        return found

    @cached_property
    def deliveries(self) -> dict[str, list[Row]]:
        """By process: every deliver row, in order, duplicates of integrity's kind included."""
        return {process: [row for row in acts if row[3] == _DELIVER] for process, acts in self.acts.items()}

    @cached_property
    def delivered(self) -> dict[str, dict[str, None]]:
        """By process: the messages it delivered, each once, in the order of their first deliveries."""
        return {
            process: dict.fromkeys([row[4] for row in rows if row[4] is not None])
            for process, rows in self.deliveries.items()
        }

    @cached_property
    def sequences(self) -> dict[str, list[str]]:
        """By process: the messages it delivered, in order."""
        return {process: list(positions) for process, positions in self.delivered.items()}

    @cached_property
    def witnesses(self) -> dict[str, list[str]]:
        """The sequences that are no prefix of another one of the same group.

        A prefix shows no order that the longer sequence does not show, so these prove all that can be proved.
        """
        sequences = {process: sequence for process, sequence in self.sequences.items() if sequence}
        homes = Counter(p for members in self.groups.values() for p in members)
        for members in self.groups.values():
            # Groups are disjoint; should a trace say otherwise, a member of two speaks for itself.
            own = [p for p in members if p in sequences and homes[p] == 1]
            longest = self.longest(own)
            for process in own:
                if longest and process != longest and is_prefix(sequences[process], sequences[longest]):
                    del sequences[process]
        return sequences

    def longest(self, members: Iterable[str]) -> str | None:
        """The member that delivered most, the first of equals."""
        sequences = self.sequences
        return max((p for p in members if p in sequences), key=lambda p: len(sequences[p]), default=None)

    @cached_property
    def sender_of(self) -> dict[str, str]:
        """The sender of each message that has one; a client's retry through another member has none."""
        return {
            message: sender
            for message, multicast in self.multicasts.items()
            if (sender := multicast.sender) is not None
        }

    @cached_property
    def sent(self) -> dict[str, list[str]]:
        """By sender: the messages that it alone multicast, in order, each where it did so first."""
        found: dict[str, list[str]] = {}
        for message, sender in self.sender_of.items():  # by process and seq, as the multicasts were noted
            found.setdefault(sender, []).append(message)
        return found

    @cached_property
    def messages_to(self) -> dict[str, list[str]]:
        """By group: the messages that address it."""
        found: dict[str, list[str]] = {group: [] for group in self.groups}
        for message, multicast in self.multicasts.items():
            for group in multicast.groups:
                if group in found:
                    found[group].append(message)
        return found

    def correct(self, processes: Iterable[str]) -> list[str]:
        return [p for p in processes if p not in self.faulty]


def is_prefix(short: list[str], long: list[str]) -> bool:
    return short == long[: len(short)]
