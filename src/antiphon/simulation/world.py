"""The virtual world: it feeds every process its inputs, in an order that the seed decides, and carries out its effects.

It keeps the driver's contract (docs/design.md): an input is journaled, handled, and its effects are released when it is
durable; a restart is snapshot plus replay; frames are resent until they are acknowledged.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from antiphon.core.component import OrderingProtocol
from antiphon.core.effects import AnyEffect, CancelTimer, Deliver, Monitor, Record, Reply, Send, SetTimer
from antiphon.core.inputs import AnyInput, Begin, Fire, Multicast, Receive, Recover
from antiphon.core.model import ProcessId, Topology
from antiphon.core.process import Process
from antiphon.simulation.detector import FailureDetector
from antiphon.simulation.disk import Disk
from antiphon.simulation.links import Link
from antiphon.simulation.site import Site, Steps
from antiphon.simulation.values import Scenario
from antiphon.trace import Row

TRACKED_MAX = 16  # messages in flight whose steps are measured; the oldest gives way


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
        self.messages_sent = 0
        self.bytes_sent = 0
        self.rows: list[Row] = []
        self.took_effect: list[object] = []  # the faults that changed something
        self.on_multicast: Callable[[Site, str, tuple[str, ...]], None] = lambda site, name, destinations: None
        self.on_delivered: Callable[[Site, Deliver], None] = lambda site, effect: None
        self.on_reply: Callable[[Site, Reply], None] = lambda site, effect: None
        self.on_restart: Callable[[Site], None] = lambda site: None
        self.on_gone: Callable[[Site], None] = lambda site: None
        self.tracked: dict[str, None] = {}
        self._releases: dict[type, Callable[[Site, Any, Steps], None]] = {
            Send: self._release_send,
            Record: self._release_record,
            Deliver: self._release_deliver,
            SetTimer: self._release_timer,
            CancelTimer: self._release_cancel,
            Reply: self._release_reply,
            Monitor: self._release_monitor,
        }
        self._heap: list[tuple[int, int, Callable[..., None], Any, Any, Any, Any]] = []
        self._ticket = 0
        self._fifo = scenario.fifo
        self._reliable = Process(ProcessId("?"), self.topology, protocol, scenario.options).numbered
        self.detector = FailureDetector(self)
        members = self.topology.processes
        senders = () if scenario.through_members else (ProcessId(plan.sender) for plan in scenario.plans)
        self.sites = {process: self._site(process) for process in dict.fromkeys((*members, *senders))}
        for site in self.sites.values():
            for target in self.sites:
                if target != site.id:
                    site.links[target] = Link(site.id, target, scenario.latency, scenario.seed)
        for site in self.sites.values():
            self.take(site, Begin(0), {})

    def _fresh(self, process: ProcessId) -> Process:
        return Process(process, self.topology, self.protocol, self.scenario.options)

    def _site(self, process: ProcessId) -> Site:
        disk = Disk(self.scenario.snapshot_every) if self.scenario.journal else None
        return Site(self._fresh(process), disk)

    # Time -------------------------------------------------------------------------------------------------------

    def at(
        self, time: int, action: Callable[..., None], a: Any = None, b: Any = None, c: Any = None, d: Any = None
    ) -> int:
        self._ticket += 1
        heappush(self._heap, (max(time, self.now), self._ticket, action, a, b, c, d))
        return self._ticket

    def run(self) -> None:
        """Let things happen until nothing is left to happen or time is up."""
        heap = self._heap
        while heap:
            time, _, action, a, b, c, d = heappop(heap)
            if time > self.end_ns:
                return
            self.now = time
            action(a, b, c, d)

    # Inputs -----------------------------------------------------------------------------------------------------

    def take(self, site: Site, happened: AnyInput, carried: Steps) -> None:
        """The driver's contract, steps 1 to 3."""
        if not site.up:
            return
        if site.held is not None:
            site.held.append((happened, carried))
            self.effective(site.pause)
            return
        if type(happened) is Receive and not self._is_next(site, happened):
            return
        self.events += 1
        steps, tracked = site.steps, self.tracked
        for name, step in carried.items():
            if step > steps.get(name, -1) and name in tracked:
                steps[name] = step
        if site.disk is not None:
            site.disk.append(happened)
        effects = site.process.step(happened)
        carried = {name: step + 1 for name, step in steps.items()}
        if site.disk is None:
            if type(happened) is Receive and self._reliable:
                self.acknowledge(site, happened.sender)
            if not site.delay_ns and not site.waiting:
                self.release(site, effects, carried)
                return
        site.waiting.append((effects, carried))
        self._start_sync(site)

    def _is_next(self, site: Site, received: Receive) -> bool:
        """Whether a frame is neither a repeat nor ahead of one that was lost and will be resent."""
        if not self._reliable:
            return True
        inbox = site.process.channels.inbox(received.sender)
        return received.number == inbox.received + 1 if self._fifo else inbox.is_new(received.number)

    def acknowledge(self, site: Site, peer: ProcessId) -> None:
        """Tell a peer what is held durably, so that it keeps no copy. Acknowledgements take no time here."""
        number = site.durable[peer] = site.process.channels.inbox(peer).received
        source = self.sites[peer]
        if source.up:
            source.process.channels.outbox(site.id).acknowledge(number)

    # Durability -------------------------------------------------------------------------------------------------

    def _start_sync(self, site: Site) -> None:
        if site.disk is None:
            due = max(self.now + site.delay_ns, site.last_release)
            site.last_release = due
            self.at(due, self._release_delayed, site, site.life)
        elif not site.disk.syncing:
            site.disk.syncing = len(site.disk.records)
            self.at(self.now + self.scenario.sync_ns + site.delay_ns, self._synced, site, site.life)
        if site.delay_ns:
            self.effective(site.slowness)

    def _release_delayed(self, site: Site, life: int, *_: object) -> None:
        if site.up and site.life == life:
            self.release(site, *site.waiting.popleft())

    def _synced(self, site: Site, life: int, *_: object) -> None:
        if not site.up or site.life != life or site.disk is None:
            return
        for _count in range(site.disk.sync_done()):
            if site.life == life:  # the release itself may be where the process crashes
                self.release(site, *site.waiting.popleft())
        if site.life != life:
            return
        if not site.waiting:
            for peer in site.process.channels.inboxes:
                self.acknowledge(site, peer)
            site.disk.maybe_snapshot(site.process)
        else:
            self._start_sync(site)

    # Effects ----------------------------------------------------------------------------------------------------

    def release(self, site: Site, effects: list[AnyEffect], carried: Steps) -> None:
        if site.doom is not None and effects:
            count, fault = site.doom
            effects = effects[:count]
            self._release(site, effects, carried)
            self.effective(fault)
            self.crash(site, getattr(fault, "down_ns", None))
            return
        self._release(site, effects, carried)

    def _release(self, site: Site, effects: list[AnyEffect], carried: Steps) -> None:
        for effect in effects:
            self._releases[type(effect)](site, effect, carried)

    def _release_send(self, site: Site, send: Send, carried: Steps) -> None:
        site.released_seq = send.seq
        site.released[send.to] = send.number
        size = len(send.frame)
        name = None if send.subject is None else send.subject.partition("@")[0]
        step = None if name is None else carried.get(name)
        self.rows.append(Row(site.id, send.seq, self.now, "send", name, None, send.to, send.layer, size, step))
        self.messages_sent += 1
        self.bytes_sent += size
        self.transmit(site.links[send.to], send.number, send.frame, carried)

    def _release_record(self, site: Site, record: Record, carried: Steps) -> None:
        site.released_seq = seq = record.seq
        name = None if record.message is None else record.message.partition("@")[0]
        kind, groups, peer, layer, size = record.kind, record.destinations, record.peer, record.layer, record.bytes
        if kind == "multicast" and name is not None and groups is not None:
            self._track(site, name)
            carried.setdefault(name, 1)
            self.on_multicast(site, name, groups)
        time = self.now if record.time_ns is None else record.time_ns
        step = carried[name] - 1 if name in carried else None
        self.rows.append(Row(site.id, seq, time, kind, name, groups, peer, layer, size, step))

    def _release_deliver(self, site: Site, deliver: Deliver, carried: Steps) -> None:
        site.released_seq = seq = deliver.seq
        m = deliver.message
        name = m.id.partition("@")[0]
        step = carried[name] - 1 if name in carried else None
        key = deliver.order_key
        self.rows.append(Row(site.id, seq, self.now, "deliver", name, m.destinations, None, None, None, step, key))
        self.on_delivered(site, deliver)

    def _release_timer(self, site: Site, timer: SetTimer, _: Steps) -> None:
        self.at(timer.due, self._fire, site, site.life, timer.timer, timer.due)

    def _release_cancel(self, site: Site, timer: CancelTimer, _: Steps) -> None:
        """A cancelled timer is ignored when it comes due."""

    def _release_monitor(self, site: Site, monitor: Monitor, _: Steps) -> None:
        site.monitored = monitor.processes
        self.at(self.now, self.detector.tell, site)  # after the other effects of this input: none may come in between

    def _release_reply(self, site: Site, reply: Reply, _: Steps) -> None:
        self.on_reply(site, reply)

    def _track(self, site: Site, name: str) -> None:
        """Begin to measure a message's steps."""
        self.tracked[name] = None
        site.steps.setdefault(name, 0)
        if len(self.tracked) > TRACKED_MAX:
            self.forget(next(iter(self.tracked)))

    def forget(self, name: str) -> None:
        """Stop measuring a message's steps."""
        self.tracked.pop(name, None)
        for site in self.sites.values():
            site.steps.pop(name, None)

    def transmit(self, link: Link, number: int, frame: bytes, carried: Steps) -> None:
        if link.cuts:
            self.effective(link.cuts[-1])
            return  # it stays in the outbox and is resent when the link heals
        copies = 1
        if not self._reliable:
            chance = link.rng.random()
            copies = 0 if chance < self.scenario.loss else 2 if chance > 1 - self.scenario.duplication else 1
        for _ in range(copies):
            due = self.now + link.delay()
            if self._fifo and self._reliable:
                link.last_arrival = due = max(due, link.last_arrival)
            self._ticket += 1
            heappush(self._heap, (due, self._ticket, self._arrive, link, number, frame, (self._ticket, carried)))

    def _arrive(self, link: Link, number: int, frame: bytes, rest: tuple[int, Steps]) -> None:
        ticket, carried = rest
        if ticket < link.void_before:
            return
        if link.cuts:
            self.effective(link.cuts[-1])
            return
        self.take(self.sites[link.target], Receive(self.now, link.source, number, frame), carried)

    def _fire(self, site: Site, life: int, timer: str, due: int) -> None:
        if site.up and site.life == life and site.process.state.timers.get(timer) == due:
            self.take(site, Fire(self.now, timer, due), {})

    def multicast(self, site: Site, destinations: tuple[str, ...], payload: bytes) -> None:
        self.take(site, Multicast(self.now, self.topology.destinations(destinations), payload), {})

    # Faults -----------------------------------------------------------------------------------------------------

    def effective(self, fault: object) -> None:
        if fault is not None and fault not in self.took_effect:
            self.took_effect.append(fault)

    def crash(self, site: Site, down_ns: int | None) -> None:
        site.up = False
        site.life += 1
        site.crashed_at = self.now
        site.doom = site.held = site.pause = None
        site.waiting.clear()
        if site.disk is not None:
            site.disk.crash(self.rng)
        self.detector.crashed(site)
        for link in site.links.values():
            if not self.scenario.sent_survives and self.rng.random() < 0.5:
                link.void_before = self._ticket + 1
        if down_ns is not None:
            assert site.disk is not None, "only a journal lets a process return"
            self.at(self.now + down_ns, self._restart, site)
        else:
            self.on_gone(site)

    def _restart(self, site: Site, *_: object) -> None:
        """Last snapshot plus replay; what was released before is not released again, all else is."""
        assert site.disk is not None
        site.process = self._fresh(site.id)
        site.up = True
        effects = site.disk.recover(site.process)
        lost = [effect for effect in effects if getattr(effect, "seq", site.released_seq + 1) > site.released_seq]
        site.released = {peer: box.sent for peer, box in site.process.channels.outboxes.items()}
        self._release(site, [effect for effect in lost if type(effect) is not SetTimer], dict(site.steps))
        for timer, due in site.process.state.timers.items():
            self.at(due, self._fire, site, site.life, timer, due)
        for peer in self.sites.values():
            if peer is not site:
                site.durable[peer.id] = site.process.channels.inbox(peer.id).received
                self.reconnect(site.links[peer.id])
                self.reconnect(peer.links[site.id])
        self.take(site, Recover(self.now, site.crashed_at), {})
        self.detector.returned(site)
        self.on_restart(site)

    def reconnect(self, link: Link) -> None:
        """The handshake of a channel: the receiver says what it holds, the sender resends the rest.

        Where what was sent survives its sender, the network itself remembers it.
        """
        source, target = self.sites[link.source], self.sites[link.target]
        remembered = source.up or self.scenario.sent_survives
        if not (remembered and target.up and self._reliable) or link.cuts:
            return
        outbox = source.process.channels.outbox(link.target)
        outbox.acknowledge(target.durable.get(link.source, 0))
        released = source.released.get(link.target, 0)
        for number in range(outbox.acknowledged + 1, released + 1):
            self.transmit(link, number, outbox.frames[number], dict(source.steps))

    def pause(self, site: Site, fault: object) -> None:
        site.pause = fault
        if site.held is None:
            site.held = []

    def resume(self, site: Site, fault: object) -> None:
        if site.pause is fault and site.held is not None:
            held, site.held, site.pause = site.held, None, None
            for happened, carried in held:
                self.take(site, happened, carried)
            self.detector.tell(site)
