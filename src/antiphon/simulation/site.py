"""A process and what surrounds it: its host, its disk, its links, and whether it is up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappush
from typing import Any, Protocol, TypeVarTuple

from antiphon.core.buffers import Buffers
from antiphon.core.channel import ChannelId, Transport
from antiphon.core.effects import AnyEffect, Assured, CancelTimer, Log, Record, Reply, Send, SetTimer
from antiphon.core.events import Delivered, Event
from antiphon.core.host import Host, Turn
from antiphon.core.inputs import AnyInput
from antiphon.core.model import MessageId, ProcessId
from antiphon.core.process import Process
from antiphon.core.prompt import PromptHost, Seen
from antiphon.simulation.disk import Disk
from antiphon.simulation.links import Link
from antiphon.simulation.values import Crash

Steps = dict[MessageId, int]  # for a message in flight: the longest chain of frames since its multicast
# To all receivers of a send: the links; the channel as they see it, None for datagrams; whether that keeps its order;
# and if what leaves for all at once is always at all of them at once, how long that takes. Then nothing is overtaken.
Outlet = tuple[tuple[Link, ...], ChannelId | None, bool, int | None]
# A send that is at all its receivers at once: its ticket, the links, the channel, the frame's number on each, the frame
# and the steps that it carries.
Together = tuple[int, tuple[Link, ...], ChannelId, tuple[int, ...], Buffers, Steps | None]
Arguments = TypeVarTuple("Arguments")  # what an action is called with, so that mypy sees whether they fit


class Interrupted(Exception):
    """The process crashes here, in the middle of a release."""


class Observer(Protocol):
    """Who keeps what sites let out."""

    def add(self, site: Site, now: int, turns: Sequence[Turn]) -> None: ...
    def of(self, site: Site) -> Callable[[Seen], None]: ...
    def answered(self, site: Site, now: int, answer: Reply | Assured) -> None: ...
    def shown(self, site: Site, now: int, event: Event) -> None: ...


class Surroundings(Protocol):
    """What a site needs of the world that it is in."""

    now: int
    overtakings: int
    on_multicast: Callable[[Site, Record], None]
    on_delivered: Callable[[Site, Delivered], None]
    on_reply: Callable[[Site, Reply], None]
    on_assured: Callable[[Site, Assured], None]

    @property
    def observations(self) -> Observer: ...
    @property
    def heap(self) -> list[tuple[Any, ...]]: ...
    @property
    def tickets(self) -> Iterator[int]: ...
    def at(self, time: int, action: Callable[[*Arguments], None], *arguments: *Arguments) -> None: ...
    def transmit_datagram(self, link: Link, frame: Buffers, carried: Steps | None) -> None: ...
    def effective(self, fault: object) -> None: ...
    def arrive_together(self, together: Together) -> None: ...
    def fire(self, site: Site, life: int, timer: SetTimer) -> None: ...
    def acknowledge(self, site: Site) -> None: ...
    def asked(self, site: Site) -> None:
        """The process asks its failure detector about others than before."""


class Site:
    """The outside of one host: what it lets out goes into the world from here."""

    __slots__ = (  # of so many variables, those of a dictionary are found more slowly
        "_fifo",
        "_heap",
        "_last_words",
        "_left",
        "_newest",
        "_outlets",
        "_shown",
        "_tickets",
        "_told",
        "crashed_at",
        "delay_ns",
        "disk",
        "doom",
        "held",
        "host",
        "id",
        "interrupted",
        "is_gone",
        "is_prompt",
        "known_down",
        "last_release",
        "life",
        "links",
        "monitored",
        "on_received",
        "pause",
        "released_seq",
        "slowness",
        "steps",
        "turn_ends_at",
        "up",
        "world",
        "wronged",
    )

    def __init__(self, world: Surroundings, process: Process, disk: Disk | None, *, fifo: bool) -> None:
        self.world = world
        self._heap, self._tickets = world.heap, world.tickets
        self.id = process.me
        self.disk = disk
        self.on_received = world.observations.of(self)
        self.host = PromptHost(process, self) if disk is None else Host(process, disk, self)
        self._fifo = fifo
        self.up = True
        self.life = 0  # counts restarts: timers and syncs of an earlier life are void
        self.crashed_at = 0
        self.is_gone = False  # for good
        self.turn_ends_at: int | None = None
        self.held: list[tuple[AnyInput, Steps | None]] | None = None  # inputs that came during a pause
        self.pause: object = None
        self.delay_ns = 0
        self.slowness: object = None
        self.last_release = 0
        self.is_prompt = False  # what comes of an input leaves at once; it never was otherwise
        self.doom: Crash | None = None  # it strikes in the middle of a release that is yet to come
        self._left: int | None = None  # effects that may leave before it strikes, in the present release
        self._last_words: type[AnyEffect] | None = None  # it strikes after the first of these in the present release
        self._told = 0  # how often it has told others about the message after which it strikes
        self._shown: list[Event] = []  # to readers, and not durable yet
        self._newest: AnyEffect | None = None  # the last effect that left before a crash in the middle of a release
        self.interrupted: list[AnyEffect] = []  # what the release had amid which it crashes, left or not
        self.links: dict[ProcessId, Link] = {}
        self._outlets: dict[Transport, dict[tuple[ProcessId, ...], Outlet]] = {transport: {} for transport in Transport}
        self.monitored: tuple[ProcessId, ...] = ()
        self.known_down: set[ProcessId] = set()  # crashed, and the failure detector has noticed
        self.wronged: dict[ProcessId, list[object]] = {}  # suspected for no reason, and the faults that make it so
        self.steps: Steps = {}
        self.released_seq = 0  # traced events up to this one left the process, in this life or an earlier one

    @property
    def process(self) -> Process:
        return self.host.process

    def release(self, index: int) -> None:
        """What is durable below ``index`` may go out. Interrupted: the process crashed on the way."""
        if self.doom is None or not self._strikes(self.doom, index):
            self.host.durable(index)
            return
        self.interrupted = [effect for turn in self.host.waiting if turn.index < index for effect in turn.effects]
        self.host.durable(index)
        raise Interrupted  # all of it left, or a delivery was the last effect

    def _strikes(self, doom: Crash, index: int) -> bool:
        """Whether the release up to ``index`` has the moment in it at which the process is doomed to crash."""
        effects = list(self.host.releasable(index))
        if doom.effects == "delivery" or doom.effects == "receipt":  # noqa: PLR1714 - mypy understands it so
            last = Log if doom.effects == "delivery" else Assured
            self._last_words = last if any(type(effect) is last for effect in effects) else None
            return self._last_words is not None
        moment = doom.effects
        assert isinstance(moment, int)
        if doom.about is not None:
            self._told += sum(type(e) is Send and doom.about in map(str, e.about) for e in effects)
            return self._told >= moment
        visible = sum(len(e.to) if type(e) is Send else type(e) in (Log, Reply, Assured) for e in effects)
        self._left = moment if visible > moment else None
        return self._left is not None

    def reborn(self, process: Process) -> None:
        """A new life, with what the disk holds."""
        self.host = Host(process, self.disk, self)
        self.last_release = 0
        self._shown.clear()

    def count_released(self) -> None:
        """What left while nothing waited is counted when something may."""
        host = self.host
        if isinstance(host, PromptHost) and self.doom is None:
            self.released_seq = max(self.released_seq, host.released_seq)

    def undoom(self) -> None:
        self.doom = self._left = None
        self.interrupted = []
        self._last_words = None
        self._told = 0

    def _mortal(self) -> None:
        if self._left == 0:
            raise Interrupted
        self._left -= 1  # type: ignore[operator]

    # What the host lets out -----------------------------------------------------------------------------------------

    def on_send(self, send: Send, note: Steps | None) -> None:
        if self._left is not None:
            self._send_some(send, note, self._left)
            return
        links, channel, ordered, together_ns = self._outlets[send.transport].get(send.to) or self._outlet(send)
        world, frame, heap, tickets = self.world, send.frame, self._heap, self._tickets
        if channel is None:
            for link in links:
                world.transmit_datagram(link, frame, note)
            return
        now, numbers = world.now, send.numbers
        if together_ns is not None and not _is_any_cut(links):
            due, ticket = now + together_ns, next(tickets)
            if len(links) == 1:
                heappush(heap, (due, ticket, links[0], channel, numbers[0], frame, note))
            else:
                together = (ticket, links, channel, numbers, frame, note)
                heappush(heap, (due, ticket, None, world.arrive_together, (together,), None, None))
            return
        for link, number in zip(links, numbers):  # noqa: B905 - saying how to compare lengths is slow
            if link.cuts:
                world.effective(link.cuts[-1])
                continue  # it stays in the outbox and is resent when the link heals
            due = now + link.least
            if link.draw is not None:
                due += int(link.span * link.draw())
            if due >= link.last_arrival:
                link.last_arrival = due
            elif ordered:
                due = link.last_arrival
            else:
                world.overtakings += 1
            heappush(heap, (due, next(tickets), link, channel, number, frame, note))

    def _outlet(self, send: Send) -> Outlet:
        links, transport = tuple([self.links[peer] for peer in send.to]), send.transport
        channel = None if transport is Transport.DATAGRAM else ChannelId(self.id, transport)
        constant = {None if link.draw else link.least for link in links}
        together_ns = constant.pop() if len(constant) == 1 else None
        outlet = links, channel, self._fifo or transport is Transport.FIFO, together_ns
        self._outlets[transport][send.to] = outlet
        return outlet

    def on_foretell(self, send: Send, note: Steps | None) -> None:
        left = len(send.to) if self._left is None else min(self._left, len(send.to))
        channel, world = ChannelId(self.id, send.transport), self.world
        for peer, number in list(zip(send.to, send.numbers, strict=True))[:left]:
            link = self.links[peer]
            if link.cuts:
                world.effective(link.cuts[-1])
                continue
            link.last_arrival = due = max(world.now + link.takes(), link.last_arrival)
            heappush(self._heap, (due, next(self._tickets), link, channel, -number, send.frame, note))
        if self._left is not None:
            self._left -= left
            if left < len(send.to):
                raise Interrupted

    def resend(self, link: Link, channel: ChannelId, number: int, frame: Buffers) -> None:
        """What its receiver does not hold sets out again."""
        self.on_send(Send(0, (link.target,), (channel,), (number,), channel.transport, frame, "", ()), dict(self.steps))

    def _send_some(self, send: Send, note: Steps | None, left: int) -> None:
        count = len(send.to)
        send.cut_to(left)
        self._left = None
        self.on_send(send, note)
        self._left = left - len(send.to)
        if len(send.to) < count:
            raise Interrupted

    def on_event(self, event: Event) -> None:
        if self._shown and self._shown[0] is event:
            del self._shown[0]
            return
        if self._left is not None:
            self._mortal()
        if self.up and type(event) is Delivered:  # where it is not up it is a replay: see on_turns
            self.world.on_delivered(self, event)
        if self._last_words is Log:
            self._left = 0

    def on_event_early(self, event: Event) -> None:
        if self._left is not None:
            self._mortal()
        self._shown.append(event)
        self.world.observations.shown(self, self.world.now, event)
        if type(event) is Delivered:
            self.world.on_delivered(self, event)
        if self._last_words is Log:
            self._left = 0

    def on_record(self, record: Record) -> None:
        if record.kind == "multicast":
            self.world.on_multicast(self, record)

    def on_reply(self, reply: Reply) -> None:
        if self._left is not None:
            self._mortal()
        self.world.observations.answered(self, self.world.now, reply)
        self.world.on_reply(self, reply)

    def on_assured(self, assured: Assured) -> None:
        if self._left is not None:
            self._mortal()
        self.world.observations.answered(self, self.world.now, assured)
        self.world.on_assured(self, assured)
        if self._last_words is Assured:
            self._left = 0

    def on_set_timer(self, timer: SetTimer) -> None:
        self.world.at(timer.due, self.world.fire, self, self.life, timer)

    def on_cancel_timer(self, timer: CancelTimer) -> None:
        """A cancelled timer is ignored when it comes due."""

    def on_monitor(self, processes: tuple[ProcessId, ...]) -> None:
        self.monitored = processes
        world = self.world
        world.at(world.now, world.asked, self)  # after all other effects: none may come in between

    def on_turns(self, turns: Sequence[Turn], *, replayed: bool) -> None:
        if replayed:  # only what was not released in an earlier life has yet to be counted
            for turn in turns:
                self._complete(turn)
                turn.effects = [e for e in turn.effects if getattr(e, "seq", 0) > self.released_seq]
                for effect in turn.effects:
                    if type(effect) is Log and type(effect.event) is Delivered:
                        self.world.on_delivered(self, effect.event)
                    elif type(effect) is Record:
                        self.on_record(effect)
        elif self._left is not None and turns[-1].effects:
            self._newest = turns[-1].effects[-1]
        world = self.world
        world.observations.add(self, world.now, turns)
        newest = turns[-1].seq_last
        if newest > self.released_seq:  # noqa: PLR1730 - max is slow
            self.released_seq = newest
        if self.disk is not None and self.up:
            # A crash can take back what was taken: every acknowledgement must be seen to be safe.
            world.acknowledge(self)

    def _complete(self, turn: Turn) -> None:
        """A send that a crash cut in two is one event of the trace: the other receivers get it now."""
        cut = self._newest
        for effect in turn.effects:
            if type(cut) is Send and type(effect) is Send and effect.seq == cut.seq:
                cut.to, cut.channels, cut.numbers = effect.to, effect.channels, effect.numbers


def _is_any_cut(links: tuple[Link, ...]) -> bool:
    for link in links:  # noqa: SIM110 - any() is slow
        if link.cuts:
            return True
    return False
