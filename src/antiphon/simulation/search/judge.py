"""The promises, checked act by act and state by state. What was delivered can only grow: each order is seen once.

Here processes multicast themselves and no client takes part, so what the host promises to clients cannot show. Causal
order and views are judged by the checks that random runs have, of a trace made of what was multicast and delivered.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from itertools import pairwise, permutations

from antiphon.checks import Violation, check_run
from antiphon.core.effects import Send
from antiphon.core.events import Delivered
from antiphon.core.model import MessageId, ProcessId
from antiphon.core.promises import Promise
from antiphon.simulation.search.values import GAP, LocalState, Players
from antiphon.simulation.values import name_of
from antiphon.trace import EventKind, Row, RunFacts

Sequences = tuple[tuple[MessageId, ...], ...]  # by process: what it delivered, with gaps, views and marks
AS_RUNS = (Promise.CAUSAL, Promise.CAUSAL_EXTENSION, Promise.VIRTUAL_SYNCHRONY, Promise.VIEW_ORDER)


class Judge:
    def __init__(self, players: Players, promises: tuple[Promise, ...]) -> None:
        self.players = players
        self.promises = promises
        self.members = {g: [players.index[p] for p in members] for g, members in players.topology.groups.items()}
        self.addressed = {id: [players.index[p] for p in who] for id, who in players.addressees.items()}
        self.told = any(players.commands)
        self.as_runs = [promise.value for promise in AS_RUNS if promise in promises]
        self.with_views = Promise.VIRTUAL_SYNCHRONY in promises
        self._known: dict[Sequences, Violation | None] = {}

    # Acts of one process ----------------------------------------------------------------------------------------------

    def send(self, sender: ProcessId, send: Send, to: ProcessId) -> Violation | None:
        return self._genuineness(sender, send, to) or self._locality(sender, send, to)

    def _genuineness(self, sender: ProcessId, send: Send, to: ProcessId) -> Violation | None:
        if Promise.GENUINENESS not in self.promises:
            return None
        concerned = self.players.concerned
        if not send.about:
            if any(sender in circle and to in circle for circle in concerned.values()):
                return None
            detail = f"{sender} sends a frame about no message to {to}, but no message concerns both."
            return Violation(Promise.GENUINENESS.value, (sender, to), (), detail)
        for message in send.about:
            strangers = tuple(p for p in (sender, to) if p not in concerned.get(message, ()))
            if strangers:
                detail = f"{sender} sends a frame about {message} to {to}, but {strangers[0]} has no part in it."
                return Violation(Promise.GENUINENESS.value, strangers, (str(message),), detail)
        return None

    def _locality(self, sender: ProcessId, send: Send, to: ProcessId) -> Violation | None:
        if Promise.LOCALITY not in self.promises or send.layer.rpartition("/")[2] != "consensus":
            return None
        group_of = self.players.topology.group_of
        if sender in group_of and group_of[sender] == group_of.get(to):
            return None
        detail = f"{sender} sends a frame of {send.layer} to {to}, which is of another group."
        return Violation(Promise.LOCALITY.value, (sender, to), tuple(map(str, send.about)), detail)

    def event(self, process: ProcessId, before: tuple[MessageId, ...], event: Delivered) -> Violation | None:
        """A message that was multicast, once, to these groups, with these bytes."""
        message = event.id
        planned = self.players.messages.get(message)
        if message in before:
            detail = f"{process} delivers {message} again."
        elif planned is None or planned.destinations != event.destinations:
            detail = f"{process} delivers {message} to {', '.join(event.destinations)}, which nobody multicast."
        elif [(r.client, r.first, r.count, r.digest) for r in event.requests] != [planned.request]:
            detail = f"{process} delivers {message} with other payloads than it was multicast with."
        else:
            return None
        return Violation(Promise.INTEGRITY.value, (process,), (str(message),), detail)

    # What all have delivered ------------------------------------------------------------------------------------------

    def order(self, sequences: Sequences) -> Violation | None:
        """Prefixes within a group; each sender's order; no cycle over all groups; nothing missing without a gap."""
        if sequences not in self._known:
            whole = tuple([self._messages(sequence) for sequence in sequences])
            agreed = tuple([self._agreed(sequence) for sequence in whole]) if self.players.causal else whole
            order = self._total(agreed) or self._fifo(whole) or self._acyclic(agreed) or self._real_time(agreed)
            self._known[sequences] = order or self._gaps(sequences, whole) or self._as_run(sequences)
        return self._known[sequences]

    def _messages(self, sequence: tuple[MessageId, ...]) -> tuple[MessageId, ...]:
        """Without gaps, views and marks."""
        return tuple([message for message in sequence if message in self.players.messages])

    def _agreed(self, sequence: tuple[MessageId, ...]) -> tuple[MessageId, ...]:
        return tuple([message for message in sequence if message not in self.players.causal])

    def _as_run(self, sequences: Sequences, gone: Sequence[str] | None = None) -> Violation | None:
        """``gone``: at the end, who has crashed."""
        if not self.as_runs:
            return None
        facts = RunFacts(
            run="",
            driver="simulation",
            protocol="",
            groups={group: [*members] for group, members in self.players.topology.groups.items()},
            promises=self.as_runs,
            drained=gone is not None,
            faulty=[*(gone or ())],
        )
        rows = [
            self._row(process, seq, happened)
            for process, sequence in zip(self.players.names, sequences, strict=True)
            for seq, happened in enumerate(sequence)
        ]
        return next(iter(check_run(facts, rows)), None)

    def _row(self, process: ProcessId, seq: int, happened: MessageId) -> Row:
        planned, view = self.players.marks.get(happened), self.players.views.get(happened)
        if planned is not None:
            kind, message = EventKind.MULTICAST, str(planned.id)
            return Row(process, seq, 0, kind.value, message, planned.destinations, layer=planned.service)
        if view is not None:
            return Row(process, seq, 0, EventKind.VIEW.value, str(view.id), peers=view.members)
        kind = EventKind.GAP if happened == GAP else EventKind.DELIVER
        return Row(process, seq, 0, kind.value, str(happened))

    def _gaps(self, sequences: Sequences, whole: Sequences) -> Violation | None:
        """What a member delivers right after something, without a gap, nobody delivers with anything in between."""
        if Promise.GAPS not in self.promises:
            return None
        for members in self.members.values():
            for i, j in permutations(members, 2):
                for before, message in zip((None, *sequences[i]), sequences[i], strict=False):
                    if GAP in (before, message) or message not in whole[j]:
                        continue
                    at = whole[j].index(message)
                    if at > 0 if before is None else before in whole[j][: max(at - 1, 0)]:
                        one, other, missing = self.players.names[i], self.players.names[j], whole[j][at - 1]
                        detail = f"{one} delivers {message} without a gap, but {other} delivers {missing} before it."
                        return Violation(Promise.GAPS.value, (one, other), (str(missing), str(message)), detail)
        return None

    def _total(self, sequences: Sequences) -> Violation | None:
        if Promise.TOTAL_ORDER not in self.promises:
            return None
        for group, members in self.members.items():
            longest = max(members, key=lambda i: len(sequences[i]))
            for i in members:
                if sequences[i] != sequences[longest][: len(sequences[i])]:
                    names = (self.players.names[i], self.players.names[longest])
                    one, other = _told(sequences[i]), _told(sequences[longest])
                    detail = f"In {group}, {names[0]} delivers {one}, but {names[1]} {other}."
                    return Violation(Promise.TOTAL_ORDER.value, names, (), detail)
        return None

    def _fifo(self, sequences: Sequences) -> Violation | None:
        if Promise.FIFO not in self.promises:
            return None
        for i, sequence in enumerate(sequences):
            for at, later in enumerate(sequence):
                for earlier, addressed in self.addressed.items():
                    due = earlier.origin == later.origin and earlier.number < later.number and i in addressed
                    if due and earlier not in sequence[:at]:
                        detail = f"{self.players.names[i]} delivers {later}, but not {earlier} before it."
                        messages = (str(earlier), str(later))
                        return Violation(Promise.FIFO.value, (self.players.names[i],), messages, detail)
        return None

    def _acyclic(self, sequences: Sequences) -> Violation | None:
        return self._cycle(Promise.ACYCLIC_ORDER, sequences, {}) if Promise.ACYCLIC_ORDER in self.promises else None

    def _real_time(self, sequences: Sequences) -> Violation | None:
        """What is multicast only after a delivery comes after what was delivered."""
        timed = self.players.awaits and Promise.REAL_TIME_ORDER in self.promises
        return self._cycle(Promise.REAL_TIME_ORDER, sequences, self.players.awaits) if timed else None

    def _cycle(self, promise: Promise, sequences: Sequences, awaits: Mapping[MessageId, MessageId]) -> Violation | None:
        before = {message: {awaits[message]} if message in awaits else set() for message in self.players.messages}
        for sequence in sequences:
            for earlier, later in pairwise(sequence):
                before[later].add(earlier)
        while before:  # take away what nothing stands before; what is left has a cycle
            first = next((message for message, earlier in before.items() if not earlier & before.keys()), None)
            if first is None:
                told = "; ".join(
                    f"{name} delivers {_told(sequence)}"
                    for name, sequence in zip(self.players.names, sequences, strict=True)
                    if sequence
                )
                detail = f"The order of {' and '.join(map(str, before))} has a cycle: {told}."
                return Violation(promise.value, (), tuple(map(str, before)), detail)
            del before[first]
        return None

    def end(self, locals: Sequence[LocalState]) -> Violation | None:
        """Nothing more has to happen: what anybody delivered, or a correct process multicast, is everywhere.

        Who was told to do something may have left. The others agree all the same.
        """
        if self.with_views:
            return self._end_in_views(locals)
        for members in self.members.values():
            if 2 * sum(locals[i].alive for i in members) <= len(members):
                return None  # beyond what the protocols assume: it may wait for ever
        uniform = Promise.UNIFORM_AGREEMENT in self.promises
        agreement = Promise.UNIFORM_AGREEMENT if uniform else Promise.AGREEMENT
        delivered = {message for local in locals if local.alive or uniform for message in local.delivered}
        for message, addressed in self.addressed.items():
            correct = [i for i in addressed if locals[i].alive]
            missing = [i for i in correct if message not in locals[i].delivered]
            stayed = [i for i in missing if not self.players.commands[i]]
            if self.told and stayed and message in delivered:
                late = self.players.names[stayed[0]]
                detail = f"{message} was delivered, but {late}, which was told nothing, never delivers it."
                return Violation(Promise.AGREEMENT.value, (late,), (str(message),), detail)
            if not missing:
                continue
            late = self.players.names[missing[0]]
            sender = locals[self.players.index[message.origin]]
            if message in delivered and agreement in self.promises:
                detail = f"{message} was delivered, but {late} is correct and addressed, and never delivers it."
                return Violation(agreement.value, (late,), (str(message),), detail)
            made = sender.alive and message.number <= sender.made
            if made and missing == correct and Promise.VALIDITY in self.promises:
                detail = f"{message.origin} is correct and multicasts {message}, but {late} never delivers it."
                return Violation(Promise.VALIDITY.value, (late,), (str(message),), detail)
        return None

    def _end_in_views(self, locals: Sequence[LocalState]) -> Violation | None:
        """All who are up are in one view, and each has delivered what it multicast itself."""
        up = tuple(name for name, local in zip(self.players.names, locals, strict=True) if local.alive)
        views = self.players.views
        for name, local in zip(self.players.names, locals, strict=True):
            last = next((views[happened] for happened in reversed(local.delivered) if happened in views), None)
            if local.alive and name in self.players.topology.group_of and (last is None or last.members != up):
                detail = f"{name} ends in a view of {last and ', '.join(last.members)}, but {', '.join(up)} are up."
                return Violation(Promise.VIRTUAL_SYNCHRONY.value, (name,), (), detail)
            for planned in self.players.plans[self.players.index[name]][: local.made] if local.alive else ():
                if self.players.index[name] in self.addressed[planned.id] and planned.id not in local.delivered:
                    detail = f"{name} is up, but never delivers {planned.id}, which it multicast."
                    return Violation(Promise.GRAPH_DELIVERY.value, (name,), (str(planned.id),), detail)
        gone = [name for name in self.players.names if name not in up]
        return self._as_run(tuple([local.delivered for local in locals]), gone)


def _told(sequence: tuple[MessageId, ...]) -> str:
    return ", ".join(map(str, sequence)) or "nothing"


def broken(process: ProcessId, error: Exception) -> Violation:
    """A protocol's own assertion failed, or it broke in any other way."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    detail = f"{type(error).__name__} at {process} in {where.name}: {error} ({where.line})"
    return Violation(name_of(error), (process,), (), detail)
