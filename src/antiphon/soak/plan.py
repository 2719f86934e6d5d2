"""Which faults strike in which episode: drawn from the seed alone, so that a seed names a whole campaign.

The kinds of faults are cards of a deck that is shuffled anew when all are drawn: even a short campaign meets most.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from antiphon.core import Topology
from antiphon.soak.network import NetworkFault, WireEnds

TRACE = "trace"  # the name of the disk that the trace is on
CROWD = 400  # callers; the soak itself may open few more files at once
LOST_DISKS = 3  # cards of that kind: what comes of one shows in what strikes the newcomer later
FAULTS_PER_EPISODE = ([1, 2, 3], [50, 35, 15])


class SoakFault(msgspec.Struct, frozen=True, kw_only=True, tag_field="fault"):
    """Something that goes wrong ``after`` so many seconds of an episode."""

    after: float = 0.0


class Kill(SoakFault, frozen=True, tag="kill"):
    """kill -9; they are started again after ``seconds``."""

    processes: tuple[str, ...]
    seconds: float


class KillStarting(SoakFault, frozen=True, tag="kill while starting"):
    """kill -9 of a process, and then of each of its next starts after so many seconds."""

    process: str
    moments: tuple[float, ...]


class PauseMembers(SoakFault, frozen=True, tag="pause"):
    processes: tuple[str, ...]
    seconds: float


class BadNetwork(SoakFault, frozen=True, tag="network"):
    kind: NetworkFault
    wires: tuple[WireEnds, ...]
    where: str  # in words
    outward: bool
    delay: float
    seconds: float


class FullDisk(SoakFault, frozen=True, tag="full disk"):
    """``seconds`` count from when the process says that it is full, or some process that it finds no room to trace."""

    disk: str  # a process, or TRACE
    seconds: float


class FailedDisk(SoakFault, frozen=True, tag="failed disk"):
    process: str


class LostDisk(SoakFault, frozen=True, tag="lost disk"):
    """kill -9, and all that was on the disk is gone: another member takes its place."""

    process: str


class DownUp(SoakFault, frozen=True, tag="down and up"):
    seconds: float


class KillClient(SoakFault, frozen=True, tag="client killed"):
    client: str


class Crowd(SoakFault, frozen=True, tag="crowd"):
    """So many callers at once, who say who they are and then nothing, and read nothing."""

    process: str
    callers: int
    seconds: float


class Episode(msgspec.Struct, frozen=True):
    number: int
    faults: tuple[SoakFault, ...]


def describe(fault: SoakFault) -> str:
    match fault:
        case Kill():
            return f"kill -9 of {', '.join(fault.processes)} for {fault.seconds:.1f} s"
        case KillStarting():
            starts = "start" if len(fault.moments) == 1 else f"{len(fault.moments)} starts"
            return f"kill -9 of {fault.process} and of its next {starts}"
        case PauseMembers():
            return f"pause of {', '.join(fault.processes)} for {fault.seconds:.1f} s"
        case BadNetwork():
            return f"{fault.kind} {fault.where} for {fault.seconds:.1f} s"
        case FullDisk():
            return f"full disk of {fault.disk} for {fault.seconds:.1f} s"
        case FailedDisk():
            return f"failed disk of {fault.process}"
        case LostDisk():
            return f"lost disk of {fault.process}, which is replaced"
        case DownUp():
            return f"down, and up after {fault.seconds:.1f} s"
        case KillClient():
            return f"kill -9 of client {fault.client}"
        case Crowd():
            return f"a crowd of {fault.callers} callers at {fault.process} for {fault.seconds:.1f} s"
    raise AssertionError(f"{fault!r} is a fault that has no words.")


def at_present(fault: SoakFault, present: Callable[[str], str]) -> SoakFault:
    """The same fault of those who have the places now: a plan names members as they were at first."""
    match fault:
        case Kill() | PauseMembers():
            return msgspec.structs.replace(fault, processes=tuple(map(present, fault.processes)))
        case KillStarting() | FailedDisk() | LostDisk() | Crowd():
            return msgspec.structs.replace(fault, process=present(fault.process))
        case FullDisk():
            return msgspec.structs.replace(fault, disk=present(fault.disk))
        case BadNetwork():
            wires = tuple((present(source), present(target)) for source, target in fault.wires)
            where = " ".join(present(word) for word in fault.where.split(" "))
            return msgspec.structs.replace(fault, wires=wires, where=where)
    return fault


def kind_of(fault: SoakFault) -> str:
    """Under which name a fault is counted."""
    return str(fault.kind) if isinstance(fault, BadNetwork) else str(fault.__struct_config__.tag)


class Planner:
    """Draws episodes for a cluster, its clients, and the processes whose disks can be filled."""

    def __init__(
        self, topology: Topology, clients: Sequence[str], disks: Sequence[str], seed: int, *, replaces: bool = False
    ) -> None:
        """``replaces``: members can be replaced. Only the first of each group never is: its log tells of all of it."""
        self._replaces = replaces and all(len(members) > 2 for members in topology.groups.values())
        self._groups = {str(group): [str(p) for p in members] for group, members in topology.groups.items()}
        self._everyone = [str(process) for process in topology.processes]
        self._clients = list(clients)
        self._disks = list(disks)
        self._random = random.Random(seed)

    def episodes(self) -> Iterator[Episode]:
        cards = self._draw()
        number = 0
        while True:
            amount = self._random.choices(*FAULTS_PER_EPISODE)[0]
            faults: list[SoakFault] = []
            while len(faults) < amount:
                fault = next(cards)()
                after = self._random.uniform(0.0, 2.0) if faults else 0.0
                faults.append(msgspec.structs.replace(fault, after=round(after, 2)))
            number += 1
            yield Episode(number, tuple(faults))

    def _draw(self) -> Iterator[Callable[[], SoakFault]]:
        while True:
            deck = self._deck()
            self._random.shuffle(deck)
            yield from deck

    def _deck(self) -> list[Callable[[], SoakFault]]:
        networks = [
            partial(self._network, kind, wires) for kind in NetworkFault for wires in (self._between, self._from)
        ]
        return [
            lambda: self._kill(1),
            lambda: self._kill(2),
            self._kill_group,
            lambda: self._kill(len(self._everyone)),
            self._kill_starting,
            lambda: self._pause(self._some(self._random.choice((1, 1, 2)))),
            lambda: self._pause(self._groups[self._random.choice(list(self._groups))]),
            lambda: FailedDisk(process=self._random.choice(self._everyone)),
            lambda: DownUp(seconds=self._seconds(0.0, 4.0)),
            lambda: KillClient(client=self._random.choice(self._clients)),
            lambda: Crowd(process=self._random.choice(self._everyone), callers=CROWD, seconds=self._seconds(1.0, 5.0)),
            *networks,
            lambda: FullDisk(disk=self._random.choice(self._disks), seconds=self._seconds(1.0, 5.0)),
            lambda: FullDisk(disk=TRACE, seconds=self._seconds(4.0, 10.0)),
            *([self._lose_disk] * LOST_DISKS if self._replaces else []),
        ]

    # The cards ------------------------------------------------------------------------------------------------------

    def _kill(self, amount: int) -> SoakFault:
        return Kill(processes=tuple(self._some(amount)), seconds=self._seconds(0.0, 3.0))

    def _kill_group(self) -> SoakFault:
        members = self._groups[self._random.choice(list(self._groups))]
        return Kill(processes=tuple(members), seconds=self._seconds(0.0, 3.0))

    def _lose_disk(self) -> SoakFault:
        _, *others = self._groups[self._random.choice(list(self._groups))]
        return LostDisk(process=self._random.choice(others))

    def _kill_starting(self) -> SoakFault:
        moments = [self._seconds(0.02, 1.0) for _ in range(self._random.randint(1, 3))]
        return KillStarting(process=self._random.choice(self._everyone), moments=tuple(moments))

    def _pause(self, processes: Sequence[str]) -> SoakFault:
        return PauseMembers(processes=tuple(processes), seconds=self._seconds(0.5, 6.0))

    def _network(self, kind: NetworkFault, wires: Callable[[], tuple[list[WireEnds], str]]) -> SoakFault:
        chosen, where = wires()
        outward = self._random.random() < 0.5
        delay = self._seconds(0.02, 0.5)
        shortest = 3.0 if kind in (NetworkFault.FREEZE, NetworkFault.SILENCE, NetworkFault.ONE_WAY) else 1.0
        seconds = self._seconds(shortest, 4 * shortest)
        return BadNetwork(kind=kind, wires=tuple(chosen), where=where, outward=outward, delay=delay, seconds=seconds)

    def _between(self) -> tuple[list[WireEnds], str]:
        """Wires between members: one of them, all of one member, or all between two groups."""
        shape = self._random.choice(("one", "member", "groups") if len(self._groups) > 1 else ("one", "member"))
        if shape == "one":
            source, target = self._random.sample(self._everyone, 2)
            return [(source, target)], f"from {source} to {target}"
        if shape == "member":
            one = self._random.choice(self._everyone)
            wires = [wire for other in self._everyone if other != one for wire in ((one, other), (other, one))]
            return wires, f"between {one} and all others"
        here, there = self._random.sample(list(self._groups), 2)
        wires = [wire for a in self._groups[here] for b in self._groups[there] for wire in ((a, b), (b, a))]
        return wires, f"between {here} and {there}"

    def _from(self) -> tuple[list[WireEnds], str]:
        """Wires from clients: all of one client, or all to one member."""
        if self._random.random() < 0.5:
            client = self._random.choice(self._clients)
            return [(client, process) for process in self._everyone], f"between client {client} and all members"
        member = self._random.choice(self._everyone)
        return [(client, member) for client in self._clients], f"between {member} and all clients"

    def _some(self, amount: int) -> list[str]:
        return self._random.sample(self._everyone, min(amount, len(self._everyone)))

    def _seconds(self, shortest: float, longest: float) -> float:
        return round(self._random.uniform(shortest, longest), 2)
