"""The promises, checked state by state. What was delivered can only grow, so each order is looked at once."""

from __future__ import annotations

from itertools import pairwise

from antiphon.checks import Violation
from antiphon.core.declaration import Promise
from antiphon.core.model import ProcessId
from antiphon.simulation.explore_state import Local, Table

World = tuple[int, ...]
Sequences = tuple[tuple[str, ...], ...]  # by process: what it delivered


class Judge:
    def __init__(self, table: Table) -> None:
        self.table = table
        self.promises = table.protocol.declaration.promises
        self.members = {g: [table.index[p] for p in members] for g, members in table.topology.groups.items()}
        self.addressed = {
            message: [table.index[p] for p in table.topology.addressees(table.topology.destinations(groups))]
            for message, groups in table.messages.items()
        }
        self._known: dict[Sequences, Violation | None] = {}

    def order(self, world: World) -> Violation | None:
        """Prefixes within a group; no cycle over all groups."""
        slots, locals = self.table.slots, self.table.locals
        return self.order_of(tuple(locals[slots[slot].local].delivered for slot in world[:-1]))

    def order_of(self, sequences: Sequences) -> Violation | None:
        if sequences not in self._known:
            self._known[sequences] = self._total_order(sequences) or self._acyclic_order(sequences)
        return self._known[sequences]

    def _total_order(self, sequences: Sequences) -> Violation | None:
        if Promise.TOTAL_ORDER not in self.promises:
            return None
        for group, members in self.members.items():
            longest = max(members, key=lambda i: len(sequences[i]))
            for i in members:
                if sequences[i] != sequences[longest][: len(sequences[i])]:
                    names = (self.table.names[i], self.table.names[longest])
                    detail = f"In {group}, {names[0]} delivers {sequences[i]}, but {names[1]} {sequences[longest]}."
                    return Violation(Promise.TOTAL_ORDER, names, (), detail)
        return None

    def _acyclic_order(self, sequences: Sequences) -> Violation | None:
        if Promise.ACYCLIC_ORDER not in self.promises:
            return None
        before: dict[str, set[str]] = {message: set() for message in self.table.messages}
        for sequence in sequences:
            for earlier, later in pairwise(sequence):
                before[later].add(earlier)
        while before:  # take away what nothing stands before; what is left has a cycle
            first = next((message for message, earlier in before.items() if not earlier & before.keys()), None)
            if first is None:
                told = {self.table.names[i]: sequence for i, sequence in enumerate(sequences) if sequence}
                detail = f"The order of {' and '.join(before)} has a cycle: {told}."
                return Violation(Promise.ACYCLIC_ORDER, (), tuple(before), detail)
            del before[first]
        return None

    def end(self, world: World) -> Violation | None:
        """Nothing more has to happen: what anybody delivered, or a correct process multicast, is everywhere."""
        return self.end_of([self.table.locals[self.table.slots[slot].local] for slot in world[:-1]])

    def end_of(self, locals: list[Local]) -> Violation | None:
        for members in self.members.values():
            if 2 * sum(locals[i].alive for i in members) <= len(members):
                return None  # beyond what the protocols assume: it may wait for ever
        uniform = Promise.UNIFORM_AGREEMENT in self.promises
        agreement = Promise.UNIFORM_AGREEMENT if uniform else Promise.AGREEMENT
        delivered = {message for local in locals if local.alive or uniform for message in local.delivered}
        for message, addressed in self.addressed.items():
            missing = [i for i in addressed if locals[i].alive and message not in locals[i].delivered]
            if not missing:
                continue
            late = self.table.names[missing[0]]
            name, _, number = message.partition(":")
            sender = locals[self.table.index[ProcessId(name)]]
            if message in delivered and agreement in self.promises:
                detail = f"{message} was delivered, but {late} is correct, addressed and never delivers it."
                return Violation(agreement, (late,), (message,), detail)
            if sender.alive and int(number) <= sender.made and Promise.VALIDITY in self.promises:
                detail = f"{name} is correct and multicasts {message}, but {late} never delivers it."
                return Violation(Promise.VALIDITY, (late,), (message,), detail)
        return None
