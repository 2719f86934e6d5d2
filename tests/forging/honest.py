"""Runs in which every property holds, written without the simulator: the ground on which forgeries are planted."""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from copy import deepcopy
from functools import lru_cache

import msgspec

from antiphon.core.promises import REGISTRY
from antiphon.trace import EventKind, RequestCell, Row, RunFacts

PROPERTIES = tuple(str(promise) for promise in REGISTRY)
CLIENTS = ("alice", "bob", "carol")  # they hand their requests to members


def request(client: str, first: int, payloads: int = 1) -> RequestCell:
    """A client's request; its digest is made up, but always the same."""
    return RequestCell(client, first, payloads, zlib.crc32(f"{client} {first} {payloads}".encode()))


class Sessions:
    """At one process: which of a message's requests are delivered with it, by the rules of docs/trace.md."""

    def __init__(self) -> None:
        self.next: dict[tuple[str, frozenset[str]], int] = {}
        self.waiting: dict[tuple[str, frozenset[str]], dict[int, RequestCell]] = {}

    def admit(self, cell: RequestCell, destinations: Iterable[str]) -> list[RequestCell]:
        session = (cell.client, frozenset(destinations))
        waiting = self.waiting.setdefault(session, {})
        waiting[cell.first] = cell
        admitted = []
        while (ready := waiting.pop(self.next.get(session, 0), None)) is not None:
            admitted.append(ready)
            self.next[session] = ready.first + ready.payloads
        return admitted

    def note(self, cell: RequestCell, destinations: Iterable[str]) -> None:
        self.next[cell.client, frozenset(destinations)] = cell.first + cell.payloads


class Tape:
    """A run that can be edited: rows may be added, moved and removed; ``result`` numbers them again."""

    def __init__(self, facts: RunFacts, rows: Iterable[Row] = ()) -> None:
        lists = {name: list(getattr(facts, name)) for name in ("promises", "faulty", "incomplete")}
        self.facts = msgspec.structs.replace(facts, **lists)
        self.rows: dict[str, list[Row]] = {}
        self.destinations: dict[str, tuple[str, ...]] = {}
        self.requests: dict[str, tuple[RequestCell, ...]] = {}
        self.origin: dict[str, str] = {}
        self.keys: dict[str, bytes | None] = {}  # None: it was asked for as causal, and has no place in an order
        self.sessions: dict[str, Sessions] = {}
        self.misplaced: dict[str, int] = {}  # by process: how far its last delivery stands from its place
        self.now = 0
        for row in sorted(rows, key=lambda row: (row.process, row.seq)):
            self._add(row)
            if row.kind == EventKind.DELIVER:
                for cell in row.requests or ():
                    self._sessions(row.process).note(cell, row.destinations or ())

    def _add(self, row: Row) -> None:
        self.rows.setdefault(row.process, []).append(row)
        self.now = max(self.now, row.time_ns)
        if row.kind == EventKind.MULTICAST and row.message and row.destinations:
            self.destinations[row.message] = row.destinations
            self.requests[row.message] = row.requests or ()
            self.origin[row.message] = row.process
        if row.kind == EventKind.DELIVER and row.message and row.order_key:
            self.keys[row.message] = row.order_key

    def _sessions(self, process: str) -> Sessions:
        return self.sessions.setdefault(process, Sessions())

    def event(self, process: str, kind: EventKind, **cells: object) -> None:
        self._add(Row(process, 0, self.now + 1_000, str(kind), **cells))  # type: ignore[arg-type]

    def multicast(
        self,
        process: str,
        message: str,
        *destinations: str,
        requests: Sequence[RequestCell] | None = None,
        service: str | None = None,
    ) -> str:
        """A multicast without frames, of clients' requests or on the process's own behalf; returns the message."""
        if requests is None:
            requests = [request(process, int(message.rpartition(":")[2]))]
        self.event(
            process,
            EventKind.MULTICAST,
            message=message,
            destinations=destinations,
            requests=tuple(requests),
            layer=service,
            step=0,
        )
        if service == "causal":
            self.keys[message] = None
        return message

    def receipt(
        self, process: str, cell: RequestCell, *destinations: str, kind: str | None = None, turn: int | None = None
    ) -> None:
        self.event(process, EventKind.RECEIPT, destinations=destinations, requests=(cell,), layer=kind, position=turn)

    def send(self, sender: str, to: Sequence[str], about: Sequence[str] = (), layer: str = "forge") -> None:
        """Only the sender's half of a frame."""
        self.event(sender, EventKind.SEND, peers=tuple(to), about=tuple(about), layer=layer, bytes=64, step=1)

    def receive(self, receiver: str, sender: str, about: Sequence[str] = (), layer: str = "forge") -> None:
        """Only the receiver's half of a frame."""
        self.event(receiver, EventKind.RECEIVE, peers=(sender,), about=tuple(about), layer=layer, bytes=64, step=1)

    def frame(self, sender: str, receiver: str, *about: str) -> None:
        """One protocol message, sent and received."""
        self.send(sender, [receiver], about)
        self.receive(receiver, sender, about)

    def deliver(self, message: str, *processes: str, requests: Sequence[RequestCell] | None = None) -> None:
        """Each of the processes delivers; the first delivery of a message in the run gives it its order key."""
        key = self.keys.setdefault(message, len(self.keys).to_bytes(4, "big"))
        destinations = self.destinations[message]
        for process in processes:
            admitted = self.admitted(process, message) if requests is None else requests
            self.event(
                process,
                EventKind.DELIVER,
                message=message,
                destinations=destinations,
                requests=tuple(admitted),
                step=3,
                order_key=key,
            )

    def admitted(self, process: str, message: str) -> list[RequestCell]:
        found: list[RequestCell] = []
        for cell in self.requests.get(message, ()):
            if cell.client == self.origin[message]:
                found.append(cell)
            else:
                found += self._sessions(process).admit(cell, self.destinations[message])
        return found

    def alive(self, *groups: str) -> list[str]:
        """The correct members of the groups: those that have delivered everything so far."""
        return [p for group in groups for p in self.facts.groups[group] if p not in self.facts.faulty]

    def deliver_all(self, *messages: str) -> None:
        """Every correct addressed process delivers the messages in this order."""
        for message in messages:
            self.deliver(message, *self.alive(*self.destinations[message]))

    def delivered(self, process: str) -> list[str]:
        return [row.message or "" for row in self.rows.get(process, ()) if row.kind == EventKind.DELIVER]

    def swap(self, process: str, first: str, second: str) -> None:
        """The process delivers the two messages in the other order."""
        rows = self.rows[process]
        i = next(i for i, row in enumerate(rows) if row[3:5] == (EventKind.DELIVER, first))
        k = next(i for i, row in enumerate(rows) if row[3:5] == (EventKind.DELIVER, second))
        rows[i], rows[k] = rows[k], rows[i]

    def drop(self, process: str, message: str, kind: EventKind = EventKind.DELIVER) -> None:
        self.rows[process] = [row for row in self.rows[process] if row[3:5] != (kind, message)]

    def gap(self, process: str, before: str) -> None:
        """The process says that messages may be missing before one that it delivers."""
        rows = self.rows[process]
        at = next(i for i, row in enumerate(rows) if row[3:5] == (EventKind.DELIVER, before))
        rows.insert(at, Row(process, 0, rows[at].time_ns, str(EventKind.GAP)))

    def join(self, newcomer: str, group: str) -> None:
        """Somebody new is in a group."""
        self.facts.groups[group] = [*self.facts.groups[group], newcomer]

    def adopt(self, newcomer: str, donor: str, last: str | None = None) -> None:
        """A process goes on behind what another one has delivered, up to its last message or this one."""
        log = [row for row in self._logged(donor) if row.kind == EventKind.DELIVER]
        if last is not None:
            log = log[: 1 + next(i for i, row in enumerate(log) if row.message == last)]
        sessions = self.sessions[newcomer] = Sessions()
        for row in log:
            for cell in row.requests or ():
                sessions.note(cell, row.destinations or ())
        message = log[-1].message if log else None
        self.event(newcomer, EventKind.ADOPT, message=message, peers=(donor,), position=sum(map(_taken, log)))

    def _logged(self, process: str) -> list[Row]:
        """What it has delivered, and what it took over before that."""
        rows = self.rows.get(process, [])
        adopted = next((row for row in rows if row.kind == EventKind.ADOPT), None)
        if adopted is None or not adopted.peers or adopted.message is None:
            return rows
        before = self._logged(adopted.peers[0])
        return [*before[: 1 + [row[3:5] for row in before].index((EventKind.DELIVER, adopted.message))], *rows]

    def fail(self, process: str) -> None:
        """The process crashes now and stays down."""
        self.event(process, EventKind.CRASH)
        self.facts.faulty.append(process)

    def result(self) -> tuple[RunFacts, list[Row]]:
        """The run, with fresh sequence numbers and with times that grow with them, in the order of time."""
        found: list[Row] = []
        for rows in self.rows.values():
            times = sorted(row.time_ns for row in rows)
            position = 0
            placed = (EventKind.DELIVER, EventKind.GAP, EventKind.VIEW)
            last = max((i for i, row in enumerate(rows) if row.kind in placed), default=-1)
            for i, row in enumerate(rows):
                if i == last:
                    position += self.misplaced.get(row.process, 0)
                if row.kind == EventKind.ADOPT:
                    position = row.position or 0
                kept = row.position if row.kind in (EventKind.RECEIPT, EventKind.ADOPT) else None
                at = position if row.kind in placed else kept
                found.append(row._replace(seq=i, time_ns=times[i], position=at))
                if row.kind == EventKind.DELIVER:
                    position += _taken(row)
                elif row.kind in placed:
                    position += 1
        return self.facts, sorted(found, key=lambda row: (row.time_ns, row.process, row.seq))


def _taken(row: Row) -> int:
    return sum(cell.payloads for cell in row.requests or ())


class _World:
    """A perfect sequencer and slow processes: what it writes is honest by construction.

    A message gets its place in the one global order after its sender multicast it, a sender's messages in the
    order in which they were multicast; so a message always comes after all that its sender had seen.
    """

    def __init__(self, tape: Tape, seed: int, senders: Sequence[str], gossip: int) -> None:
        self.tape = tape
        self.random = random.Random(seed)
        self.senders = senders  # processes outside all groups
        self.gossip = gossip
        self.down: set[str] = set()
        self.missed: dict[str, list[tuple[str, tuple[str, ...], int]]] = {}
        self.pending: dict[str, deque[str]] = {}  # by sender: multicast, not yet ordered
        self.ordered: dict[str, deque[str]] = {p: deque() for p in self.members()}  # by process: not yet delivered
        self.sent = 0
        self.newest: dict[tuple[str, ...], str] = {}  # by destinations: the last message to them
        self.asked: dict[tuple[str, tuple[str, ...]], list[RequestCell]] = {}  # by client and destinations

    def members(self) -> list[str]:
        return [p for group, members in self.tape.facts.groups.items() if group != "idle" for p in members]

    def groups(self) -> list[str]:
        return [group for group in self.tape.facts.groups if group != "idle"]

    def open(self) -> None:
        """Two processes send to all groups, and g2 delivers both at once: a pair that a forgery may swap."""
        for sender in self.senders[:2]:
            self.send(sender, tuple(self.groups()))
            self.order()
        for process in self.tape.facts.groups.get("g2", ()):
            for message in self.ordered[process]:
                self.tape.deliver(message, process)
            self.ordered[process].clear()

    def multicast(self) -> None:
        groups = self.groups()
        chosen = set(self.random.sample(groups, self.random.randint(1, min(3, len(groups)))))
        destinations = tuple(group for group in groups if group in chosen)
        up = [p for p in self.members() if p not in self.down]
        if self.senders and self.sent % 3 == 0:
            self.send(self.senders[self.sent // 3 % len(self.senders)], destinations)
        elif self.sent % 3 == 1:
            self.send(self.random.choice(up), destinations)
        else:
            addressed = [p for group in destinations for p in self.tape.facts.groups[group]]
            member = self.random.choice([p for p in addressed if p in up] or up)
            self.send(member, destinations, self._gathered(member, destinations))

    def _gathered(self, member: str, destinations: tuple[str, ...]) -> list[RequestCell]:
        """Requests of some clients, acknowledged. One that changed member sends again whatever it sent before."""
        cells: list[RequestCell] = []
        for client in self.random.sample(CLIENTS, self.random.randint(1, 3)):
            asked = self.asked.setdefault((client, destinations), [])
            if asked and self.random.random() < 0.3:
                again = asked[self.random.randrange(len(asked)) :]
            else:
                end = asked[-1].first + asked[-1].payloads if asked else 0
                asked.append(request(client, end, self.random.choice([1, 1, 3])))
                # Its predecessor may have gone through a member whose messages come later.
                again = asked[-2:]
            for cell in again:
                self.tape.receipt(member, cell, *destinations, kind="majority" if cell.first % 2 else None)
            cells += again
        return cells

    def send(self, sender: str, destinations: tuple[str, ...], requests: list[RequestCell] | None = None) -> None:
        self.sent += 1
        message = self.tape.multicast(sender, f"{sender}:{self.sent}", *destinations, requests=requests)
        self.pending.setdefault(sender, deque()).append(message)
        self._frames(sender, message, [p for group in destinations for p in self.tape.facts.groups[group]])
        before = self.newest.get(destinations)
        if before is not None:  # as a consensus inside a group speaks of many messages
            self._frame(self.tape.facts.groups[destinations[0]][0], self._others(destinations[0]), (before, message), 1)
        self.newest[destinations] = message

    def _others(self, group: str) -> list[str]:
        return self.tape.facts.groups[group][1:]

    def _frames(self, sender: str, message: str, addressed: list[str]) -> None:
        self._frame(sender, addressed, (message,), 1)
        for turn in range(self.gossip):
            for process in addressed:
                self._frame(process, addressed, (message,), 2 + turn)
        for process in addressed:
            self._frame(process, [sender], (message,), 2 + self.gossip)
        self._frame(addressed[0], addressed[-1:], (), 1)  # about none

    def _frame(self, sender: str, to: Sequence[str], about: tuple[str, ...], step: int) -> None:
        peers = tuple(p for p in to if p != sender)
        if sender in self.down or not peers:
            return
        cells = {"about": about, "layer": "sequencer", "bytes": 80, "step": step}
        self.tape.event(sender, EventKind.SEND, peers=peers, **cells)
        for receiver in peers:
            if receiver in self.down:
                self.missed.setdefault(receiver, []).append((sender, about, step))
            else:
                self.tape.event(receiver, EventKind.RECEIVE, peers=(sender,), **cells)

    def order(self) -> None:
        sender = self.random.choice(sorted(s for s, waiting in self.pending.items() if waiting))
        message = self.pending[sender].popleft()
        self.tape.keys[message] = len(self.tape.keys).to_bytes(4, "big")
        for group in self.tape.destinations[message]:
            for process in self.tape.facts.groups[group]:
                self.ordered[process].append(message)

    def deliver(self) -> bool:
        ready = [p for p, waiting in self.ordered.items() if waiting and p not in self.down]
        if ready:
            process = self.random.choice(ready)
            self.tape.deliver(self.ordered[process].popleft(), process)
        return bool(ready)

    def crash(self, process: str) -> None:
        self.tape.event(process, EventKind.CRASH)
        self.down.add(process)
        witness = next(p for p in self.members() if p not in self.down)
        self.tape.event(witness, EventKind.SUSPECT, peers=(process,))

    def recover(self, process: str) -> None:
        self.down.discard(process)
        self.tape.event(process, EventKind.RECOVER)
        for sender, about, step in self.missed.pop(process, ()):
            cells = {"about": about, "layer": "sequencer", "bytes": 80, "step": step}
            self.tape.event(process, EventKind.RECEIVE, peers=(sender,), **cells)

    def run(self, messages: int, faults: dict[int, tuple[str, str]]) -> None:
        """Let things happen in a random order until all is sent, ordered and delivered."""
        if messages >= 2:
            self.open()
        while self.sent < messages or any(self.pending.values()):
            happening = self.random.random()
            if self.sent < messages and happening < 0.25:
                action, process = faults.pop(self.sent, ("", ""))
                if action:
                    getattr(self, action)(process)
                self.multicast()
            elif any(self.pending.values()) and happening < 0.5:
                self.order()
            else:
                self.deliver()
        while self.deliver():
            pass


def honest_run(
    seed: int,
    *,
    groups: int = 3,
    members: int = 3,
    senders: int = 2,
    messages: int = 30,
    gossip: int = 0,
    run: str | None = None,
) -> tuple[RunFacts, list[Row]]:
    """A drained run in which all properties hold.

    Groups g1, g2, ... have members g1.1, g1.2, ...; c1, c2, ... are processes outside all groups. These and the members
    multicast on their own behalf; the clients of `CLIENTS` hand their requests to members. The group ``idle`` is never
    addressed. The last member of g1 crashes for good, the last of the last group crashes and recovers.
    ``gossip`` rounds of frames from all to all per message make the run longer without more messages.
    """
    facts, rows = _honest_run(seed, groups, members, senders, messages, gossip, run)
    return deepcopy(facts), list(rows)


@lru_cache(maxsize=64)  # hundreds of forgeries stand on the same few runs
def _honest_run(
    seed: int, groups: int, members: int, senders: int, messages: int, gossip: int, run: str | None
) -> tuple[RunFacts, list[Row]]:
    shape = {f"g{i}": [f"g{i}.{k}" for k in range(1, members + 1)] for i in range(1, groups + 1)}
    facts = RunFacts(
        run=run or f"honest-{seed}",
        driver="simulation",
        protocol="sequencer",
        groups={**shape, "idle": ["idle.1", "idle.2"]},
        promises=list(PROPERTIES),
        drained=True,
        clock_error_ns=0,
        seed=seed,
    )
    tape = Tape(facts)
    world = _World(tape, seed, [f"c{i}" for i in range(1, senders + 1)], gossip)
    faults: dict[int, tuple[str, str]] = {}
    if members > 1 and messages >= 10:
        slow = f"g{groups}.{members - (groups == 1)}"
        faults = {messages * 3 // 10: ("crash", slow), messages // 2: ("recover", slow)}
        faults[messages * 7 // 10] = ("crash", f"g1.{members}")
        tape.facts.faulty.append(f"g1.{members}")
    world.run(messages, faults)
    return tape.result()
