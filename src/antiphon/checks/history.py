"""One run, arranged once for all checks: who multicast what, who delivered what in which order, who is addressed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from operator import eq, itemgetter
from typing import NamedTuple

from antiphon.checks import adoption
from antiphon.trace import EventKind, RequestCell, Row, RunFacts

Destinations = frozenset[str]

# What a deliver row says of the process's log: message, destinations, requests, order key, position.
_LOGGED: Callable[[Row], object] = itemgetter(4, 5, 6, 12, 13)

_MULTICAST = str(EventKind.MULTICAST)
_DELIVER = str(EventKind.DELIVER)
_RECEIPT = str(EventKind.RECEIPT)
_GAP = str(EventKind.GAP)
_VIEW = str(EventKind.VIEW)
_ENTER = str(EventKind.ENTER)
_ADOPT = str(EventKind.ADOPT)
_TRAFFIC = {str(EventKind.SEND), str(EventKind.RECEIVE)}


# What the row of a frame says to the checks: process, kind (send or receive), peers, about, layer, bytes.
FrameRow = tuple[str, str, tuple[str, ...] | None, tuple[str, ...] | None, str | None, int | None]
_FRAME: Callable[[Row], FrameRow] = itemgetter(0, 3, 7, 8, 9, 10)


class MulticastRow(NamedTuple):
    """A message as its multicast row tells it: who sent it, and to whom."""

    sender: str
    row: Row
    groups: Destinations
    addressed: frozenset[str]


class SessionKey(NamedTuple):
    """What one client sends to one set of groups."""

    client: str
    groups: Destinations


# The message that it was delivered with, what it is, and the seq of the delivery.
DeliveredRequest = tuple[str | None, RequestCell, int]


class RunHistory:
    """What the checks ask of a run. Rows must be free of duplicates; across processes they may come in any order.
    Frames may come as such (``traffic``, which is the history's from then on) instead of as rows.

    Where a process delivers a message or a request twice (which breaks integrity), its first delivery is the one that
    counts for every other property; so a duplicate breaks one promise, and not every one that speaks of order.

    Of a process whose rows are not all here only the multicasts are looked at, and nothing is expected of it: then
    nothing that is missing can make a violation, except where a check takes care of that itself (``whole``).

    The log of a process that takes another's place begins with what its donor delivered: these rows are among its own,
    as if it had done that before all else.
    """

    def __init__(self, facts: RunFacts, rows: Sequence[Row], traffic: list[FrameRow] | None = None) -> None:
        self.facts = facts
        self.groups: dict[str, list[str]] = facts.groups
        self.whole = not facts.incomplete
        self.incomplete = frozenset(facts.incomplete)
        if not self.whole:
            rows = self._trusted(rows)
            self.incomplete |= adoption.incomplete_too(self.incomplete, adoption.donors(adoption.beginnings(rows)))
        self.faulty = frozenset(facts.faulty) | self.incomplete
        self.traffic = [] if traffic is None else traffic
        self.receipts: list[Row] = []
        self.gaps: dict[str, list[Row]] = {}  # by process, in order: where messages may be missing
        self.views: dict[str, list[Row]] = {}  # by process, in order
        self.entered: dict[str, list[Row]] = {}  # by process, in order: what entered its graph
        self.adopted: dict[str, list[Row]] = {}  # by process, in order: behind whose deliveries it goes on
        self.begun: dict[str, Row] = {}  # by process: the one of these that counts
        self.multicasts: dict[str, MulticastRow] = {}
        self.acts: dict[str, list[Row]] = {}  # by process: its multicast and deliver rows, in order
        self.requests: dict[Destinations, set[RequestCell]] = {}  # that some process multicast, by set of groups
        self._said: dict[str, list[Row]] = {}  # by process: its multicast rows
        self._own_clients: set[str] = set()  # the processes that multicast requests of their own
        self._sets: dict[tuple[str, ...] | None, tuple[Destinations, frozenset[str]]] = {}
        self._sessions: dict[str, dict[SessionKey, list[DeliveredRequest]]] = {}
        self._sort_out(rows if self.whole else self._trusted(rows))

    def _trusted(self, rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if row.kind == _MULTICAST or row.process not in self.incomplete]

    def _sort_out(self, rows: Sequence[Row]) -> None:
        """The one pass over all rows. Most are traffic, or, where that comes apart from them, deliveries."""
        keep = self.traffic.append
        rare = {_GAP: self.gaps, _VIEW: self.views, _ENTER: self.entered, _ADOPT: self.adopted}
        for row in rows:
            kind = row[3]
            if kind == _DELIVER or kind == _MULTICAST:  # noqa: PLR1714, SIM109 - a tuple to search is slower
                acts = self.acts.get(row[0])
                if acts is None:
                    acts = self.acts[row[0]] = []
                acts.append(row)
                if kind == _MULTICAST:
                    self._said.setdefault(row[0], []).append(row)
            elif kind in _TRAFFIC:
                keep(_FRAME(row))
            elif kind == _RECEIPT:
                self.receipts.append(row)
            elif kind in rare:
                rare[kind].setdefault(row[0], []).append(row)
        by_seq = itemgetter(1)
        for some in chain.from_iterable(of_kind.values() for of_kind in rare.values()):
            some.sort(key=by_seq)
        for acts in self.acts.values():
            acts.sort(key=by_seq)  # linear where the rows came in order, as they nearly always do
        for process in sorted(self._said):
            for row in sorted(self._said[process], key=by_seq):
                self._note_multicast(row)
        if self.adopted:
            self._take_over()

    def _take_over(self) -> None:
        """Put what donors delivered before what their newcomers did."""
        self.begun = adoption.beginnings(row for p in self.adopted for row in self._log(p))
        for newcomer, donor in adoption.donors_first(adoption.donors(self.begun)):
            first = min(rows[0][1] for rows in (self._log(newcomer), self.acts.get(newcomer)) if rows)
            taken = adoption.taken_over(newcomer, first, self.begun[newcomer][4] or "", self._log(donor))
            for kind, of in ((_DELIVER, self.acts), (_GAP, self.gaps), (_VIEW, self.views)):
                some = [row for row in taken if row[3] == kind]
                if some:
                    of[newcomer] = [*some, *of.get(newcomer, ())]

    def _log(self, process: str) -> list[Row]:
        acts = [row for row in self.acts.get(process, ()) if row[3] == _DELIVER]
        return adoption.by_seq(acts, *(of.get(process, []) for of in (self.gaps, self.views, self.adopted)))

    def _note_multicast(self, row: Row) -> None:
        """The first row of a message counts: an honest trace has no other. Its requests count in any case."""
        process, message, requests = row[0], row[4], row[6] or ()
        groups, addressed = self.resolve(row[5])
        known = self.requests.get(groups)
        if known is None:
            known = self.requests[groups] = set()
        for cell in requests:
            known.add(cell)
            if cell[0] == process:
                self._own_clients.add(process)
        if message is not None and message not in self.multicasts:
            self.multicasts[message] = MulticastRow(process, row, groups, addressed)

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
        said = self._said  # who said nothing, as most members of large groups, did nothing but deliver
        return {p: [row for row in acts if row[3] == _DELIVER] if p in said else acts for p, acts in self.acts.items()}

    @cached_property
    def speakers(self) -> dict[str, str]:
        """By process: one that stands for it in what is asked of each process's log by itself.

        Members of a group whose logs are the same, position by position, and free of gaps, views and adoptions: what
        can be said of one can be said of all. One of them speaks; each other process speaks for itself.
        """
        homes: dict[str, tuple[str, ...]] = {}
        for group, members in self.groups.items():
            for process in members:
                homes[process] = (*homes.get(process, ()), group)
        found: dict[str, str] = {}
        logs: dict[tuple[str, ...], list[tuple[str, list[object]]]] = {}  # by group: who speaks, and of what
        for process, rows in self.deliveries.items():
            found[process] = process
            if process not in homes or any(process in of for of in (self.gaps, self.views, self.adopted)):
                continue
            others = logs.setdefault(homes[process], [])
            for other, its in others:
                if len(its) == len(rows) and all(map(eq, its, map(_LOGGED, rows))):
                    found[process] = other
                    break
            else:
                others.append((process, list(map(_LOGGED, rows))))
        return found

    @cached_property
    def voices(self) -> dict[str, list[Row]]:
        """The deliveries of those who speak."""
        return {p: rows for p, rows in self.deliveries.items() if self.speakers[p] == p}

    @cached_property
    def delivered(self) -> dict[str, dict[str, None]]:
        """By process: the messages it delivered, each once, in the order of their first deliveries."""
        spoken = {p: dict.fromkeys([row[4] for row in rows if row[4] is not None]) for p, rows in self.voices.items()}
        return {process: spoken[speaker] for process, speaker in self.speakers.items()}

    @cached_property
    def sequences(self) -> dict[str, list[str]]:
        """By process: the messages it delivered, in order."""
        spoken = {process: list(self.delivered[process]) for process in self.voices}
        return {process: spoken[speaker] for process, speaker in self.speakers.items()}

    @cached_property
    def causal(self) -> frozenset[str]:
        """The messages whose sender asked for causal delivery: they have no place in a total order."""
        return frozenset([message for message, multicast in self.multicasts.items() if multicast.row[9] == "causal"])

    @cached_property
    def agreed(self) -> dict[str, list[str]]:
        """By process: the messages it delivered, in order, without those."""
        return {p: self.without_causal(sequence) for p, sequence in self.sequences.items()}

    def without_causal(self, messages: list[str]) -> list[str]:
        causal = self.causal
        return [message for message in messages if message not in causal] if causal else messages

    @cached_property
    def witnesses(self) -> dict[str, list[str]]:
        """The sequences that are no prefix of another one of the same group.

        A prefix shows no order that the longer sequence does not show, so these prove all that can be proved.
        """
        return self._no_prefixes(self.sequences)

    @cached_property
    def agreed_witnesses(self) -> dict[str, list[str]]:
        """The same of what has a place in a total order."""
        return self._no_prefixes(self.agreed) if self.causal else self.witnesses

    def _no_prefixes(self, all_sequences: dict[str, list[str]]) -> dict[str, list[str]]:
        sequences = {process: sequence for process, sequence in all_sequences.items() if sequence}
        homes = Counter(p for members in self.groups.values() for p in members)
        for members in self.groups.values():
            # Groups are disjoint; should a trace say otherwise, a member of two speaks for itself.
            own = [p for p in members if p in sequences and homes[p] == 1]
            longest = longest_of(all_sequences, own)
            for process in own:
                if longest and process != longest and is_prefix(sequences[process], sequences[longest]):
                    del sequences[process]
        return sequences

    @cached_property
    def sent(self) -> dict[str, list[str]]:
        """By sender: the messages that it multicast, in order."""
        found: dict[str, list[str]] = {}
        for message, multicast in self.multicasts.items():  # by process and seq, as the multicasts were noted
            found.setdefault(multicast.sender, []).append(message)
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

    @cached_property
    def processes_as_clients(self) -> frozenset[str]:
        """The processes that multicast on their own behalf: they number requests, not payloads, over all sets."""
        return self.incomplete | self._own_clients  # whose rows are missing may be one of them

    def sessions_of(self, process: str) -> dict[SessionKey, list[DeliveredRequest]]:
        """The requests that a process delivered of each session, in order."""
        found = self._sessions.get(process)
        if found is None:
            found = self._sessions[process] = self._sort_sessions(self.deliveries[process])
        return found

    def _sort_sessions(self, rows: list[Row]) -> dict[SessionKey, list[DeliveredRequest]]:
        found: dict[SessionKey, list[DeliveredRequest]] = {}
        known: dict[tuple[str, tuple[str, ...] | None], list[DeliveredRequest]] = {}  # the same, as the rows name them
        for row in rows:
            for cell in row[6] or ():
                named = (cell[0], row[5])
                session = known.get(named)
                if session is None:
                    key = SessionKey(cell[0], self.resolve(row[5])[0])
                    session = known[named] = found.setdefault(key, [])
                session.append((row[4], cell, row[1]))
        return found

    def each_session(self, processes: Iterable[str]) -> Iterator[tuple[str, SessionKey, list[DeliveredRequest]]]:
        for process in processes:
            for session, delivered in self.sessions_of(process).items():
                yield process, session, delivered

    def correct(self, processes: Iterable[str]) -> list[str]:
        return [p for p in processes if p not in self.faulty]


def longest_of(sequences: dict[str, list[str]], members: Iterable[str]) -> str | None:
    """The member that delivered most, the first of equals."""
    return max((p for p in members if p in sequences), key=lambda p: len(sequences[p]), default=None)


def is_prefix(short: list[str], long: list[str]) -> bool:
    return short == long[: len(short)]


def groups_text(groups: Iterable[str]) -> str:
    return " and ".join(sorted(groups)) or "no group"


def request_text(cell: RequestCell, groups: Iterable[str]) -> str:
    """A request in a sentence: by its client and its numbers."""
    numbers = f"{cell.first}" if cell.payloads == 1 else f"{cell.first} to {cell.first + cell.payloads - 1}"
    return f"request {numbers} of {cell.client} to {groups_text(groups)}"
