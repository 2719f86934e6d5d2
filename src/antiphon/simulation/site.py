"""A process and what surrounds it: its host, its disk, its links, and whether it is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVarTuple

from antiphon.core.buffers import Buffers
from antiphon.core.channel import NUMBERED, ChannelId, Transport
from antiphon.core.effects import AnyEffect, CancelTimer, Log, Record, Reply, Send, SetTimer
from antiphon.core.events import Delivered, Event
from antiphon.core.host import Host, Turn
from antiphon.core.inputs import AnyInput
from antiphon.core.model import MessageId, ProcessId
from antiphon.core.process import Process
from antiphon.core.prompt import PromptHost
from antiphon.simulation.disk import Disk
from antiphon.simulation.links import Link
from antiphon.simulation.values import Crash

Steps = dict[MessageId, int]  # for a message in flight: the longest chain of frames since its multicast
Arguments = TypeVarTuple("Arguments")  # what an action is called with, so that mypy sees whether they fit


# What one input led to: whose it was; when it was let out; the seq beyond which its rows are new; its effects; the
# steps behind them, where they are followed; and of a frame: the seq of its row, the sender, and the frame itself.
Seen = tuple[Process, int, int, list[AnyEffect], Steps | None, int, ProcessId | None, Buffers | None]


class Interrupted(Exception):
    """The process crashes here, in the middle of a release."""


class Observer(Protocol):
    """Who keeps what sites let out."""

    def add(self, site: Site, now: int, turns: Sequence[Turn]) -> None: ...
    def follow(self, site: Site, effects: list[AnyEffect], note: Steps) -> None: ...
    @property
    def see(self) -> Callable[[Seen], None]: ...
    def answered(self, site: Site, now: int, reply: Reply) -> None: ...


class Surroundings(Protocol):
    """What a site needs of the world that it is in."""

    now: int
    on_multicast: Callable[[Site, Record], None]
    on_delivered: Callable[[Site, Delivered], None]
    on_reply: Callable[[Site, Reply], None]

    @property
    def observations(self) -> Observer: ...
    def at(self, time: int, action: Callable[[*Arguments], None], *arguments: *Arguments) -> None: ...
    def transmit(
        self,
        links: Sequence[Link],
        channel: ChannelId | None,
        numbers: Sequence[int],
        frame: Buffers,
        carried: Steps | None,
    ) -> None: ...
    def fire(self, site: Site, life: int, timer: SetTimer) -> None: ...
    def acknowledge(self, site: Site) -> None: ...
    def asked(self, site: Site) -> None:
        """The process asks its failure detector about others than before."""


class Site:
    """The outside of one host: what it lets out goes into the world from here."""

    def __init__(self, world: Surroundings, process: Process, disk: Disk | None) -> None:
        self.world = world
        self._transmit, self._see = world.transmit, world.observations.see
        self.id = process.me
        self.disk = disk
        self.host = PromptHost(process, self) if disk is None else Host(process, disk, self)
        # Its numbered channels, as their receivers see them; a datagram comes on none.
        self._channels = {**{t: ChannelId(process.me, t) for t in NUMBERED}, Transport.DATAGRAM: None}
        self.up = True
        self.life = 0  # counts restarts: timers and syncs of an earlier life are void
        self.crashed_at = 0
        self.turn_ends_at: int | None = None
        self.held: list[tuple[AnyInput, Steps | None]] | None = None  # inputs that came during a pause
        self.pause: object = None
        self.delay_ns = 0
        self.slowness: object = None
        self.last_release = 0
        self.is_prompt = False  # what comes of an input leaves at once; it never was otherwise
        self.doom: Crash | None = None  # it strikes in the middle of a release that is yet to come
        self._left: int | None = None  # effects that may leave before it strikes, in the present release
        self._last_words = False  # whether it strikes after the first delivery of the present release
        self._told = 0  # how often it has told others about the message after which it strikes
        self._newest: AnyEffect | None = None  # the last effect that left before a crash in the middle of a release
        self.links: dict[ProcessId, Link] = {}
        self._routes: dict[tuple[ProcessId, ...], tuple[Link, ...]] = {}  # those to all of several
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
        self.host.durable(index)
        raise Interrupted  # all of it left, or a delivery was the last effect

    def _strikes(self, doom: Crash, index: int) -> bool:
        """Whether the release up to ``index`` has the moment in it at which the process is doomed to crash."""
        effects = [effect for turn in self.host.releasable(index) for effect in turn.effects]
        if doom.effects == "delivery":
            self._last_words = any(type(effect) is Log for effect in effects)
            return self._last_words
        moment = doom.effects
        assert isinstance(moment, int)
        if doom.about is not None:
            self._told += sum(type(e) is Send and doom.about in map(str, e.about) for e in effects)
            return self._told >= moment
        visible = sum(len(e.to) if type(e) is Send else type(e) in (Log, Reply) for e in effects)
        self._left = moment if visible > moment else None
        return self._left is not None

    def reborn(self, process: Process) -> None:
        """A new life, with what the disk holds."""
        self.host = Host(process, self.disk, self)
        self.last_release = 0

    def undoom(self) -> None:
        self.doom = self._left = None
        self._last_words = False
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
        links = self._routes.get(send.to)
        if links is None:
            links = self._routes[send.to] = tuple([self.links[peer] for peer in send.to])
        self._transmit(links, self._channels[send.transport], send.numbers, send.frame, note)

    def _send_some(self, send: Send, note: Steps | None, left: int) -> None:
        count = len(send.to)
        send.cut_to(left)
        self._left = None
        self.on_send(send, note)
        self._left = left - len(send.to)
        if len(send.to) < count:
            raise Interrupted

    def on_event(self, event: Event) -> None:
        if self._left is not None:
            self._mortal()
        if self.up and type(event) is Delivered:  # where it is not up it is a replay: see on_turns
            self.world.on_delivered(self, event)
        if self._last_words:
            self._left = 0

    def on_record(self, record: Record) -> None:
        if record.kind == "multicast":
            self.world.on_multicast(self, record)

    def on_reply(self, reply: Reply) -> None:
        if self._left is not None:
            self._mortal()
        self.world.observations.answered(self, self.world.now, reply)
        self.world.on_reply(self, reply)

    def on_set_timer(self, timer: SetTimer) -> None:
        self.world.at(timer.due, self.world.fire, self, self.life, timer)

    def on_cancel_timer(self, timer: CancelTimer) -> None:
        """A cancelled timer is ignored when it comes due."""

    def on_monitor(self, processes: tuple[ProcessId, ...]) -> None:
        self.monitored = processes
        world = self.world
        world.at(world.now, world.asked, self)  # after all other effects: none may come in between

    def on_received(
        self,
        at: int,
        sender: ProcessId,
        frame: Buffers,
        seq: int,
        seq_last: int,
        effects: list[AnyEffect],
        note: Steps | None,
    ) -> None:
        if note is not None:
            self.world.observations.follow(self, effects, note)
        self._see((self.host.process, at, self.released_seq, effects, note, seq, sender, frame))
        self.released_seq = seq_last

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
