"""The state-machine contract: what a protocol is made of, and all that it can do to the world.

A component declares its state as annotated variables, gives them their first values in ``initialise``, and handles
messages in ``on_<message>(self, sender, message: Message)`` and timers in ``on_<timer>(self, timer: Timer)``, each
named for its type; an ordering protocol also takes commands, in ``on_<command>(self, command: Command)``. Everything
else is derived from that: the wire format, the dispatch, the snapshot. A handler whose name and type do not match fails
when the class is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from antiphon.core.buffers import Buffers, Piece, encode_inside
from antiphon.core.channel import Transport
from antiphon.core.checks import Checks
from antiphon.core.contract import Command, Timer, Wire, contract_of, handlers_of
from antiphon.core.declaration import Assumptions, Declaration, Detector, FaultModel, Watched
from antiphon.core.errors import UsageError
from antiphon.core.floors import Advance
from antiphon.core.in_views import ClientsInViews
from antiphon.core.keys import Key
from antiphon.core.model import GroupId, Message, MessageId, ProcessId, Service, Topology, ViewId
from antiphon.core.promises import Promise, with_those_of_the_host
from antiphon.core.requests import requests_of
from antiphon.core.sessions import Mark, Standing


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For components that have nothing to choose."""


class Owner(Protocol):
    """What a component needs of its process (core/process.py): all that it can do to the world goes through here."""

    me: ProcessId
    now: int
    topology: Topology
    in_views: ClientsInViews
    checks: Checks
    is_hearsay: bool

    @property
    def suspects(self) -> list[ProcessId]: ...
    def register(self, part: Component) -> int: ...
    def monitor(self, index: int, processes: Iterable[ProcessId]) -> None: ...
    def set_timer(self, part: int, timer: bytes, due: int) -> None: ...
    def cancel_timer(self, part: int, timer: bytes) -> None: ...
    def at_turn_end(self, part: int) -> None: ...

    # Frames, of its own and of those whose messages it carries
    def send_for(
        self, part: Component, to: ProcessId | tuple[ProcessId, ...], message: Wire, *, foretold: bool = False
    ) -> None: ...
    def send_to_self(self, part: Component, message: Wire) -> None: ...
    def encode(self, part: Component, message: Wire) -> Buffers: ...
    def decode(self, frame: Piece) -> tuple[Component, Wire]: ...
    def decode_frame(self, frame: Buffers) -> tuple[Component, Wire]: ...
    def handle(self, sender: ProcessId, frame: Buffers) -> None: ...

    # The application's log, and the trace
    def deliver(self, m: Message, key: Key | None, *, early: bool) -> None: ...
    def assure(self, m: Message, timestamp: int, *, early: bool) -> None: ...
    def raise_floor(self, least: int) -> None: ...
    def begin_life(self) -> None: ...
    def recall(self, m: Message) -> None: ...
    def announce_gap(self, behind: Iterable[Standing] | None = None) -> None: ...
    def announce_view(self, view: ViewId, members: tuple[ProcessId, ...]) -> None: ...
    def standing(self) -> tuple[Standing, ...]: ...
    @property
    def position(self) -> int: ...
    def adopt(self, donor: ProcessId, last: MessageId | None, position: int, standing: Iterable[Standing]) -> None: ...
    def record_entry(
        self, layer: str, node: MessageId, message: MessageId | None, follows: tuple[MessageId, ...] | None
    ) -> None: ...


Part = TypeVar("Part", bound="Component")


class Component:
    """A deterministic state machine, alone or as a named part of another."""

    FRAMEWORK: ClassVar[bool] = True  # what this class annotates is wiring, not state
    Options: ClassVar[type[msgspec.Struct]] = NoOptions
    transport: Transport = Transport.RELIABLE  # how its messages travel; ``initialise`` may choose by an option

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        handlers_of(cls)  # a wrong one fails here, not in the run that needs it

    def __init__(
        self,
        process: Owner,
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

    def on_topology(self, before: Topology) -> None:
        """The topology is another one than before: members were replaced."""

    def on_recover(self) -> None:
        """The process has come back from its journal: whatever was not durable when it crashed it has forgotten."""

    def foretold(self, sender: ProcessId, message: Wire) -> None:
        """A message of this kind is to come, unless its sender forgets it (``foretell``)."""

    def on_turn_end(self) -> None:
        """The turn is over in which this part asked for it with ``at_turn_end``."""

    def part(
        self, kind: type[Part], name: str, options: msgspec.Struct | None = None, /, **upcalls: Callable[..., object]
    ) -> Part:
        """Create a part. It reaches this component only through ``upcalls``, and shares no variable with it."""
        return kind(self.process, f"{self.layer}/{name}", options or kind.Options(), upcalls, self.channel)

    @property
    def topology(self) -> Topology:
        """Who is in which group, as of now."""
        return self.process.topology

    @property
    def group(self) -> GroupId:
        """The group that this process is a member of."""
        return self.process.topology.group_of[self.me]

    @property
    def now(self) -> int:
        """The time of the input being handled, in nanoseconds; the same for everything done with it."""
        return self.process.now

    @property
    def suspects(self) -> list[ProcessId]:
        """Those whom the failure detector suspects at present, among those monitored."""
        return self.process.suspects

    def monitor(self, processes: Iterable[ProcessId]) -> None:
        """Ask the failure detector about these processes and, as far as this part is concerned, about no others."""
        self.process.monitor(self.index, processes)

    def send(self, to: ProcessId | Iterable[ProcessId], message: Wire) -> None:
        """Send to one process or to each of several. What a process sends to itself arrives at once."""
        if self.channel is None:
            self.process.send_for(self, to if isinstance(to, str) else tuple(to), message)
        else:
            self.channel.send_for(self, (to,) if isinstance(to, str) else tuple(to), message)

    def foretell(self, to: ProcessId | Iterable[ProcessId], message: Wire) -> None:
        """Send, and have a copy leave at once, before the input behind it is durable: ``foretold`` hears of it there.

        Should this process crash, it may have forgotten that it said so, and those who heard it have not. So a copy is
        no vote and no acknowledgement; and ``on_recover`` takes care that this process never says anything else in the
        place of what it may have said.
        """
        assert self.channel is None, "only what travels as it is can leave early"
        assert self.transport is Transport.FIFO, "what is foretold comes before what follows it"
        self.process.send_for(self, (to,) if isinstance(to, str) else tuple(to), message, foretold=True)

    def only_heard(self) -> None:
        """Say that the frame being handled only brings the word of others, which they will say again: nothing that this
        process said or will say rests on its remembering that. What is told early (`deliver`, `assure`) need not wait
        until such a frame is durable."""
        self.process.is_hearsay = True

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        """All multicast messages that a message of this component is about; asked for where it is traced."""
        return self.contract.subjects[type(message)](message)

    def set_timer(self, timer: Timer, after_ns: int) -> None:
        """Have the timer's handler called after so long; replaces an earlier setting of an equal timer."""
        assert type(timer) in self.contract.timers, f"{type(self).__name__} has no handler for {type(timer).__name__}"
        self.process.set_timer(self.index, encode_inside(timer), self.process.now + after_ns)

    def cancel_timer(self, timer: Timer) -> None:
        self.process.cancel_timer(self.index, encode_inside(timer))

    def fire(self, timer: bytes) -> None:
        value = self.contract.decode_timer(timer)
        getattr(self, self.contract.timers[type(value)])(value)

    def at_turn_end(self) -> None:
        """Have ``on_turn_end`` called when all that came together with this input is handled.

        Who asks in ``on_turn_end`` itself is called again at once, so ask only when there is something left to do.
        """
        self.process.at_turn_end(self.index)

    def snapshot(self) -> bytes:
        state = self.contract.state
        return encode_inside(state(*[getattr(self, name) for name in state.__struct_fields__]))

    def restore(self, data: bytes) -> None:
        state = self.contract.decode_state(data)
        for name in state.__struct_fields__:
            setattr(self, name, getattr(state, name))


class Channel(Component):
    """A component that carries the messages of others, to add an order or a field to them."""

    FRAMEWORK: ClassVar[bool] = True

    def send_for(self, part: Component, to: tuple[ProcessId, ...], message: Wire) -> None:
        raise NotImplementedError


class OrderingProtocol(Component):
    """The outermost component: takes multicasts, gives deliveries."""

    FRAMEWORK: ClassVar[bool] = True
    declaration: ClassVar[Declaration]
    added_options: ClassVar[tuple[str, ...]] = ()  # newer than its kept runs: drawn apart, so that seeds mean the same
    advances: ClassVar[bool] = False  # its keys begin with a number, which heeds `least_number`: see core/floors.py
    replaces: ClassVar[bool] = False  # whether a member that is lost for good can be replaced
    led: ClassVar[bool] = False  # whether each group has a leader at a time: see ``led_by``
    services: ClassVar[tuple[Service, ...]] = ()  # among which a sender can choose, message by message; none: no choice

    @classmethod
    def drawn_last(cls, topology: Topology) -> Mapping[str, tuple[str, ...]]:
        """Options that random runs with these groups draw when all others are drawn, each from these values."""
        return {}

    @property
    def members(self) -> tuple[ProcessId, ...]:
        """Those of this process's own group; nobody, at a process outside all groups."""
        return self.process.topology.members_with(self.me)

    def multicast(self, m: Message) -> None:
        """This process is the sender of m."""
        raise NotImplementedError

    def service_of(self, m: Message) -> Service | None:
        """What the sender of m asked for; None: whatever the protocol does."""
        requests = requests_of(m)
        return requests[0].service if requests else None

    def must_wait(self, destinations: tuple[GroupId, ...]) -> bool:
        """With views: whether nothing is multicast to these groups now, but in a view to come, of which the process
        hears by `process.in_views.begin`."""
        return False

    def tell_all(self, mark: Mark) -> None:
        """With views: have all in this one hear of a mark (`hear_mark` of `process.in_views`), and know that each of
        them has (`heard_by_all`). If the view ends before, or nothing can be sent now, it will be asked for again."""
        raise NotImplementedError

    def pending(self) -> int:
        """How many messages this process knows of but has not delivered yet."""
        raise NotImplementedError

    def waits_for(self) -> tuple[ProcessId, ...]:
        """The processes from which this one must hear before its oldest pending message can be delivered, if known."""
        return ()

    @property
    def counts(self) -> bool:
        """Whether this process counts among its group: one that takes another's place has to learn first."""
        return True

    def led_by(self) -> ProcessId | None:
        """Who leads the group of this process, as far as it knows; None where nobody does."""
        return None

    def present_view(self) -> tuple[ViewId, tuple[ProcessId, ...]] | None:
        """The newest view that this process has announced, and who is in it; None where there are no views."""
        return None

    def newest_timestamp(self) -> int:
        """Where clients bring floors: the greatest timestamp of which this process has heard."""
        return 0

    def counters(self) -> dict[str, int]:
        """What a protocol counts of itself, by name; shown in a process's status."""
        return {}

    def deliver(self, m: Message, key: Key | None = None, *, early: bool = False) -> None:
        """Give m to the application. Messages come in the order of their keys, at every process.

        ``early``: the input being handled only brings the word of others, which they will not forget, and m has its
        place whether or not this process remembers that word. Then readers see it without another sync.
        """
        self.process.deliver(m, key, early=early)

    def assure(self, m: Message, timestamp: int, *, early: bool = False) -> None:
        """Say that all groups have decided on m, a message of this process: a majority of each holds it for good, and
        its key begins with ``timestamp``. Once for each, as soon as it is known; `deliver` says it, too. Only where the
        protocol promises durable receipts.

        ``early``: the input being handled only brings the word of others, which they will not forget. All that this
        process itself adds to the majority came with earlier inputs. Then clients hear of it without another sync.
        """
        self.process.assure(m, timestamp, early=early)

    def announce_gap(self, behind: Iterable[Standing] | None = None) -> None:
        """Tell the application that messages may be missing between what was delivered and what comes next.

        ``behind``: what another process said of itself (`process.standing`) at the place in the order where this one
        goes on. Then both deliver the same of clients from there on. None: there is no such process.
        """
        self.process.announce_gap(behind)

    def announce_view(self, view: ViewId, members: tuple[ProcessId, ...]) -> None:
        """Tell the application that from here on it is together with these, this process among them.

        A protocol with views delivers nothing before its first one, which ``begin`` announces.
        """
        self.process.announce_view(view, members)

    @classmethod
    def promises(cls, options: Any) -> tuple[Promise, ...]:
        """What holds with these options: what the protocol declares, and what the host adds."""
        return with_those_of_the_host(cls.own_promises(options), mixed=bool(cls.services))

    @classmethod
    def own_promises(cls, options: Any) -> tuple[Promise, ...]:
        """What the protocol itself promises with these options."""
        return cls.declaration.promises

    @classmethod
    def foretells(cls, options: Any) -> bool:
        """Whether anything leaves before it is durable, with these options."""
        return False

    @classmethod
    def assumes(cls, options: Any) -> Assumptions:
        """What must hold around the protocol with these options."""
        return cls.declaration.assumes

    @classmethod
    def check(cls, options: Any, model: FaultModel) -> None:
        """Refuse options that cannot keep the promises in a run with these faults."""

    @classmethod
    def commands(cls, options: Any) -> tuple[type[Command], ...]:
        """What a process can be told to do with these options."""
        known = contract_of(cls).commands
        return tuple(kind for kind in known if kind is not Advance or cls.can_advance(options))

    @classmethod
    def can_advance(cls, options: Any) -> bool:
        """Whether a group can be asked to raise its floor (core/floors.py), with these options."""
        return cls.advances and Promise.ACYCLIC_ORDER in cls.promises(options)

    def on_advance(self, command: Advance) -> None:
        self.process.raise_floor(command.floor)

    def obey(self, command: bytes) -> None:
        value = self.contract.decode_command(command)
        getattr(self, self.contract.commands[type(value)])(value)

    @classmethod
    def watched(cls, options: Any) -> Watched:
        """About whom processes ask their failure detector with these options."""
        return Watched.NOBODY if cls.assumes(options).detector is Detector.NONE else Watched.MEMBERS

    @classmethod
    def admit_service(cls, service: Service | None) -> None:
        """Refuse a service that the protocol does not offer."""
        if service is not None and service not in cls.services:
            raise UsageError(
                f"The {cls.declaration.name} protocol delivers all messages in one way, so a sender cannot ask for "
                f"{service} ones; allack and toto leave the choice."
            )

    @classmethod
    def admit(cls, topology: Topology, destinations: tuple[GroupId, ...]) -> None:
        """Refuse destinations that the protocol cannot serve."""
        if cls.declaration.assumes.one_group and len(destinations) > 1:
            raise UsageError(
                f"The {cls.declaration.name} protocol sends a message to one group, "
                f"not to several: {', '.join(destinations)}; primcast and skeen can."
            )
        missing = [group for group in topology.groups if group not in destinations]
        if cls.declaration.assumes.all_groups and missing:
            raise UsageError(
                f"The {cls.declaration.name} protocol sends every message to all groups; "
                f"this one leaves out {', '.join(missing)}; primcast and skeen send to those that are named only."
            )
