"""Runs in which every property holds, written without the simulator: the ground on which forgeries are planted."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from antiphon.trace import Kind, Row, RunFacts

PROPERTIES = (
    "integrity",
    "validity",
    "agreement",
    "uniform_agreement",
    "total_order",
    "acyclic_order",
    "fifo",
    "causal",
    "genuineness",
    "locality",
)


class Tape:
    """A run that can be edited: rows may be added, moved and removed; ``result`` numbers them again."""

    def __init__(self, facts: RunFacts, rows: Iterable[Row] = ()) -> None:
        self.facts = msgspec.structs.replace(facts, promises=list(facts.promises), faulty=list(facts.faulty))
        self.rows: dict[str, list[Row]] = {}
        self.destinations: dict[str, tuple[str, ...]] = {}
        self.keys: dict[str, str] = {}
        self.now = 0
        for row in sorted(rows, key=lambda row: (row.process, row.seq)):
            self._add(row)

    def _add(self, row: Row) -> None:
        self.rows.setdefault(row.process, []).append(row)
        self.now = max(self.now, row.time_ns)
        if row.kind == Kind.MULTICAST and row.message and row.destinations:
            self.destinations[row.message] = row.destinations
        if row.kind == Kind.DELIVER and row.message and row.order_key:
            self.keys[row.message] = row.order_key

    def event(self, process: str, kind: Kind, **cells: object) -> None:
        self._add(Row(process, 0, self.now + 1_000, str(kind), **cells))  # type: ignore[arg-type]

    def multicast(self, process: str, message: str, *destinations: str) -> str:
        """A multicast that costs no frames; returns the message."""
        self.event(process, Kind.MULTICAST, message=message, destinations=destinations, step=0)
        return message

    def frame(self, sender: str, receiver: str, message: str | None, step: int = 1) -> None:
        """One protocol message, sent and received."""
        cells = {"message": message, "layer": "forge", "bytes": 64, "step": step}
        self.event(sender, Kind.SEND, peer=receiver, **cells)
        self.event(receiver, Kind.RECEIVE, peer=sender, **cells)

    def deliver(self, message: str, *processes: str) -> None:
        """Each of the processes delivers; the first delivery of a message in the run gives it its order key."""
        key = self.keys.setdefault(message, f"{len(self.keys):08d}")
        destinations = self.destinations[message]
        for process in processes:
            self.event(
                process, Kind.DELIVER, message=message, destinations=destinations, step=3, order_key=key, layer="forge"
            )

    def alive(self, *groups: str) -> list[str]:
        """The correct members of the groups: those that have delivered everything so far."""
        return [p for group in groups for p in self.facts.groups[group] if p not in self.facts.faulty]

    def deliver_all(self, *messages: str) -> None:
        """Every correct addressed process delivers the messages in this order."""
        for message in messages:
            self.deliver(message, *self.alive(*self.destinations[message]))

    def delivered(self, process: str) -> list[str]:
        return [row.message or "" for row in self.rows.get(process, ()) if row.kind == Kind.DELIVER]

    def senders(self, message: str) -> list[str]:
        return [p for p, rows in self.rows.items() for row in rows if row[3:5] == (Kind.MULTICAST, message)]

    def swap(self, process: str, first: str, second: str) -> None:
        """The process delivers the two messages in the other order."""
        rows = self.rows[process]
        i = next(i for i, row in enumerate(rows) if row[3:5] == (Kind.DELIVER, first))
        k = next(i for i, row in enumerate(rows) if row[3:5] == (Kind.DELIVER, second))
        rows[i], rows[k] = rows[k], rows[i]

    def drop(self, process: str, message: str, kind: Kind = Kind.DELIVER) -> None:
        self.rows[process] = [row for row in self.rows[process] if row[3:5] != (kind, message)]

    def fail(self, process: str) -> None:
        """The process crashes now and stays down."""
        self.event(process, Kind.CRASH)
        self.facts.faulty.append(process)

    def result(self) -> tuple[RunFacts, list[Row]]:
        """The run, with fresh sequence numbers and with times that grow with them, in the order of time."""
        found: list[Row] = []
        for rows in self.rows.values():
            times = sorted(row.time_ns for row in rows)
            found += (row._replace(seq=i, time_ns=times[i]) for i, row in enumerate(rows))
        return self.facts, sorted(found, key=lambda row: (row.time_ns, row.process, row.seq))


class _World:
    """A perfect sequencer and slow processes: what it writes is honest by construction.

    A message gets its place in the one global order after its sender multicast it, a sender's messages in the
    order in which they were multicast; so a message always comes after all that its sender had seen.
    """

    def __init__(self, tape: Tape, seed: int, clients: Sequence[str], gossip: int) -> None:
        self.tape = tape
        self.random = random.Random(seed)
        self.clients = clients
        self.gossip = gossip
        self.down: set[str] = set()
        self.missed: dict[str, list[tuple[str, str, int]]] = {}
        self.pending: dict[str, deque[str]] = {}  # by sender: multicast, not yet ordered
        self.ordered: dict[str, deque[str]] = {p: deque() for p in self.members()}  # by process: not yet delivered
        self.sent = 0

    def members(self) -> list[str]:
        return [p for group, members in self.tape.facts.groups.items() if group != "idle" for p in members]

    def groups(self) -> list[str]:
        return [group for group in self.tape.facts.groups if group != "idle"]

    def open(self) -> None:
        """Two clients send to all groups, and g2 delivers both at once: a pair that a forgery may swap."""
        for sender in self.clients[:2]:
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
        if self.clients and self.sent % 3 == 0:
            sender = self.clients[self.sent // 3 % len(self.clients)]
        else:
            sender = self.random.choice([p for p in self.members() if p not in self.down])
        self.send(sender, destinations)

    def send(self, sender: str, destinations: tuple[str, ...]) -> None:
        self.sent += 1
        message = self.tape.multicast(sender, f"{sender}:{self.sent}", *destinations)
        self.pending.setdefault(sender, deque()).append(message)
        self._frames(sender, message, [p for group in destinations for p in self.tape.facts.groups[group]])

    def _frames(self, sender: str, message: str, addressed: list[str]) -> None:
        for process in addressed:
            self._frame(sender, process, message, 1)
        for turn in range(self.gossip):
            for process in addressed:
                for peer in addressed:
                    self._frame(process, peer, message, 2 + turn)
        for process in addressed:
            self._frame(process, sender, message, 2 + self.gossip)
        # A frame about many messages, as a consensus inside a group sends it, names none.
        self._frame(addressed[0], addressed[-1], None, 1)

    def _frame(self, sender: str, receiver: str, message: str | None, step: int) -> None:
        if sender in self.down or sender == receiver:
            return
        cells = {"message": message, "layer": "sequencer", "bytes": 80, "step": step}
        self.tape.event(sender, Kind.SEND, peer=receiver, **cells)
        if receiver in self.down:
            self.missed.setdefault(receiver, []).append((sender, message or "", step))
        else:
            self.tape.event(receiver, Kind.RECEIVE, peer=sender, **cells)

    def order(self) -> None:
        sender = self.random.choice(sorted(s for s, waiting in self.pending.items() if waiting))
        message = self.pending[sender].popleft()
        self.tape.keys[message] = f"{len(self.tape.keys):08d}"
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
        self.tape.event(process, Kind.CRASH)
        self.down.add(process)
        witness = next(p for p in self.members() if p not in self.down)
        self.tape.event(witness, Kind.SUSPECT, peer=process)

    def recover(self, process: str) -> None:
        self.down.discard(process)
        self.tape.event(process, Kind.RECOVER)
        for sender, message, step in self.missed.pop(process, ()):
            cells = {"message": message or None, "layer": "sequencer", "bytes": 80, "step": step}
            self.tape.event(process, Kind.RECEIVE, peer=sender, **cells)

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
    clients: int = 2,
    messages: int = 30,
    gossip: int = 0,
    run: str | None = None,
) -> tuple[RunFacts, list[Row]]:
    """A drained run in which all nine properties hold.

    Groups g1, g2, ... have members g1.1, g1.2, ...; c1, c2, ... are senders outside all groups. The group ``idle`` is
    never addressed. The last member of g1 crashes for good, the last of the last group crashes and recovers.
    ``gossip`` rounds of frames from all to all per message make the run longer without more messages.
    """
    shape = {f"g{i}": [f"g{i}.{k}" for k in range(1, members + 1)] for i in range(1, groups + 1)}
    facts = RunFacts(
        run=run or f"honest-{seed}",
        driver="simulation",
        protocol="sequencer",
        groups={**shape, "idle": ["idle.1", "idle.2"]},
        promises=list(PROPERTIES),
        drained=True,
        seed=seed,
    )
    tape = Tape(facts)
    world = _World(tape, seed, [f"c{i}" for i in range(1, clients + 1)], gossip)
    faults: dict[int, tuple[str, str]] = {}
    if members > 1 and messages >= 10:
        slow = f"g{groups}.{members - (groups == 1)}"
        faults = {messages * 3 // 10: ("crash", slow), messages // 2: ("recover", slow)}
        faults[messages * 7 // 10] = ("crash", f"g1.{members}")
        tape.facts.faulty.append(f"g1.{members}")
    world.run(messages, faults)
    return tape.result()
