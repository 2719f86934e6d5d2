"""Simulated clients that are no processes: they hand requests to members, lose answers, and go on at other members.

They keep the rules of a real client (docs/clients.md): numbers are dense for each set of groups, one set's requests go
to one member in order, and whoever changes member sends again everything that is not known to be delivered.
"""

from __future__ import annotations

import random
from collections import deque

from antiphon.core.buffers import Buffers
from antiphon.core.effects import Assured, Reply
from antiphon.core.errors import Unavailable
from antiphon.core.events import Delivered
from antiphon.core.inputs import Submit
from antiphon.core.keys import first_number
from antiphon.core.model import GroupId, ProcessId
from antiphon.core.options import parse_options
from antiphon.core.promises import Promise
from antiphon.core.requests import Request, encode_request, with_settled
from antiphon.core.sessions import OutOfTurn
from antiphon.simulation.links import sampler
from antiphon.simulation.site import Site
from antiphon.simulation.values import MILLISECOND, Plan
from antiphon.simulation.workload import payloads_of
from antiphon.simulation.world import World

PATIENCE_NS = 20 * MILLISECOND
PATIENCE_NS_MAX = 2_000 * MILLISECOND
ANSWER_LOST = 0.2  # an answer can get lost with its connection
LEAVES = 0.5  # a client may be gone for good once all is answered: then only the members can keep what it was told
FALLS = 0.5  # it may be on the machine of a member, and be gone with it
TURNS = 0.8  # most count their turns: each set of groups waits until what was sent to others before is assured
ASKS_MEMBER = 0.2  # of those who could wait until a majority of each group holds what they send, some do not


class ClientStream:
    """What one client sends to one set of groups."""

    def __init__(self, destinations: tuple[GroupId, ...]) -> None:
        self.destinations = destinations
        self.next = 0  # number
        self.requests: list[tuple[int, int, bytes]] = []  # first, end, bytes: all that is not settled
        self.member: Site | None = None
        self.connection = 0  # counts them: what is under way on an earlier one is lost
        self.life = 0  # of the member when the connection was made: it does not outlive it
        self.taken = 0  # by the present member
        self.assured = 0  # by any: a majority of each group has all below
        self.delivered: dict[GroupId, int] = dict.fromkeys(destinations, 0)
        self.patience = PATIENCE_NS
        self.watched = False

    @property
    def settled(self) -> int:
        return min(self.delivered.values())


class MemberClient:
    """One client, which is a member of nothing."""

    def __init__(self, world: World, name: str, plans: list[Plan]) -> None:
        self.world = world
        self.name = name
        self.rng = random.Random(f"{world.scenario.seed}/client/{name}")
        self.delay = sampler(world.scenario.latency, self)
        self.leaves = random.Random(f"{world.scenario.seed}/leaving/{name}").random() < LEAVES
        self.unsent = len(plans)
        waiting = random.Random(f"{world.scenario.seed}/waiting/{name}")
        promises = world.protocol.promises(parse_options(world.protocol, world.scenario.options))
        assures = Promise.DURABLE_RECEIPTS in promises
        across = Promise.CLIENT_TURN_ORDER in promises
        self.waits = assures and waiting.random() >= ASKS_MEMBER  # for more than the one member
        self.falls = self.waits and waiting.random() < FALLS
        self.turns = self.waits and across and waiting.random() < TURNS
        self.turn = self.floor = self.latest = 0
        self.present: tuple[GroupId, ...] | None = None  # the set of groups of this turn
        self.queue: deque[tuple[Plan, int]] = deque()  # of turns to come
        if self.waits and self.leaves and world.scenario.faults:
            self.unsent = waiting.randint(1, len(plans))  # it leaves when these are answered, and sends no more
        self.streams: dict[tuple[GroupId, ...], ClientStream] = {}
        self._arrival: dict[ProcessId, int] = {}  # a connection keeps the order of what is sent
        self._return: dict[ProcessId, int] = {}  # and of what comes back
        for index, plan in enumerate(plans):
            world.at(plan.at, self._send, plan, index)

    @classmethod
    def all_of(cls, world: World) -> None:
        names = dict.fromkeys(plan.sender for plan in world.scenario.plans)
        clients = {name: cls(world, name, [p for p in world.scenario.plans if p.sender == name]) for name in names}

        def on_reply(site: Site, reply: Reply) -> None:
            clients[reply.client]._on_reply(site, reply)

        def on_delivered(site: Site, event: Delivered) -> None:
            group = site.process.topology.group_of[site.id]
            for request in event.requests:
                clients[request.client]._on_delivered(event, group, request.end)

        def on_crash(site: Site) -> None:
            for client in clients.values():
                client._on_crash(site)

        def on_assured(site: Site, assured: Assured) -> None:
            clients[assured.client]._on_assured(site, assured)

        world.on_reply = on_reply
        world.on_assured = on_assured
        world.on_delivered = on_delivered
        world.on_crash = on_crash

    # Out ----------------------------------------------------------------------------------------------------------

    def _send(self, plan: Plan, index: int) -> None:
        if self.unsent == 0:
            return
        self.unsent -= 1
        self.queue.append((plan, index))
        self._go_on()

    def _go_on(self) -> None:
        """Send what may be sent now."""
        while self.queue:
            destinations = self.world.topology.destinations(self.queue[0][0].destinations)
            if self.turns and self.present not in (None, destinations):
                if not self._all_assured():
                    return
                self.turn += 1
                self.floor = self.latest + 1
            self.present = destinations
            self._hand_in(destinations, *self.queue.popleft())

    def _all_assured(self) -> bool:
        return all(max(stream.assured, stream.settled) >= stream.next for stream in self.streams.values())

    def _hand_in(self, destinations: tuple[GroupId, ...], plan: Plan, index: int) -> None:
        stream = self.streams.setdefault(destinations, ClientStream(destinations))
        payloads = payloads_of(plan, index)
        turn = (self.floor, self.turn)
        data = encode_request(self.name, stream.next, stream.settled, payloads, plan.service, *turn)
        stream.requests.append((stream.next, stream.next + len(payloads), data))
        stream.next += len(payloads)
        if stream.member is None:
            self._choose(stream)
        else:
            self._hand_over(stream, data)
        self._watch(stream)

    def _choose(self, stream: ClientStream) -> None:
        """Go on at some member: send again everything that is not known to be delivered."""
        members = self.world.topology.addressees(stream.destinations)
        stream.member = self.world.sites[self.rng.choice(members)]
        stream.life = stream.member.life
        stream.taken = stream.settled
        self._repeat(stream, stream.settled)

    def _hang_up(self, stream: ClientStream) -> None:
        stream.member = None
        stream.connection += 1

    def _repeat(self, stream: ClientStream, start: int) -> None:
        again = [
            b"".join(with_settled(data, min(stream.settled, first)))
            for first, _, data in stream.requests
            if first >= start
        ]
        together = self.rng.randint(1, 4)  # requests may come in one piece
        for at in range(0, len(again), together):
            self._hand_over(stream, *again[at : at + together])

    def _hand_over(self, stream: ClientStream, *requests: bytes) -> None:
        world, member = self.world, stream.member
        assert member is not None
        due = max(world.now + self.delay(), self._arrival.get(member.id, 0))
        self._arrival[member.id] = due
        world.at(due, self._arrive, stream, stream.connection, member, requests)

    def _arrive(self, stream: ClientStream, connection: int, member: Site, requests: tuple[bytes, ...]) -> None:
        if not member.up or stream.connection != connection or stream.life != member.life:
            return
        before: Request | None = None
        try:
            for data in requests:
                before = member.process.checks.request(self.name, stream.destinations, data, before, self.world.now)
        except (OutOfTurn, Unavailable):  # it forgot in a crash what it had taken, or has yet to catch up
            self._hang_up(stream)
            self._watch(stream)
            return
        self.world.take(member, Submit(self.world.now, stream.destinations, Buffers(*requests)))

    # Back ---------------------------------------------------------------------------------------------------------

    def _on_reply(self, site: Site, reply: Reply) -> None:
        if self.rng.random() >= ANSWER_LOST:
            self.world.at(self._comes_back(site), self._on_taken, site, site.life, reply.destinations, reply.taken)

    def _comes_back(self, site: Site) -> int:
        """When the client hears of what happens now at a member."""
        self._return[site.id] = due = max(self.world.now + self.delay(), self._return.get(site.id, 0))
        return due

    def _on_taken(self, site: Site, life: int, destinations: tuple[GroupId, ...], taken: int) -> None:
        stream = self.streams[destinations]
        if stream.member is site and stream.life == life:
            stream.taken = max(stream.taken, taken)
        if not self.waits and all(s.member and s.taken >= s.next for s in self.streams.values()):
            self._leave()

    def _on_assured(self, site: Site, assured: Assured) -> None:
        if self.rng.random() >= ANSWER_LOST:
            self.world.at(self._comes_back(site), self._hear_assured, assured)

    def _hear_assured(self, assured: Assured) -> None:
        stream = self.streams[assured.destinations]
        stream.assured = max(stream.assured, assured.assured)
        self.latest = max(self.latest, assured.timestamp)
        self._go_on()
        if self.waits and all(s.assured >= s.next for s in self.streams.values()):
            self._leave()

    def _leave(self) -> None:
        """All is answered. If it goes, nobody sends anything again."""
        if self.leaves and not self.unsent and not self.queue:
            self._forget()

    def _forget(self) -> None:
        self.queue.clear()
        for stream in self.streams.values():
            stream.requests.clear()

    def _on_delivered(self, event: Delivered, group: GroupId, end: int) -> None:
        stream = self.streams[event.destinations]
        stream.delivered[group] = max(stream.delivered[group], end)
        settled = stream.settled
        while stream.requests and stream.requests[0][1] <= settled:
            stream.requests.pop(0)
        if self.turns and event.key is not None:
            self.latest = max(self.latest, first_number(event.key))
            self._go_on()

    def _on_crash(self, site: Site) -> None:
        """Its connections break, and the client hears of it after the answers that left before."""
        if self.falls and any(stream.member is site for stream in self.streams.values()):
            self.unsent = 0
            self._forget()
        for stream in self.streams.values():
            if stream.member is site:
                self.world.at(self._comes_back(site), self._on_break, stream, stream.connection)

    def _on_break(self, stream: ClientStream, connection: int) -> None:
        """What the member took may be gone with it."""
        if stream.connection == connection:
            self._hang_up(stream)
            self._watch(stream)

    def _watch(self, stream: ClientStream) -> None:
        """Look again after a while whether the member has taken everything."""
        if not stream.watched:
            stream.watched = True
            self.world.at(self.world.now + stream.patience, self._look, stream)

    def _look(self, stream: ClientStream) -> None:
        stream.watched = False
        if not stream.requests:
            stream.patience = PATIENCE_NS
            return
        if stream.member is None or stream.taken < stream.next:
            stream.patience = min(2 * stream.patience, PATIENCE_NS_MAX)
            self._hang_up(stream)
            self._choose(stream)
            self._watch(stream)
