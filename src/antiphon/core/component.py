"""The state-machine contract: what a protocol is made of, and all that it can do to the world.

A component declares its state as annotated variables, gives them their first values in ``initialise``, and handles
messages in ``on_<message>(sender, message)`` and timers in ``on_<name>_timer()``. Everything else is derived from
that: the wire format, the dispatch, the snapshot.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Union, get_origin, get_type_hints

import msgspec

from antiphon.core.declaration import Declaration, FaultModel
from antiphon.core.errors import BadFrame, UsageError
from antiphon.core.model import GroupId, Message, MessageId, ProcessId, Topology

if TYPE_CHECKING:
    from antiphon.core.process import Process


class Wire(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message between components of the same kind at different processes. Each kind has its own small tag."""


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For components that have nothing to choose."""


Part = TypeVar("Part", bound="Component")


class Component:
    """A deterministic state machine, alone or as a named part of another."""

    Options: ClassVar[type[msgspec.Struct]] = NoOptions

    def __init__(
        self,
        process: Process,
        layer: str,
        options: msgspec.Struct,
        upcalls: dict[str, Callable[..., object]],
        channel: Channel | None = None,
    ) -> None:
        self.process = process
        self.layer = layer
        self.channel = channel  # what carries its messages; None: the process's own channels
        self.options: Any = options
        self.me = process.me
        self.topology = process.topology
        self.contract = contract_of(type(self))
        self.index = process.register(self)
        for name, upcall in upcalls.items():
            setattr(self, name, upcall)
        self.handlers = {kind: getattr(self, name) for kind, name in self.contract.handlers.items()}
        self.initialise()

    def initialise(self) -> None:
        """Give every state variable its first value, and create the parts."""

    def begin(self) -> None:
        """The process starts for the first time."""

    def validate(self, message: Wire) -> None:
        """Raise BadFrame for a message of the right type that no component of this kind sends."""

    def on_suspect(self, process: ProcessId) -> None:
        """The failure detector began to suspect a process."""

    def on_trust(self, process: ProcessId) -> None:
        """The failure detector stopped suspecting a process."""

    def part(
        self, kind: type[Part], name: str, options: msgspec.Struct | None = None, /, **upcalls: Callable[..., object]
    ) -> Part:
        """Create a part. It reaches this component only through ``upcalls``, and shares no variable with it."""
        return kind(self.process, f"{self.layer}/{name}", options or kind.Options(), upcalls, self.channel)

    @property
    def now(self) -> int:
        """The time of the input being handled, in nanoseconds; the same for everything done with it."""
        return self.process.now

    @property
    def suspects(self) -> list[ProcessId]:
        """Those whom the failure detector suspects at present, among those monitored."""
        return self.process.state.suspects

    def monitor(self, processes: Iterable[ProcessId]) -> None:
        """Ask the failure detector about these processes and, as far as this part is concerned, about no others."""
        self.process.monitor(self.index, processes)

    def send(self, to: ProcessId | Iterable[ProcessId], message: Wire) -> None:
        """Send to one process or to each of several. What a process sends to itself arrives at once."""
        carrier = self.channel or self.process
        carrier.send_for(self, (to,) if isinstance(to, str) else to, message)

    def set_timer(self, name: str, after_ns: int) -> None:
        self.process.set_timer(f"{self.index}.{name}", self.process.now + after_ns)

    def cancel_timer(self, name: str) -> None:
        self.process.cancel_timer(f"{self.index}.{name}")

    def snapshot(self) -> bytes:
        state = self.contract.state
        return _encoder.encode(state(*[getattr(self, name) for name in state.__struct_fields__]))

    def restore(self, data: bytes) -> None:
        state = msgspec.msgpack.decode(data, type=self.contract.state)
        for name in state.__struct_fields__:
            setattr(self, name, getattr(state, name))


class Channel(Component):
    """A component that carries the messages of others, to add an order or a field to them."""

    def send_for(self, part: Component, to: Iterable[ProcessId], message: Wire) -> None:
        raise NotImplementedError


class OrderingProtocol(Component):
    """The outermost component: takes multicasts, gives deliveries."""

    declaration: ClassVar[Declaration]

    def multicast(self, m: Message) -> None:
        """This process is the sender of m."""
        raise NotImplementedError

    def pending(self) -> int:
        """How many messages this process knows of but has not delivered yet."""
        raise NotImplementedError

    def counters(self) -> dict[str, int]:
        """What a protocol counts of itself, by name; shown in a process's status."""
        return {}

    def deliver(self, m: Message, order_key: str | None = None) -> None:
        self.process.deliver(m, order_key)

    @classmethod
    def check(cls, options: Any, model: FaultModel) -> None:
        """Refuse options that cannot keep the promises in a run with these faults."""

    @classmethod
    def admit(cls, topology: Topology, destinations: tuple[GroupId, ...]) -> None:
        """Refuse destinations that the protocol cannot serve."""
        if cls.declaration.assumes.one_group and len(destinations) > 1:
            raise UsageError(
                f"The {cls.declaration.name} protocol orders one group; {', '.join(destinations)} are several."
            )
        missing = [group for group in topology.groups if group not in destinations]
        if cls.declaration.assumes.all_groups and missing:
            raise UsageError(
                f"The {cls.declaration.name} protocol broadcasts to all groups; {', '.join(missing)} are left out."
            )


class Contract(msgspec.Struct, frozen=True):
    """What the class of a component says about it, worked out once."""

    handlers: dict[type[Wire], str]
    subjects: dict[type[Wire], Callable[[Any], MessageId] | None]
    decode: Callable[[memoryview], Any]
    state: type[msgspec.Struct]


def contract_of(kind: type[Component]) -> Contract:
    contract = _contracts.get(kind)
    if contract is None:
        contract = _contracts[kind] = _contract(kind)
    return contract


_contracts: dict[type[Component], Contract] = {}


def _contract(kind: type[Component]) -> Contract:
    handlers = _handlers(kind)
    tags = [wire.__struct_config__.tag for wire in handlers]
    assert all(isinstance(tag, int) for tag in tags), f"{kind}: every wire message has a small number as its tag"
    assert len(set(tags)) == len(tags), f"{kind}: two wire messages have the same tag"
    decoder = msgspec.msgpack.Decoder(Union[tuple(handlers)]) if handlers else None  # noqa: UP007 - made at run time
    return Contract(
        handlers=handlers,
        subjects={wire: _subject(wire) for wire in handlers},
        decode=decoder.decode if decoder is not None else _decode_nothing,
        state=msgspec.defstruct(f"{kind.__name__}State", _state_fields(kind), array_like=True),
    )


def _decode_nothing(data: memoryview) -> Any:
    raise BadFrame("This component receives no messages.")


def _handlers(kind: type[Component]) -> dict[type[Wire], str]:
    """Find ``on_<message>(self, sender, message: SomeWire)`` methods; the annotation names the message type."""
    found: dict[type[Wire], str] = {}
    for name in dir(kind):
        if not name.startswith("on_") or name.endswith("_timer"):
            continue
        hints = [hint for key, hint in get_type_hints(getattr(kind, name)).items() if key != "return"]
        if len(hints) == 2 and isinstance(hints[1], type) and issubclass(hints[1], Wire):
            found[hints[1]] = name
    return found


def _subject(wire: type[Wire]) -> Callable[[Any], MessageId] | None:
    """How to find the multicast message that a wire message is about: its ``message`` or its ``id``."""
    fields = wire.__struct_fields__
    if "message" in fields:
        return operator.attrgetter("message.id")
    return operator.attrgetter("id") if "id" in fields else None


def _state_fields(kind: type[Component]) -> list[tuple[str, Any]]:
    """The annotated variables of a component, but for its parts and upcalls: they are wiring, not state."""
    fields: dict[str, Any] = {}
    for ancestor in reversed(kind.__mro__):
        if not issubclass(ancestor, Component) or ancestor in (Component, Channel, OrderingProtocol):
            continue
        hints = get_type_hints(ancestor)
        for name in inspect.get_annotations(ancestor):
            hint = hints[name]
            is_part = isinstance(hint, type) and issubclass(hint, Component)
            if name != "options" and not is_part and get_origin(hint) not in (ClassVar, _CALLABLE):
                fields[name] = hint
    return list(fields.items())


_CALLABLE = get_origin(Callable[[], None])
_encoder = msgspec.msgpack.Encoder()
