"""Every property as docs/trace.md defines it, transcribed literally, without a thought for speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec

from antiphon.trace import RequestCell, Row, RunFacts
from forging.logs import LOG, Adoptions

Relation = set[tuple[str, str]]
Groups = frozenset[str]

DRAINED = ("validity", "agreement", "uniform_agreement", "receipts", "durable_receipts", "graph_delivery")


class Oracle:
    def __init__(self, facts: RunFacts, rows: Sequence[Row]) -> None:
        self.whole = not facts.incomplete
        adoptions = Adoptions(facts, rows)
        self.begun_again = adoptions.begun_again
        self.facts = facts = msgspec.structs.replace(facts, incomplete=adoptions.incomplete)
        self.rows = adoptions.rows
        self.deliver = [row for row in self.rows if row.kind == "deliver"]
        self.multicast = [row for row in self.rows if row.kind == "multicast"]
        self.row_of: dict[str, Row] = {}
        for row in self.multicast:
            self.row_of.setdefault(row.message or "", row)  # the first counts
        self.messages = sorted({row.message for row in self.deliver + self.multicast if row.message})
        self.processes = sorted({row.process for row in self.rows}.union(*facts.groups.values()))
        self.correct = [p for p in self.processes if p not in facts.faulty and p not in facts.incomplete]
        named = [row for row in self.deliver if row.message is not None]
        self.delivered = {p: [row.message or "" for row in named if row.process == p] for p in self.processes}
        # The first delivery is the one that counts.
        self.order = {p: list(dict.fromkeys(messages)) for p, messages in self.delivered.items()}

    def agreed(self, p: str) -> list[str]:
        """What p delivers and was not asked for as causal, in order."""
        return [m for m in self.order[p] if m not in self.row_of or self.row_of[m].layer != "causal"]

    def sender(self, m: str) -> str | None:
        return self.row_of[m].process if m in self.row_of else None

    def members(self, groups: Sequence[str] | None) -> set[str]:
        return {p for g in groups or () for p in self.facts.groups.get(g, ())}

    def addressed(self, m: str) -> set[str]:
        return self.members(self.row_of[m].destinations) if m in self.row_of else set()

    def before(self, p: str, m: str, n: str) -> bool:
        order = self.order[p]
        return m in order and n in order and order.index(m) < order.index(n)

    def is_its_own_client(self, client: str) -> bool:
        own = any(row.process == client and cell.client == client for row, cell in _cells(self.multicast))
        return own or client in self.facts.incomplete

    def sessions(self, p: str) -> dict[tuple[str, Groups], list[RequestCell]]:
        found: dict[tuple[str, Groups], list[RequestCell]] = {}
        for row, cell in _cells(self.deliver):
            if row.process == p:
                found.setdefault((cell.client, frozenset(row.destinations or ())), []).append(cell)
        return found

    def integrity(self) -> bool:
        for p in self.processes:
            if len(set(self.delivered[p])) < len(self.delivered[p]):
                return False
        for row in self.deliver:
            sent = self.row_of.get(row.message or "")
            if sent is None:
                if self.whole:
                    return False
            elif set(row.destinations or ()) != set(sent.destinations or ()) or row.process not in self.addressed(
                row.message or ""
            ):
                return False
        if self.begun_again:
            return False
        return self._requests_are_real() and self._no_number_twice() and self._positions_follow()

    def _positions_follow(self) -> bool:
        for p in self.processes:
            rows = [row for row in self.rows if row.kind in LOG and row.process == p]
            ends = [0, *((row.position or 0) + _taken(row) for row in rows)]
            if [row.position for row in rows] != ends[:-1]:
                return False
        return True

    def _requests_are_real(self) -> bool:
        sent = [(frozenset(row.destinations or ()), cell) for row, cell in _cells(self.multicast)]
        got = [(frozenset(row.destinations or ()), cell) for row, cell in _cells(self.deliver)]
        return not self.whole or all(request in sent for request in got)

    def _no_number_twice(self) -> bool:
        for p in self.processes:
            for (client, _), cells in self.sessions(p).items():
                numbers: list[int] = []
                for cell in cells:
                    count = 1 if self.is_its_own_client(client) else max(1, cell.payloads)
                    numbers += range(cell.first, cell.first + count)
                if len(set(numbers)) < len(numbers):
                    return False
        return True

    def validity(self) -> bool:
        for m in self.row_of:
            addressed = self.addressed(m) & set(self.correct)
            unknown = self.addressed(m) & set(self.facts.incomplete) - set(self.facts.faulty)
            arrived = any(m in self.order[p] for p in addressed)
            if self.sender(m) in self.correct and addressed and not unknown and not arrived:
                return False
        return True

    def agreement(self) -> bool:
        return self._agree(self.correct)

    def uniform_agreement(self) -> bool:
        return self._agree(self.processes)

    def _agree(self, witnesses: list[str]) -> bool:
        for m in self.messages:
            addressed = self.addressed(m) & set(self.correct)
            if any(m in self.order[p] for p in witnesses) and not all(m in self.order[p] for p in addressed):
                return False
        return True

    def total_order(self) -> bool:
        return all(
            mine == other
            for members in self.facts.groups.values()
            for p in members
            for q in members
            for mine, other in zip(self.agreed(p), self.agreed(q), strict=False)
        )

    def acyclic_order(self) -> bool:
        orders = [self.agreed(p) for p in self.order]
        pairs = {(m, n) for order in orders for i, m in enumerate(order) for n in order[i + 1 :] if m and n}
        return not any(m == n for m, n in _closure(pairs, self.messages))

    def real_time_order(self) -> bool:
        orders = [self.agreed(p) for p in self.order]
        pairs = {(m, n) for order in orders for i, m in enumerate(order) for n in order[i + 1 :] if m and n}
        error = self.facts.clock_error_ns or 0
        for row in self.deliver:
            for n, sent in self.row_of.items():
                agreed = row.message in self.agreed(row.process) and sent.layer != "causal"
                if row.message and n and agreed and sent.time_ns - row.time_ns > error:
                    pairs.add((row.message, n))
        return not any(m == n for m, n in _closure(pairs, self.messages))

    def gaps(self) -> bool:
        for members in self.facts.groups.values():
            for p in members:
                for before, m in zip([None, *self.order[p]], self.order[p], strict=False):
                    if self._says_gap(p, before, m):
                        continue
                    for order in (self.order[q] for q in members):
                        if m in order and (before is None or before in order):
                            begin = 0 if before is None else order.index(before) + 1
                            if order[begin : order.index(m)]:
                                return False
        return True

    def _says_gap(self, p: str, before: str | None, m: str) -> bool:
        first = {row.message: row.seq for row in reversed(self.deliver) if row.process == p and row.message is not None}
        begin = -1 if before is None else first[before]
        return any(row.kind == "gap" and row.process == p and begin < row.seq < first[m] for row in self.rows)

    def views(self, p: str) -> list[str]:
        """In order; the first row of a name counts."""
        return list(dict.fromkeys(row.message or "" for row in self.rows if row.kind == "view" and row.process == p))

    def view_of(self, p: str, m: str) -> str | None:
        """In which p delivers m."""
        seq = next(row.seq for row in self.deliver if row.process == p and row.message == m)
        before = [row.message or "" for row in self.rows if row.kind == "view" and row.process == p and row.seq < seq]
        return [view for view in self.views(p) if view in before][-1] if before else None

    def within(self, p: str, view: str) -> list[str]:
        return [m for m in self.order[p] if m is not None and self.view_of(p, m) == view]

    def together(self, p: str, q: str, view: str) -> bool:
        """Whether both deliver the view and go on from it together."""
        if view not in self.views(p) or view not in self.views(q):
            return False
        after = [self.views(each)[self.views(each).index(view) + 1 :][:1] for each in (p, q)]
        stay = self.facts.drained and p in self.correct and q in self.correct
        return after[0] == after[1] and (after[0] != [] or stay)

    def parts(self, p: str, q: str, view: str | None) -> bool:
        return view in self.views(p) and view in self.views(q) and not self.together(p, q, view)

    def virtual_synchrony(self) -> bool:
        rows = [row for row in self.rows if row.kind == "view"]
        names = {(row.process, row.message or "") for row in rows}
        if len(names) < len(rows) or any(row.process not in (row.peers or ()) for row in rows):
            return False
        if len({(row.message or "", frozenset(row.peers or ())) for row in rows}) > len({name for _, name in names}):
            return False
        for row in self.deliver:
            if rows and not any(view.process == row.process and view.seq < row.seq for view in rows):
                return False
        for row in rows:
            strangers = self.members(list(self.facts.groups)).difference(row.peers or ())
            if any(self.sender(m) in strangers for m in self.within(row.process, row.message or "")):
                return False
        for p in self.processes:
            for q in self.processes:
                both = [[v for v in self.views(a) if v in self.views(b)] for a, b in ((p, q), (q, p))]
                if both[0] != both[1]:
                    return False
                for view in both[0]:
                    mine, its = self.within(p, view), self.within(q, view)
                    if self.together(p, q, view) and any(m not in its and q in self.addressed(m) for m in mine):
                        return False
        return True

    def view_order(self) -> bool:
        views = {p: {m: self.view_of(p, m) for m in self.agreed(p) if m is not None} for p in self.processes}
        for p in self.processes:
            for q in self.processes:
                common = [m for m, view in views[p].items() if view is not None and views[q].get(m) is not None]
                for m in common:
                    for n in common:
                        if self.before(p, m, n) and self.before(q, n, m):
                            mine = views[p][m] == views[p][n] and self.parts(p, q, views[p][m])
                            its = views[q][m] == views[q][n] and self.parts(p, q, views[q][m])
                            if not mine and not its:
                                return False
        for view in {view for p in self.processes for view in self.views(p)}:
            for p in self.processes:
                company = [q for q in self.processes if self.together(p, q, view)]
                orders = [[m for m in self.within(q, view) if m in self.agreed(q)] for q in company]
                pairs = {(m, n) for order in orders for i, m in enumerate(order) for n in order[i + 1 :]}
                if any(m == n for m, n in _closure(pairs, sorted({m for order in orders for m in order}))):
                    return False
        return True

    def graph_delivery(self) -> bool:
        return not any(
            row.process in self.correct
            and row.process in self.addressed(row.message or "")
            and row.message not in self.order[row.process]
            for row in self.rows
            if row.kind == "enter" and row.message is not None
        )

    def fifo(self) -> bool:
        return self._respected(self._sent_before())

    def causal(self) -> bool:
        return self._respected(_closure(self._sent_before() | self._seen_before(), self.messages))

    def causal_extension(self) -> bool:
        """The same, of what a process delivers at all."""
        for m, n in _closure(self._sent_before() | self._seen_before(), self.messages):
            for p in self.addressed(m) & self.addressed(n):
                if m != n and self.before(p, n, m):
                    return False
        return True

    def _sent_before(self) -> Relation:
        return {
            (m, n)
            for m, sent in self.row_of.items()
            for n, later in self.row_of.items()
            if sent.process == later.process and sent.seq < later.seq
        }

    def _seen_before(self) -> Relation:
        return {
            (row.message or "", n)
            for row in self.deliver
            for n, sent in self.row_of.items()
            if sent.process == row.process and row.seq < sent.seq
        }

    def _respected(self, relation: Relation) -> bool:
        for m, n in relation:
            for p in self.addressed(m) & self.addressed(n):
                if m != n and n in self.order[p] and not self.before(p, m, n):
                    return False
        return True

    def request_order(self) -> bool:
        lists: dict[tuple[str, str], list[tuple[str, Groups, int]]] = {}  # by message and process: in order
        messages: dict[tuple[str, Groups, int], set[str]] = {}
        for p in self.processes:
            once: set[tuple[str, Groups, int]] = set()
            for row in (row for row in self.deliver if row.process == p and row.message is not None):
                with_it = lists.setdefault((row.message or "", p), [])
                for cell in row.requests or ():
                    request = cell.client, frozenset(row.destinations or ()), cell.first
                    if request not in once:
                        once.add(request)
                        with_it.append(request)
                        messages.setdefault(request, set()).add(row.message or "")
        alike = all(lists[m, p] == lists[n, q] for (m, p), (n, q) in pairwise(sorted(lists)) if m == n)
        return alike and all(len(carriers) == 1 for carriers in messages.values())

    def client_order(self) -> bool:
        for p in self.processes:
            gaps = [row.seq for row in self.rows if row.kind == "gap" and row.process == p]
            for client, groups in self.sessions(p):
                once: dict[int, tuple[int, RequestCell]] = {}  # with the seq of its row
                for row, cell in _cells(self.deliver):
                    if (row.process, cell.client, frozenset(row.destinations or ())) == (p, client, groups):
                        once.setdefault(cell.first, (row.seq, cell))
                expected = 0
                for seq, cell in () if self.is_its_own_client(client) else once.values():
                    since = max((earlier for earlier, _ in once.values() if earlier < seq), default=0)
                    behind_a_gap = any(since < gap < seq for gap in gaps)
                    if cell.first < expected or (cell.first > expected and not behind_a_gap):
                        return False
                    expected = cell.first + cell.payloads
        return True

    def view_client_order(self) -> bool:
        for p in self.processes:
            for (client, _), cells in self.sessions(p).items():
                once: dict[int, RequestCell] = {}
                for cell in cells:
                    once.setdefault(cell.first, cell)
                ends: list[int] = []
                for cell in () if self.is_its_own_client(client) else once.values():
                    if any(cell.first < end for end in ends):
                        return False
                    ends.append(cell.first + cell.payloads)
        for view in {view for p in self.processes for view in self.views(p)}:
            for p in self.processes:
                for q in (q for q in self.processes if self.together(p, q, view)):
                    got = self.numbers_in(q, view)
                    had = [each for v in self.views(q)[: self.views(q).index(view)] for each in self.numbers_in(q, v)]
                    for client, groups, first in self.numbers_in(p, view):
                        later = [n for c, g, n in had if (c, g) == (client, groups) and n >= first]
                        if q in self.members(sorted(groups)) and (client, groups, first) not in got and not later:
                            return False
        return True

    def numbers_in(self, p: str, view: str) -> list[tuple[str, Groups, int]]:
        """What p delivers of clients in a view: client, set of groups, number."""
        begins = dict.fromkeys(self.views(p), 0)
        for row in reversed(self.rows):
            if row.kind == "view" and row.process == p:
                begins[row.message or ""] = row.seq
        found = []
        for row, cell in _cells(self.deliver):
            before = [name for name in begins if begins[name] < row.seq]
            if row.process == p and before and before[-1] == view and not self.is_its_own_client(cell.client):
                found.append((cell.client, frozenset(row.destinations or ()), cell.first))
        return found

    def receipts(self) -> bool:
        for row, cell in _cells([row for row in self.rows if row.kind == "receipt"]):
            groups = frozenset(row.destinations or ())
            for p in self.members(row.destinations) & set(self.correct):
                if row.process in self.correct and cell not in self.sessions(p).get((cell.client, groups), []):
                    return False
        return True

    def client_turn_order(self) -> bool:
        turns: dict[tuple[object, ...], int] = {}
        for row, cell in _cells([row for row in self.rows if row.kind == "receipt" and row.layer != "majority"]):
            asked = (cell.client, frozenset(row.destinations or ()), cell.first)
            turns[asked] = max(turns.get(asked, 0), row.position or 0)
        for p in {row.process for row in self.deliver}:
            order = list(
                dict.fromkeys(
                    asked
                    for row, cell in _cells(sorted(self.deliver, key=lambda row: row.seq))
                    if row.process == p
                    and (asked := (cell.client, frozenset(row.destinations or ()), cell.first)) in turns
                )
            )
            for i, first in enumerate(order):
                for second in order[i + 1 :]:
                    if first[0] == second[0] and turns[first] > turns[second]:
                        return False
        return True

    def durable_receipts(self) -> bool:
        for row, cell in _cells([row for row in self.rows if row.kind == "receipt" and row.layer == "majority"]):
            groups = frozenset(row.destinations or ())
            for p in self.members(row.destinations) & set(self.correct):
                if cell not in self.sessions(p).get((cell.client, groups), []):
                    return False
        return True

    def genuineness(self) -> bool:
        circles = {m: {self.sender(m)} | self.addressed(m) for m in self.row_of}
        for row in self.rows:
            if row.kind in ("send", "receive") and row.about:
                for m in row.about:
                    if (m in circles or self.whole) and not {row.process, *(row.peers or ())} <= circles.get(m, set()):
                        return False
            elif row.kind == "send" and self.whole:
                for peer in row.peers or (row.process,):
                    if not any({row.process, peer} <= circle for circle in circles.values()):
                        return False
        return True

    def locality(self) -> bool:
        for row in self.rows:
            if row.kind in ("send", "receive") and (row.layer or "").split("/")[-1] == "consensus":
                for peer in row.peers or ():
                    if not any({row.process, peer} <= set(members) for members in self.facts.groups.values()):
                        return False
        return True

    def broken(self) -> set[str]:
        properties: list[Callable[[], bool]] = [
            *(self.integrity, self.validity, self.agreement, self.uniform_agreement),
            *(self.total_order, self.acyclic_order, self.gaps, self.fifo, self.causal, self.real_time_order),
            *(self.virtual_synchrony, self.view_order, self.graph_delivery),
            *(self.client_order, self.receipts, self.genuineness, self.locality),
            *(self.causal_extension, self.view_client_order, self.request_order, self.durable_receipts),
            self.client_turn_order,
        ]
        judged = [check for check in properties if self.facts.drained or check.__name__ not in DRAINED]
        if self.facts.clock_error_ns is None:
            judged.remove(self.real_time_order)
        return {check.__name__ for check in judged if check.__name__ in self.facts.promises and not check()}


def _taken(row: Row) -> int:
    if row.kind == "adopt":
        return 0
    return 1 if row.kind != "deliver" else sum(cell.payloads for cell in row.requests or ())


def _cells(rows: Sequence[Row]) -> Iterator[tuple[Row, RequestCell]]:
    for row in rows:
        for cell in row.requests or ():
            yield row, cell


def _closure(pairs: Relation, messages: list[str]) -> Relation:
    closed = set(pairs)
    for via in messages:
        for m in messages:
            if (m, via) in closed:
                closed |= {(m, n) for n in messages if (via, n) in closed}
    return closed
