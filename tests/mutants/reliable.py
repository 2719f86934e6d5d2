"""Reliable multicast with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from antiphon.core import ProcessId
from antiphon.protocols.reliable import Reliable
from antiphon.services.label import Label
from antiphon.services.reliable import (
    Copy,
    EagerReliableMulticast,
    LazyReliableMulticast,
    UniformReliableMulticast,
)
from mutants.parts import UNIFORM_MUTANTS, with_parts
from mutants.services import under


class NoForwarding(EagerReliableMulticast):
    def forward(self, copy: Copy, *, to_origin: bool) -> None:
        pass


class DeliversEveryCopy(EagerReliableMulticast):
    def on_copy(self, sender: ProcessId, copy: Copy) -> None:
        if self.seen.add(copy.label, self.group):
            self.forward(copy, to_origin=False)
        self.delivered(copy.message, copy.label)


class OneMemoryForAllOrigins(EagerReliableMulticast):
    def on_copy(self, sender: ProcessId, copy: Copy) -> None:
        super().on_copy(sender, _without_origin(copy))


class ForwardsWithinItsGroupOnly(EagerReliableMulticast):
    def forward(self, copy: Copy, *, to_origin: bool) -> None:
        own = self.topology.members(self.group)
        self.send([p for p in own if p not in (self.me, copy.label.origin)], copy)


class ForwardsToEverybody(EagerReliableMulticast):
    def on_copy(self, sender: ProcessId, copy: Copy) -> None:
        if self.group in copy.message.destinations:
            super().on_copy(sender, copy)

    def forward(self, copy: Copy, *, to_origin: bool) -> None:
        self.send([p for p in self.topology.processes if p not in (self.me, copy.label.origin)], copy)


class BelievesTheOriginOnly(EagerReliableMulticast):
    def on_copy(self, sender: ProcessId, copy: Copy) -> None:
        if sender == copy.label.origin:
            super().on_copy(sender, copy)


class NeverSuspects(LazyReliableMulticast):
    def on_suspect(self, process: ProcessId) -> None:
        pass


class KeepsNothing(LazyReliableMulticast):
    def on_copy(self, sender: ProcessId, copy: Copy) -> None:
        super().on_copy(sender, copy)
        self.kept.clear()


class DoesNotEchoToTheOrigin(UniformReliableMulticast):
    def others(self, label: Label) -> list[ProcessId]:
        return [p for p in super().others(label) if p != label.origin]


def _without_origin(copy: Copy) -> Copy:
    label = copy.label
    return Copy(copy.message, Label("all", label.groups, label.numbers))


MUTANTS = under(Reliable) + tuple(
    with_parts(Reliable, kind)
    for kind in (
        NoForwarding,
        DeliversEveryCopy,
        OneMemoryForAllOrigins,
        ForwardsWithinItsGroupOnly,
        ForwardsToEverybody,
        BelievesTheOriginOnly,
        NeverSuspects,
        KeepsNothing,
        DoesNotEchoToTheOrigin,
        *UNIFORM_MUTANTS,
    )
)
