"""Every property as docs/trace.md defines it, transcribed literally, without a thought for speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from antiphon.trace import Row, RunFacts

Relation = set[tuple[str, str]]


class Oracle:
    def __init__(self, facts: RunFacts, rows: Sequence[Row]) -> None:
        self.facts = facts
        self.rows = sorted(rows, key=lambda row: (row.process, row.seq))
        self.deliver = [row for row in self.rows if row.kind == "deliver"]
        self.multicast = [row for row in self.rows if row.kind == "multicast"]
        self.messages = sorted({row.message for row in self.deliver + self.multicast if row.message})
        self.processes = sorted({row.process for row in self.rows}.union(*facts.groups.values()))
        self.correct = [p for p in self.processes if p not in facts.faulty]
        self.delivered = {p: [row.message for row in self.deliver if row.process == p] for p in self.processes}
        # The first delivery is the one that counts.
        self.order = {p: list(dict.fromkeys(messages)) for p, messages in self.delivered.items()}

    def senders(self, m: str) -> set[str]:
        return {row.process for row in self.multicast if row.message == m}

    def sender(self, m: str) -> str | None:
        return min(self.senders(m)) if len(self.senders(m)) == 1 else None

    def addressed(self, m: str) -> set[str]:
        groups = {g for row in self.multicast if row.message == m for g in row.destinations or ()}
        return {p for g in groups for p in self.facts.groups.get(g, ())}

    def before(self, p: str, m: str, n: str) -> bool:
        order = self.order[p]
        return m in order and n in order and order.index(m) < order.index(n)

    def integrity(self) -> bool:
        for p in self.processes:
            if len(set(self.delivered[p])) < len(self.delivered[p]):
                return False
        for row in self.deliver:
            sent = [set(other.destinations or ()) for other in self.multicast if other.message == row.message]
            if set(row.destinations or ()) not in sent or row.process not in self.addressed(row.message or ""):
                return False
        return True

    def validity(self) -> bool:
        for m in self.messages:
            addressed = self.addressed(m) & set(self.correct)
            if self.senders(m) & set(self.correct) and addressed and not any(m in self.order[p] for p in addressed):
                return not self.facts.drained
        return True

    def agreement(self) -> bool:
        return self._agree(self.correct)

    def uniform_agreement(self) -> bool:
        return self._agree(self.processes)

    def _agree(self, witnesses: list[str]) -> bool:
        for m in self.messages:
            addressed = self.addressed(m) & set(self.correct)
            if any(m in self.order[p] for p in witnesses) and not all(m in self.order[p] for p in addressed):
                return not self.facts.drained
        return True

    def total_order(self) -> bool:
        return all(
            mine == other
            for members in self.facts.groups.values()
            for p in members
            for q in members
            for mine, other in zip(self.order[p], self.order[q], strict=False)
        )

    def acyclic_order(self) -> bool:
        pairs = {(m, n) for m in self.messages for n in self.messages for p in self.order if self.before(p, m, n)}
        return not any(m == n for m, n in _closure(pairs, self.messages))

    def fifo(self) -> bool:
        return self._respected(self._sent_before())

    def causal(self) -> bool:
        return self._respected(_closure(self._sent_before() | self._seen_before(), self.messages))

    def _sent_at(self, m: str) -> int:
        return min(row.seq for row in self.multicast if row.message == m)

    def _sent_before(self) -> Relation:
        single = [m for m in self.messages if self.sender(m)]
        return {
            (m, n)
            for m in single
            for n in single
            if self.sender(m) == self.sender(n) and self._sent_at(m) < self._sent_at(n)
        }

    def _seen_before(self) -> Relation:
        return {
            (row.message or "", n)
            for row in self.deliver
            for n in self.messages
            if self.sender(n) == row.process and row.seq < self._sent_at(n)
        }

    def _respected(self, relation: Relation) -> bool:
        for m, n in relation:
            for p in self.addressed(m) & self.addressed(n):
                if m != n and n in self.order[p] and not self.before(p, m, n):
                    return False
        return True

    def genuineness(self) -> bool:
        circles = [self.senders(m) | self.addressed(m) for m in self.messages]
        for row in self.rows:
            if row.kind in ("send", "receive"):
                m = row.message
                ends = {end for end in (row.process, row.peer) if end is not None}
                allowed = circles if m is None else [self.senders(m) | self.addressed(m)]
                if not any(ends <= circle for circle in allowed):
                    return False
        return True

    def locality(self) -> bool:
        group_of = {p: group for group, members in self.facts.groups.items() for p in members}
        for row in self.rows:
            here, there = group_of.get(row.process), group_of.get(row.peer or "")
            is_consensus = row.kind in ("send", "receive") and (row.layer or "").endswith("/consensus")
            if is_consensus and row.peer and (here is None or here != there):
                return False
        return True

    def broken(self) -> set[str]:
        properties: list[Callable[[], bool]] = [
            *(self.integrity, self.validity, self.agreement, self.uniform_agreement),
            *(self.total_order, self.acyclic_order, self.fifo, self.causal, self.genuineness),
            self.locality,
        ]
        return {check.__name__ for check in properties if not check()}


def _closure(pairs: Relation, messages: list[str]) -> Relation:
    closed = set(pairs)
    for via in messages:
        for m in messages:
            if (m, via) in closed:
                closed |= {(m, n) for n in messages if (via, n) in closed}
    return closed
