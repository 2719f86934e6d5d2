"""The causal graph over channels that lose nothing: a world that can be searched to its end."""

from __future__ import annotations

from antiphon.core import ProcessId, Timer, Transport
from antiphon.protocols import protocol_named
from antiphon.services.causal_graph import CausalGraph, Missing
from antiphon.services.configuration import GraphProtocol
from antiphon.services.dag import Ack, Cast, Name, Note
from mutants.parts import with_parts


class Early(Timer, frozen=True):
    """What came before its view is looked at."""


class WithoutLoss(CausalGraph):
    """Nothing has to be repeated, and nothing is asked for, but where a view ends: whoever sent it may be gone then.

    A message that comes before its view is kept, where else it would be dropped and asked for later.
    """

    transport = Transport.RELIABLE

    early: list[Cast | Ack | Note]

    def initialise(self) -> None:
        self.early = []
        super().initialise()

    def begin_view(self, number: int, machines: tuple[ProcessId, ...], starts: list[int]) -> None:
        super().begin_view(number, machines, starts)
        self.watching = True  # so that it does not begin to
        if self.early:
            self.set_timer(Early(), 0)

    def receive(self, cast: Cast | Ack | Note) -> None:
        if cast.view > self.view:
            self.early.append(cast)
        else:
            super().receive(cast)

    def on_early(self, timer: Early) -> None:
        early, self.early = self.early, []
        for cast in early:
            self.receive(cast)

    def fetch_soon(self) -> None:
        pass

    def seek(self, counts: list[int]) -> None:
        super().seek(counts)
        wanted = [
            Name(machine, number)
            for machine, here, count in zip(self.machines, self.dag.counts, counts, strict=True)
            for number in range(here + 1, count + 1)
        ]
        missing = [name for name in wanted if not self.is_here(name)]
        if missing:
            self.send(self.others, Missing(missing, self.view))

    def on_missing(self, sender: ProcessId, missing: Missing) -> None:
        for name in missing.names if missing.view == self.view else ():
            if (cast := self.kept(name)) is not None:
                self.send(sender, cast)


def lossless(protocol: str) -> type[GraphProtocol]:
    kind = protocol_named(protocol)
    assert issubclass(kind, GraphProtocol)
    return with_parts(kind, WithoutLoss)
