"""A few processes whose frames arrive when a test says so."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.core import Buffers, OrderingProtocol, Process, ProcessId, Topology
from antiphon.core.channel import Transport
from antiphon.core.effects import Log, Send
from antiphon.core.inputs import AnyInput, Begin, Multicast, Receive, Suspect, TurnEnd


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
        for at in self.processes:
            self.step(at, Begin(0))

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
        events = [effect.event for effect in effects if isinstance(effect, Log)]
        self.keys[at].update({str(event.id): event.key for event in events})
        return [str(event.id) for event in events]

    def multicast(self, at: str, *groups: str) -> list[str]:
        return self.step(at, Multicast(0, self.topology.destinations(set(groups) or {"g"}), (b"x",)))

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
