"""The parts under a consensus-based multicast, chosen by options: any reliable multicast, any consensus."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, ClassVar

import msgspec

from antiphon.core import FaultModel, GroupId, Message, OrderingProtocol
from antiphon.core.errors import BadFrame, UsageError
from antiphon.services.chandra_toueg import ChandraToueg
from antiphon.services.consensus import Consensus, ConsensusKind, ConsensusOptions
from antiphon.services.hurfin_raynal import HurfinRaynal
from antiphon.services.label import Label
from antiphon.services.reliable import KINDS, ReliableKind, ReliableMulticast, ReliableOptions

CONSENSUS: dict[ConsensusKind, type[Consensus]] = {"ct": ChandraToueg, "hr": HurfinRaynal}


class StackOptions(msgspec.Struct, frozen=True):
    consensus: ConsensusKind = "hr"
    reliable: ReliableKind = "uniform"
    estimates: bool = True  # see ConsensusOptions
    flood_origin: bool = True  # ConsensusOptions.echo_origin
    echo_origin: bool = False  # see ReliableOptions


class StackedProtocol(OrderingProtocol):
    """A protocol on a reliable multicast and a consensus, which know nothing of one another."""

    Options = StackOptions
    options: StackOptions
    Value: ClassVar[Any]  # what its consensus decides on

    reliable: ReliableMulticast
    consensus: Consensus

    def initialise(self) -> None:
        self.reliable = self.make_reliable(self.on_r_deliver)
        self.consensus = self.make_consensus(self.on_decided)

    @property
    def group(self) -> GroupId:
        return self.topology.group_of[self.me]

    def make_reliable(self, delivered: Callable[[Message, Label], None]) -> ReliableMulticast:
        options = ReliableOptions(self.options.echo_origin)
        return self.part(KINDS[self.options.reliable], "reliable", options, delivered=delivered)

    def make_consensus(self, decided: Callable[[Label, bytes], None], *, qualified: bool = False) -> Consensus:
        options = ConsensusOptions(self.options.estimates, self.options.flood_origin, qualified)
        kind = CONSENSUS[self.options.consensus]
        return self.part(kind, "consensus", options, decided=decided, accept=self.accept)

    def decode(self, value: bytes) -> Any:
        """A value of the consensus, as decided."""
        return _decoder(self.Value).decode(value)

    def accept(self, value: bytes) -> None:
        if not _is_value(self.Value, value):
            raise BadFrame(f"{self.declaration.name} cannot decide on such a value.")

    def on_r_deliver(self, m: Message, label: Label) -> None:
        raise NotImplementedError

    def on_decided(self, instance: Label, value: bytes) -> None:
        raise NotImplementedError

    @classmethod
    def check(cls, options: StackOptions, model: FaultModel) -> None:
        """Uniform agreement needs a uniform reliable multicast (scalatom.txt, 3.4; tom.txt, 2.2)."""
        name, kind = cls.declaration.name, options.reliable
        if model.permanent and kind == "lazy":
            raise UsageError(f"{name} needs uniform agreement, which reliable=lazy loses when a process never returns.")
        if model.permanent and kind == "eager" and not model.sent_survives:
            raise UsageError(
                f"{name} needs uniform agreement, which reliable=eager gives only where what was sent survives its "
                "sender: use reliable=uniform."
            )


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


@lru_cache(maxsize=16)  # most messages of an instance have the same value
def _is_value(kind: Any, value: bytes) -> bool:
    try:
        _decoder(kind).decode(value)
    except msgspec.DecodeError:
        return False
    return True
