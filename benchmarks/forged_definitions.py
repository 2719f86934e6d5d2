"""The definitions of docs/trace.md, read apart from the suite's, as slow as they are short: for `forged.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations, pairwise, product

from antiphon.trace import RequestCell, Row, RunFacts

PROMISES = (
    *("integrity", "validity", "agreement", "uniform_agreement", "total_order", "acyclic_order", "real_time_order"),
    *("gaps", "graph_delivery", "fifo", "causal", "causal_extension", "request_order", "client_order"),
    *("client_turn_order", "receipts", "durable_receipts", "genuineness", "locality"),
)
OF_DRAINED = {"validity", "agreement", "uniform_agreement", "graph_delivery", "receipts", "durable_receipts"}
Groups = frozenset[str]


class Definitions:
    def __init__(self, facts: RunFacts, rows: list[Row]) -> None:
        self.facts = facts
        self.processes = sorted({row.process for row in rows} | {p for own in facts.groups.values() for p in own})
        in_order = sorted(rows, key=lambda row: row.seq)
        self.own = {p: [row for row in in_order if row.process == p] for p in self.processes}
        self.rows = [row for p in self.processes for row in self.own[p]]
        self.sent: dict[str, Row] = {}
        for row in self.rows:  # of several, that of the smallest process and then seq
            if row.kind == "multicast" and row.message is not None:
                self.sent.setdefault(row.message, row)
        self.correct = [p for p in self.processes if p not in facts.faulty]
        # First deliveries, in order; what has no name has no place in an order.
        self.log = {p: list(dict.fromkeys(r.message for r in self.delivers(p) if r.message)) for p in self.processes}

    def delivers(self, p: str) -> list[Row]:
        return [row for row in self.own[p] if row.kind == "deliver"]

    def in_groups(self, groups: tuple[str, ...] | None) -> set[str]:
        return {p for group in groups or () for p in self.facts.groups.get(group, ())}

    def addressed(self, m: str | None) -> set[str]:
        return self.in_groups(self.sent[m].destinations) if m in self.sent else set()

    def agreed(self, m: str) -> bool:
        return m not in self.sent or self.sent[m].layer != "causal"

    def everybody_due(self, m: str) -> bool:
        return all(m in self.log[p] for p in self.addressed(m) if p in self.correct)

    def integrity(self) -> bool:
        return all(self._honest(p) and self._placed(p) for p in self.processes)

    def _honest(self, p: str) -> bool:
        rows = self.delivers(p)
        names = [row.message for row in rows]
        taken: set[tuple[str, Groups, int]] = set()
        for row in rows:
            if row.message not in self.sent or names.count(row.message) > 1 or p not in self.addressed(row.message):
                return False
            to = frozenset(row.destinations or ())
            if to != frozenset(self.sent[row.message].destinations or ()):
                return False
            for cell in row.requests or ():
                if not any(cell == other for other in self.multicast_to(to)):
                    return False
                length = 1 if self.is_own(cell.client) else cell.payloads
                numbers = {(cell.client, to, cell.first + i) for i in range(max(length, 1))}
                if numbers & taken:
                    return False
                taken |= numbers
        return True

    def multicast_to(self, to: Groups) -> Iterator[RequestCell]:
        for row in self.rows:
            if row.kind == "multicast" and frozenset(row.destinations or ()) == to:
                yield from row.requests or ()

    def is_own(self, client: str) -> bool:
        """Whether a process multicasts on its own behalf."""
        own = [row for row in self.own.get(client, ()) if row.kind == "multicast"]
        return any(cell.client == client for row in own for cell in row.requests or ())

    def _placed(self, p: str) -> bool:
        expected: int | None = 0
        for row in self.own[p]:
            if row.kind in ("deliver", "gap", "view"):
                if row.position is not None and expected is not None and row.position != expected:
                    return False
                took = sum(c.payloads for c in row.requests or ()) if row.kind == "deliver" else 1
                expected = None if row.position is None else row.position + took
        return True

    def validity(self) -> bool:
        return all(
            any(m in self.log[p] for p in due)
            for m, row in self.sent.items()
            if row.process in self.correct and (due := self.addressed(m) & set(self.correct))
        )

    def agreement(self) -> bool:
        return all(self.everybody_due(m) for p in self.correct for m in self.log[p])

    def uniform_agreement(self) -> bool:
        return all(self.everybody_due(m) for p in self.processes for m in self.log[p])

    def total_order(self) -> bool:
        logs = {p: [m for m in self.log[p] if self.agreed(m)] for p in self.processes}
        mates = [pair for members in self.facts.groups.values() for pair in combinations(members, 2)]
        return all(m == n for p, q in mates for m, n in zip(logs[p], logs[q], strict=False))

    def steps(self) -> set[tuple[str, str]]:
        logs = ([m for m in self.log[p] if self.agreed(m)] for p in self.processes)
        return {pair for log in logs for pair in combinations(log, 2)}

    def acyclic_order(self) -> bool:
        return not _cyclic(self.steps())

    def real_time_order(self) -> bool:
        error = self.facts.clock_error_ns or 0
        delivered = [row for row in self.rows if row.kind == "deliver" and row.message is not None]
        times = {
            (row.message or "", m)
            for row, (m, sent) in product(delivered, self.sent.items())
            if sent.time_ns > row.time_ns + error and self.agreed(row.message or "") and self.agreed(m)
        }
        return not _cyclic(self.steps() | times)

    def gaps(self) -> bool:
        for members in self.facts.groups.values():
            for p in members:
                for before, m in pairwise([None, *self.log[p]]):
                    if not self._announced(p, before, m) and any(
                        self._between(q, before, m) for q in members if q != p and m in self.log[q]
                    ):
                        return False
        return True

    def _announced(self, p: str, before: str | None, m: str | None) -> bool:
        at = {row.message: row.seq for row in reversed(self.delivers(p))}
        since = -1 if before is None else at[before]
        return any(row.kind == "gap" and since < row.seq < at[m] for row in self.own[p])

    def _between(self, q: str, before: str | None, m: str | None) -> bool:
        log = self.log[q]
        if before is None:
            return log[0] != m
        return before in log and log.index(m or "") > log.index(before) + 1

    def graph_delivery(self) -> bool:
        return all(
            row.message in self.log[row.process]
            for row in self.rows
            if row.kind == "enter" and row.process in self.correct and row.process in self.addressed(row.message)
        )

    def before_sending(self, *kinds: str) -> set[tuple[str, str]]:
        """(m, n): the sender of n had done this with m before it multicast n."""
        return {
            (row.message, n)
            for n, sent in self.sent.items()
            for row in self.own[sent.process]
            if row.kind in kinds and row.message is not None and row.seq < sent.seq
            and (row.kind == "deliver" or self.sent[row.message] is row)
        }  # fmt: skip

    def _kept(self, relation: set[tuple[str, str]], *, missing_counts: bool) -> bool:
        for m, n in relation:
            if m == n:
                continue
            for p in self.addressed(m) & self.addressed(n):
                log = self.log[p]
                if n in log and (log.index(n) < log.index(m) if m in log else missing_counts):
                    return False
        return True

    def fifo(self) -> bool:
        return self._kept(self.before_sending("multicast"), missing_counts=True)

    def causal(self) -> bool:
        return self._kept(_closed(self.before_sending("multicast", "deliver")), missing_counts=True)

    def causal_extension(self) -> bool:
        return self._kept(_closed(self.before_sending("multicast", "deliver")), missing_counts=False)

    def first_requests(self, p: str) -> dict[tuple[str, Groups, int], Row]:
        found: dict[tuple[str, Groups, int], Row] = {}
        for row in self.delivers(p):
            if row.message is not None:
                for cell in row.requests or ():
                    found.setdefault((cell.client, frozenset(row.destinations or ()), cell.first), row)
        return found

    def request_order(self) -> bool:
        firsts = {p: self.first_requests(p) for p in self.processes}
        for p, q in combinations(self.processes, 2):
            if any(firsts[p][one].message != firsts[q][one].message for one in firsts[p].keys() & firsts[q].keys()):
                return False
            for m in set(self.log[p]) & set(self.log[q]):
                with_p, with_q = ([one for one, row in firsts[x].items() if row.message == m] for x in (p, q))
                if with_p != with_q:
                    return False
        return True

    def client_order(self) -> bool:
        for p in self.processes:
            expected: dict[tuple[str, Groups], int] = defaultdict(int)
            since: dict[tuple[str, Groups], int] = {}
            seen: set[tuple[str, Groups, int]] = set()
            for row in self.delivers(p):
                for cell in row.requests or ():
                    session = (cell.client, frozenset(row.destinations or ()))
                    if self.is_own(cell.client) or (*session, cell.first) in seen:
                        continue
                    seen.add((*session, cell.first))
                    low = since.get(session, -1)
                    gap = any(r.kind == "gap" and low < r.seq < row.seq for r in self.own[p])
                    if cell.first != expected[session] and not (cell.first > expected[session] and gap):
                        return False
                    expected[session] = cell.first + cell.payloads
                for cell in row.requests or ():
                    since[cell.client, frozenset(row.destinations or ())] = row.seq
        return True

    def client_turn_order(self) -> bool:
        turns: dict[tuple[str, Groups, int], int] = {}
        for row in self.rows:
            if row.kind == "receipt" and row.layer != "majority":
                for cell in row.requests or ():
                    one = (cell.client, frozenset(row.destinations or ()), cell.first)
                    turns[one] = max(turns.get(one, 0), row.position or 0)
        for p in self.processes:
            high: dict[str, int] = {}
            seen = set()
            for row in self.delivers(p):
                for cell in row.requests or ():
                    one = (cell.client, frozenset(row.destinations or ()), cell.first)
                    if one in turns and one not in seen:
                        if turns[one] < high.get(cell.client, 0):
                            return False
                        high[cell.client] = max(high.get(cell.client, 0), turns[one])
                    seen.add(one)
        return True

    def receipts(self) -> bool:
        return all(self._delivered(row) for row in self.rows if row.kind == "receipt" and row.process in self.correct)

    def durable_receipts(self) -> bool:
        return all(self._delivered(row) for row in self.rows if row.kind == "receipt" and row.layer == "majority")

    def _delivered(self, receipt: Row) -> bool:
        to = frozenset(receipt.destinations or ())
        return all(
            any(cell in (row.requests or ()) and frozenset(row.destinations or ()) == to for row in self.delivers(p))
            for cell in receipt.requests or ()
            for p in self.in_groups(receipt.destinations)
            if p in self.correct
        )

    def concerned(self, m: str) -> set[str]:
        return self.addressed(m) | ({self.sent[m].process} if m in self.sent else set())

    def genuineness(self) -> bool:
        for row in self.rows:
            ends = {row.process, *(row.peers or ())}
            if row.kind in ("send", "receive") and row.about and not all(ends <= self.concerned(m) for m in row.about):
                return False
            if row.kind == "send" and not row.about:
                pairs_ = [{row.process, peer} for peer in row.peers or ()] or [{row.process}]
                if not all(any(pair <= self.concerned(m) for m in self.sent) for pair in pairs_):
                    return False
        return True

    def locality(self) -> bool:
        def together(p: str, q: str) -> bool:
            return any(p in members and q in members for members in self.facts.groups.values())

        return all(
            together(row.process, peer)
            for row in self.rows
            if row.kind in ("send", "receive") and (row.layer or "").rpartition("/")[2] == "consensus"
            for peer in row.peers or ()
        )

    def broken(self) -> set[str]:
        asked = [name for name in PROMISES if self.facts.drained or name not in OF_DRAINED]
        if self.facts.clock_error_ns is None:
            asked.remove("real_time_order")
        return {name for name in asked if not getattr(self, name)()}


def _closed(relation: set[tuple[str, str]]) -> set[tuple[str, str]]:
    found = set(relation)
    while more := {(a, d) for a, b in found for c, d in found if b == c} - found:
        found |= more
    return found


def _cyclic(relation: set[tuple[str, str]]) -> bool:
    return any(a == b for a, b in _closed(relation))
