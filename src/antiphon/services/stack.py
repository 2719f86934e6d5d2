"""The parts under a consensus-based multicast, chosen by options: any reliable multicast, any consensus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any, ClassVar

import msgspec

from antiphon.core import FaultModel, Message, MessageId, OrderingProtocol
from antiphon.core.buffers import UNDECODABLE
from antiphon.core.errors import BadFrame, UsageError
from antiphon.services.chandra_toueg import ChandraToueg
from antiphon.services.consensus import Consensus, ConsensusKind, ConsensusOptions
from antiphon.services.hurfin_raynal import HurfinRaynal
from antiphon.services.label import Label, check_numbers
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
    to_everybody: ClassVar[bool] = False  # see ReliableOptions

    reliable: ReliableMulticast
    consensus: Consensus

    def initialise(self) -> None:
        self.reliable = self.make_reliable(self.when_r_delivered)
        self.consensus = self.make_consensus(self.when_decided)

    def make_reliable(self, delivered: Callable[[Message, Label], None]) -> ReliableMulticast:
        options = ReliableOptions(self.options.echo_origin, self.to_everybody)
        return self.part(KINDS[self.options.reliable], "reliable", options, delivered=delivered)

    def make_consensus(self, decided: Callable[[Label, bytes], None], *, qualified: bool = False) -> Consensus:
        options = ConsensusOptions(self.options.estimates, self.options.flood_origin, qualified)
        kind = CONSENSUS[self.options.consensus]
        return self.part(kind, "consensus", options, decided=decided, accept=self.accept, about_value=self.about_value)

    def decode(self, value: bytes) -> Any:
        """A value of the consensus, as decided."""
        return _decoder(self.Value).decode(value)

    def accept(self, instance: Label, value: bytes) -> None:
        if not _is_value(self.numbers_of, self.Value, value):
            raise BadFrame(f"{self.declaration.name} cannot decide on such a value.")

    def about_value(self, value: bytes) -> tuple[MessageId, ...]:
        return _about(self.ids_of, self.Value, value)

    @staticmethod
    def ids_of(value: Any) -> Iterable[MessageId]:
        """All messages that a value of the consensus is about."""
        raise NotImplementedError

    @staticmethod
    def numbers_of(value: Any) -> Iterable[int]:
        """All clocks in a value of the consensus."""
        return ()

    def when_r_delivered(self, m: Message, label: Label) -> None:
        raise NotImplementedError

    def when_decided(self, instance: Label, value: bytes) -> None:
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
def _is_value(numbers_of: Callable[[Any], Iterable[int]], kind: Any, value: bytes) -> bool:
    try:
        check_numbers([*numbers_of(_decoder(kind).decode(value))])
    except (*UNDECODABLE, BadFrame):
        return False
    return True


@lru_cache(maxsize=16)
def _about(ids_of: Callable[[Any], Iterable[MessageId]], kind: Any, value: bytes) -> tuple[MessageId, ...]:
    return tuple(ids_of(_decoder(kind).decode(value)))
