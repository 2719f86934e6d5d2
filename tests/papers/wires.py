"""A few processes whose frames arrive when a test says so."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.core import Buffers, OrderingProtocol, Process, ProcessId, Topology
from antiphon.core.channel import Transport
from antiphon.core.effects import Log, Send
from antiphon.core.events import Delivered
from antiphon.core.inputs import AnyInput, Begin, Multicast, NewRoster, Receive, Suspect, TurnEnd


class Wires:
    """The members of one group g of n, or of groups of these sizes, and senders outside."""

    def __init__(
        self,
        kind: type[OrderingProtocol],
        n: int | Mapping[str, int],
        *outside: str,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.topology = topology = Topology.sized({"g": n} if isinstance(n, int) else dict(n))
        names = (*topology.processes, *(ProcessId(p) for p in outside))
        self.processes = {str(p): Process(p, topology, kind, options or {}) for p in names}
        self.under_way: dict[tuple[str, str], list[tuple[Transport, int, Buffers]]] = {}
        self.keys: dict[str, dict[str, bytes | None]] = {p: {} for p in self.processes}  # of all that each delivered
        self._made_of = kind, options or {}
        for at in self.processes:
            self.step(at, Begin(0, topology.roster))

    def step(self, at: str, happened: AnyInput) -> list[str]:
        """Returns the messages delivered."""
        process = self.processes[at]
        effects = process.step(happened)
        if process.turn_is_open:
            effects = [*effects, *process.step(TurnEnd(0))]
        for effect in effects:
            if isinstance(effect, Send):
                for peer, number in zip(effect.to, effect.numbers, strict=True):
                    self.under_way.setdefault((at, str(peer)), []).append((effect.transport, number, effect.frame))
        events = [e.event for e in effects if isinstance(e, Log) and isinstance(e.event, Delivered)]
        self.keys[at].update({str(event.id): event.key for event in events})
        return [str(event.id) for event in events]

    def multicast(self, at: str, *groups: str) -> list[str]:
        return self.step(at, Multicast(0, self.topology.destinations(set(groups) or {"g"}), (b"x",)))

    def replace(self, lost: str) -> str:
        """Somebody new has the place of a member. The others know when a test tells them (``install``)."""
        self.topology, newcomer = self.topology.replacing(ProcessId(lost))
        kind, options = self._made_of
        self.processes[newcomer] = Process(newcomer, self.topology, kind, options)
        self.keys[newcomer] = {}
        self.step(newcomer, Begin(0, self.topology.roster))
        return newcomer

    def install(self, *processes: str) -> None:
        for at in processes:
            self.step(at, NewRoster(0, self.topology.roster))

    def suspect(self, at: str, dead: str) -> list[str]:
        return self.step(at, Suspect(0, ProcessId(dead)))

    def arrive(self, source: str, at: str) -> list[str]:
        """The next frame from one to the other."""
        transport, number, frame = self.under_way[source, at].pop(0)
        return self.step(at, Receive(0, ProcessId(source), transport, number, frame))

    def drain(self, *processes: str) -> dict[str, list[str]]:
        """Let all frames among these arrive; returns what each delivers."""
        delivered: dict[str, list[str]] = {p: [] for p in processes}
        while ways := [way for way, frames in self.under_way.items() if frames and {*way} <= {*processes}]:
            delivered[ways[0][1]] += self.arrive(*ways[0])
        return delivered
