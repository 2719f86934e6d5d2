"""The virtual world: it feeds every process its inputs, in an order that the seed decides, and carries out its effects.

The contract between a process and its driver is the host's (core/host.py), the same lines that real processes run. Here
are time, the network, disks that take time to sync, and crashes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import chain, count, islice, repeat
from operator import itemgetter, length_hint
from typing import Any

from antiphon.core.buffers import Buffers
from antiphon.core.channel import NO_FRAMES, NUMBERED, ChannelId, Transport, channel_to
from antiphon.core.component import OrderingProtocol
from antiphon.core.effects import Assured, Record, Reply, SetTimer
from antiphon.core.errors import BadFrame
from antiphon.core.events import Delivered
from antiphon.core.gather import Gather
from antiphon.core.inputs import (
    AnyInput,
    Begin,
    Confirmed,
    Fire,
    Foretold,
    Multicast,
    NewRoster,
    Receive,
    Recover,
)
from antiphon.core.model import ProcessId, Service, Topology
from antiphon.core.options import parse_options
from antiphon.core.process import Process
from antiphon.core.prompt import PromptHost
from antiphon.simulation.detector import FailureDetector
from antiphon.simulation.disk import Disk
from antiphon.simulation.links import Link
from antiphon.simulation.observation import Observations
from antiphon.simulation.site import Arguments, Interrupted, Site, Steps, Together
from antiphon.simulation.values import MILLISECOND, Constant, Scenario

_FIFO, _DATAGRAM = Transport.FIFO, Transport.DATAGRAM
_ONE = (None,)
AT_HAND = 250  # of so many events, what came of them fits into a processor's cache
IN_FULL = 8  # each so many frames that were foretold come in full, as if the connection had been another one by then
LOST = (0.0, 0.5, 0.5, 0.8, 1.0)  # how likely a frame under way is lost when its sender crashes: one for each crash
EVENTS_MAX, EVENTS_MAX_PER_PLAN = 100_000, 5_000  # what a run is granted that does not say how many it needs


class Livelock(Exception):
    """Things happen without end."""


class World:
    """One run of one scenario."""

    def __init__(self, scenario: Scenario, protocol: type[OrderingProtocol]) -> None:
        self.scenario = scenario
        self.protocol = protocol
        self.topology = Topology.sized(scenario.groups)
        self.rng = random.Random(f"{scenario.seed}/world")
        self.now = 0
        self.end_ns = scenario.limit_ns
        self.events = 0  # inputs handled
        self.overtakings = 0  # frames that arrive before one that was sent earlier on the same link
        self.observations = Observations(follow_steps=scenario.steps)
        self.took_effect: list[object] = []  # the faults that changed something
        self.on_multicast: Callable[[Site, Record], None] = lambda site, record: None
        self.on_delivered: Callable[[Site, Delivered], None] = lambda site, event: None
        self.on_reply: Callable[[Site, Reply], None] = lambda site, reply: None
        self.on_assured: Callable[[Site, Assured], None] = lambda site, assured: None
        self.on_crash: Callable[[Site], None] = lambda site: None
        self.on_restart: Callable[[Site], None] = lambda site: None
        self.on_gone: Callable[[Site], None] = lambda site: None
        # What is to happen, by time and ticket: (..., None, action, arguments, None, None), or a frame that is under
        # way, as ``Site.on_send`` puts it. No two have the same ticket, so nothing behind it is ever compared.
        self.heap: list[tuple[Any, ...]] = []
        self.tickets = count(1)
        most = scenario.events_max or EVENTS_MAX + EVENTS_MAX_PER_PLAN * len(scenario.plans)
        self._budget = repeat(None, most)  # one is taken for each thing that happens
        self._fifo = scenario.fifo
        self._turn_ns = scenario.turn_ns
        self._at_once = not (scenario.journal or scenario.turn_ns)  # each input is a turn, and waits for no disk
        self._steps = scenario.steps
        assumes = protocol.assumes(parse_options(protocol, scenario.options))
        self.detector = FailureDetector(self, assumes.detector)
        members = self.topology.processes
        senders = () if scenario.through_members else (ProcessId(plan.sender) for plan in scenario.plans)
        self.sites = {process: self._site(process) for process in dict.fromkeys((*members, *senders))}
        apart = {frozenset((pair.one, pair.other)): Constant(pair.ns) for pair in scenario.distances}
        for site in self.sites.values():
            for target in self.sites.values():
                if target is not site:
                    latency = (
                        apart.get(frozenset((site.id, target.id)), scenario.latency) if apart else scenario.latency
                    )
                    site.links[target.id] = Link(site.id, target.id, latency, scenario.seed)
        self.members = {group: [str(p) for p in members] for group, members in self.topology.groups.items()}
        for site in self.sites.values():
            site.is_prompt = self._at_once
            for link in site.links.values():
                host = self.sites[link.target].host
                if isinstance(host, PromptHost) and self._at_once and not self._steps:
                    link.host = host
        for site in self.sites.values():
            self.take(site, Begin(0, self.topology.roster))

    def _fresh(self, process: ProcessId) -> Process:
        gather = Gather(requests=self.scenario.gather)
        return Process(process, self.topology, self.protocol, self.scenario.options, gather)

    def _site(self, process: ProcessId) -> Site:
        disk = Disk(self.scenario.snapshot_every) if self.scenario.journal else None
        return Site(self, self._fresh(process), disk, fifo=self._fifo)

    # Time -------------------------------------------------------------------------------------------------------

    def at(self, time: int, action: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        """Have ``action(*arguments)`` happen at a time; what is due at the same time happens in the order of asking."""
        heappush(self.heap, (max(time, self.now), next(self.tickets), None, action, arguments, None, None))

    def run(self) -> None:
        """Let things happen until nothing is left to happen or time is up. Livelock: they happen without end."""
        most = length_hint(self._budget)
        while length_hint(self._budget):
            if not self._go_on():
                return
            if not self.scenario.journal:
                self.observations.take_down()
        raise Livelock(f"The run is not at rest after {most} events and {self.now / MILLISECOND:.0f} ms.")

    def _go_on(self) -> bool:
        """Let some of what is left happen; False: nothing is left, or time is up."""
        heap, arrive = self.heap, self._arrive
        for _ in islice(self._budget, AT_HAND):
            if not heap:
                return False
            time, _, link, channel, number, frame, _ = happening = heappop(heap)
            if time > self.end_ns:
                return False
            self.now = time
            if link is None:
                action, arguments = channel, number
                action(*arguments)
            elif channel is None or (host := link.host) is None:
                arrive(happening)
            else:  # as nearly all do
                self.events += 1
                if not host.receive_at_once(channel, time, number, frame):
                    self.events -= 1
        return True

    def close(self) -> None:
        """Nothing will happen any more: let go of what is large. A world is full of cycles, and outlives its use."""
        for site in self.sites.values():
            site.host.close()

    # Inputs -----------------------------------------------------------------------------------------------------

    def take(self, site: Site, happened: AnyInput, carried: Steps | None = None) -> None:
        """Something happens to a process; ``carried`` are the steps behind it."""
        if not site.up:
            return
        if site.held is not None:
            site.held.append((happened, carried))
            self.effective(site.pause)
            return
        self._handle(site, happened, self.observations.arrived(site, carried) if self._steps else None)
        if type(happened) is NewRoster:
            self._meet(site)

    def arrive_together(self, together: Together) -> None:
        """A frame that is at all its receivers at the same time, as ``Site.on_send`` sent it on its way. To each it
        happens by itself, and the first of these was counted as what happens here."""
        ticket, links, channel, numbers, frame, carried = together
        now, counted = self.now, chain(_ONE, self._budget)
        for link, number, _ in zip(links, numbers, counted):  # noqa: B905 - the run may end amid them
            host = link.host
            if host is None:
                self._arrive((now, ticket, link, channel, number, frame, carried))
            else:
                self.events += 1
                if not host.receive_at_once(channel, now, number, frame):
                    self.events -= 1

    def _arrive(self, arriving: tuple[Any, ...]) -> None:
        """A frame, as ``Site.on_send`` sent it on its way."""
        link: Link
        channel: ChannelId | None
        _, ticket, link, channel, number, frame, carried = arriving
        site = self.sites[link.target]
        if ticket in link.lost or not site.up or self._are_strangers(site, self.sites[link.source]):
            return
        if link.cuts:
            self.effective(link.cuts[-1])
            return
        if channel is not None and number < 0:
            self._hear(site, link, channel, -number, frame, carried)
            return
        if site.held is not None or channel is None:
            transport = _DATAGRAM if channel is None else channel.transport
            self.take(site, Receive(self.now, link.source, transport, number, frame), carried)
            return
        note = self.observations.arrived(site, carried) if self._steps else None
        host = site.host
        if self._at_once and isinstance(host, PromptHost) and self._is_prompt(site):
            self.events += 1
            if not host.receive_at_once(channel, self.now, number, frame, note):
                self.events -= 1
            return
        try:
            if not host.is_new(channel, number):
                return
        except BadFrame:
            return  # one before it was lost with its connection, and both will be resent
        happened: AnyInput = Receive(self.now, link.source, channel.transport, number, frame)
        if number % IN_FULL and host.process.is_foretold(channel, number, frame.checksum):
            happened = Confirmed(self.now, link.source, channel.transport, number)
        self._handle(site, happened, note)

    def _hear(
        self, site: Site, link: Link, channel: ChannelId, number: int, frame: Buffers, carried: Steps | None
    ) -> None:
        """A frame is foretold."""
        if number > site.process.inbox(channel).received:
            self.take(site, Foretold(self.now, link.source, channel.transport, number, frame), carried)

    def _handle(self, site: Site, happened: AnyInput, note: Steps | None) -> None:
        """Have an input journaled and handled, end the turn now or soon, and let out what is durable."""
        self.events += 1
        host, turn_ns = site.host, self._turn_ns
        if self._at_once and isinstance(host, PromptHost) and self._is_prompt(site):
            host.take_at_once(happened, note)
            return
        host.take(happened, note)
        if not turn_ns:
            host.end_turn(self.now, note)
        elif site.turn_ends_at is None and host.process.turn_is_open:
            site.turn_ends_at = self.now + turn_ns
            self.at(site.turn_ends_at, self._end_turn, site, site.life)
        self._commit(site)

    def _is_prompt(self, site: Site) -> bool:
        """No disk: whether what comes of an input leaves at once. What was held back left at ``last_release``."""
        return site.is_prompt or (site.last_release < self.now and not (site.delay_ns or site.doom))

    def _end_turn(self, site: Site, life: int) -> None:
        if site.up and site.life == life:
            site.turn_ends_at = None
            site.host.end_turn(self.now, self.observations.departing(site) if self._steps else None)
            self._commit(site)

    def multicast(
        self, site: Site, destinations: tuple[str, ...], payloads: tuple[bytes, ...], service: Service | None = None
    ) -> None:
        self.take(site, Multicast(self.now, self.topology.destinations(destinations), payloads, service))

    def fire(self, site: Site, life: int, timer: SetTimer) -> None:
        if site.up and site.life == life and site.process.state.timers.get((timer.part, timer.timer)) == timer.due:
            self.take(site, Fire(self.now, timer.part, timer.timer, timer.due))

    # Durability -------------------------------------------------------------------------------------------------

    def _commit(self, site: Site) -> None:
        """Have what was taken made durable; where there is no disk, it is durable at once."""
        disk, host = site.disk, site.host
        if site.delay_ns:
            self.effective(site.slowness)
        if disk is None:
            if not site.delay_ns and site.last_release <= self.now:
                self._release(site, host.next_index)
            else:
                site.last_release = due = max(self.now + site.delay_ns, site.last_release)
                self.at(due, self._release_late, site, site.life, host.next_index)
            return
        if not self._release(site, disk.durable):  # what need not wait for this sync
            return
        if disk.syncing is None and host.held:
            disk.begin_sync()
            self.at(self.now + self.scenario.sync_ns + site.delay_ns, self._synced, site, site.life)

    def _release_late(self, site: Site, life: int, index: int) -> None:
        if site.up and site.life == life:
            self._release(site, index)

    def _synced(self, site: Site, life: int) -> None:
        disk = site.disk
        if not site.up or site.life != life or disk is None:
            return
        if not self._release(site, disk.sync_done()):
            return
        host = site.host
        if host.held:
            self._commit(site)
        elif disk.wants_snapshot and not host.process.turn_is_open:
            disk.keep_snapshot(host.snapshot())

    def _release(self, site: Site, index: int) -> bool:
        """Let out what is durable. Whether the process is still up after it."""
        try:
            site.release(index)
        except Interrupted:
            assert site.doom is not None
            fault = site.doom
            self.effective(fault)
            self.crash(site, fault.down_ns)
            return False
        return True

    def asked(self, site: Site) -> None:
        """The process asks about others than before."""
        self.detector.tell(site)

    def acknowledge_all(self) -> None:
        """For a world that goes on for long and is not judged: nobody keeps what has arrived."""
        for site in self.sites.values():
            for (peer, transport), box in site.host.outboxes.items():
                held = self.sites[peer].host.received.get(channel_to(site.id, transport), NO_FRAMES)
                box.acknowledge(min(held.frames, box.sent))

    def acknowledge(self, site: Site) -> None:
        """Tell the peers what is held durably, so that they keep no copy. Acknowledgements take no time here."""
        received = site.host.received
        for channel in site.host.take_fresh():
            peer, transport = channel
            source = self.sites[peer]
            if source.up:
                box = source.host.outbox(channel_to(site.id, transport))
                box.acknowledge(min(received[channel].frames, box.sent))

    # The network ------------------------------------------------------------------------------------------------

    def transmit_datagram(self, link: Link, frame: Buffers, carried: Steps | None) -> None:
        if link.cuts:
            self.effective(link.cuts[-1])
            return
        chance = link.rng.random()
        copies = 0 if chance < self.scenario.loss else 2 if chance > 1 - self.scenario.duplication else 1
        for _ in range(copies):
            due = self.now + link.takes()
            self.overtakings += due < link.last_datagram
            link.last_datagram = max(due, link.last_datagram)
            heappush(self.heap, (due, next(self.tickets), link, None, 0, frame, carried))

    def reconnect(self, link: Link) -> None:
        """The handshake of a connection: the receiver says what it holds, the sender resends the rest.

        Where what was sent survives its sender, the network itself remembers it.
        """
        source, target = self.sites[link.source], self.sites[link.target]
        remembered = source.up or self.scenario.sent_survives
        if not (remembered and target.up) or link.cuts or self._are_strangers(source, target):
            return
        for transport in NUMBERED:
            box = source.host.outboxes.get(ChannelId(link.target, transport))
            if box is None:
                continue
            channel = ChannelId(link.source, transport)
            held = target.host.received.get(channel, NO_FRAMES)
            if source.up:
                source.host.check_peer(ChannelId(link.target, transport), held=held)
            target.host.check_peer(channel, forgotten=box.acknowledged)
            box.acknowledge(min(held.frames, box.sent))
            for number, frame in list(box.frames_from(box.acknowledged + 1)):
                source.resend(link, channel, number, frame)

    # Faults -----------------------------------------------------------------------------------------------------

    def effective(self, fault: object) -> None:
        if fault is not None and fault not in self.took_effect:
            self.took_effect.append(fault)

    def hinder(self, site: Site) -> None:
        """What comes to a process, or comes of it, may have to wait from now on."""
        site.count_released()
        site.is_prompt = False
        for peer in site.links:
            self.sites[peer].links[site.id].host = None

    def crash(self, site: Site, down_ns: int | None) -> None:
        self.hinder(site)
        site.up = False
        site.life += 1
        site.crashed_at = self.now
        site.held = site.pause = site.turn_ends_at = None
        # A stream of its own for each crash, for the same reason as for each link.
        rng = random.Random(f"{self.scenario.seed}/{site.id}/crash {site.life}")
        if site.disk is not None:
            site.disk.crash(rng)
            if site.process.foretells:
                self.observations.cut_off(site, site.host.waiting, site.disk.next_index)
        site.undoom()
        self.detector.crashed(site, rng, for_good=down_ns is None)
        if not self.scenario.sent_survives:
            self._lose(site, rng)
        self.on_crash(site)
        if down_ns is not None:
            assert site.disk is not None, "only a journal lets a process return"
            self.at(self.now + down_ns, self._restart, site)
        else:
            site.is_gone = True
            self.on_gone(site)

    def _lose(self, crashed: Site, rng: random.Random) -> None:
        """Of what is under way from a process some is lost: any frames to any receivers, but from a channel that keeps
        its order only the last ones."""
        chance = rng.choice(LOST)
        broken: set[tuple[Link, ChannelId | None]] = set()
        for ticket, link, channel in sorted(self._under_way(), key=itemgetter(0)):
            if link.source != crashed.id:
                continue
            ordered = channel is not None and (self._fifo or channel.transport is _FIFO)
            if rng.random() < chance or (ordered and (link, channel) in broken):
                link.lost.add(ticket)
                link.host = None
                broken.add((link, channel))

    def _under_way(self) -> Iterator[tuple[int, Link, ChannelId | None]]:
        """The frames that are, each with its ticket; those that arrive together have one, and come in their order."""
        for _, ticket, link, channel, arguments, _, _ in self.heap:
            if link is not None:
                yield ticket, link, channel
            elif channel == self.arrive_together:
                ((_, links, shared, *_),) = arguments
                yield from ((ticket, each, shared) for each in links)

    def _restart(self, site: Site) -> None:
        """The newest snapshot, and the rest replayed; then what the peers do not hold is sent again."""
        disk = site.disk
        assert disk is not None
        if site.is_gone:
            return
        known = site.process.topology.roster
        site.reborn(self._fresh(site.id))
        host = site.host
        if disk.snapshot is not None:
            host.restore(disk.snapshot)
        host.replay(disk.replay())
        host.go_on()
        site.up = True
        for peer in self.sites.values():
            if peer is not site:
                self.reconnect(site.links[peer.id])
                self.reconnect(peer.links[site.id])
        if disk.next_index == 0 and disk.snapshot is None:
            # It crashed before its beginning was durable. Who was replaced meanwhile is not in the newest topology, and
            # has not heard of that.
            self.take(site, Begin(self.now, known))
        self.take(site, Recover(self.now, site.crashed_at))
        self.detector.returned(site, random.Random(f"{self.scenario.seed}/{site.id}/return {site.life}"))
        self.on_restart(site)
        self.at(self.now, self.tell_topology, site)

    # Replacements ---------------------------------------------------------------------------------------------------

    def retire(self, site: Site) -> None:
        """A process is gone for good, and its disk with it."""
        if site.up:
            self.crash(site, None)
        elif not site.is_gone:
            self.on_gone(site)
        site.is_gone = True
        for link in site.links.values():
            link.host = None

    def join(self, process: ProcessId) -> None:
        """Somebody new begins, who is in the newest topology."""
        self.members[self.topology.group_of[process]].append(process)
        newcomer = self.sites[process] = self._site(process)
        for other in self.sites.values():
            if other is not newcomer:
                for one, two in ((newcomer, other), (other, newcomer)):
                    one.links[two.id] = Link(one.id, two.id, self.scenario.latency, self.scenario.seed)
        self.take(newcomer, Begin(self.now, self.topology.roster))
        self.detector.joined(newcomer, random.Random(f"{self.scenario.seed}/{process}/joins"))

    def tell_topology(self, site: Site) -> None:
        if site.up and site.process.topology.epoch < self.topology.epoch:
            self.take(site, NewRoster(self.now, self.topology.roster))

    def _meet(self, site: Site) -> None:
        """Newcomers whose frames were not taken before send them again."""
        for newcomer in site.process.topology.joined:
            if newcomer != site.id:
                self.reconnect(self.sites[newcomer].links[site.id])

    def _are_strangers(self, one: Site, other: Site) -> bool:
        """Whether either knows of no such member, or of none any more: then they have no connection."""
        return self.topology.epoch > 0 and (
            one.process.topology.is_stranger(other.id) or other.process.topology.is_stranger(one.id)
        )

    def _receive_late(self, site: Site, received: Receive, carried: Steps | None) -> None:
        link = self.sites[received.sender].links[site.id]
        channel = ChannelId(received.sender, received.transport)
        self._arrive((self.now, 0, link, channel, received.number, received.frame, carried))

    def pause(self, site: Site, fault: object) -> None:
        self.hinder(site)
        site.pause = fault
        if site.held is None:
            site.held = []

    def resume(self, site: Site, fault: object) -> None:
        if site.pause is fault and site.held is not None:
            held, site.held, site.pause = site.held, None, None
            for happened, carried in held:
                if type(happened) is Receive and happened.transport is not Transport.DATAGRAM:
                    self._receive_late(site, happened, carried)
                else:
                    self.take(site, happened, carried)
            self.detector.tell(site)
