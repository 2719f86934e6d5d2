"""All that one client sends: its routes, the bytes that they keep, the callers' deadlines, the silence of members."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from antiphon.client.connection import MEMBER_SILENCE_SECONDS, JoinMember
from antiphon.client.lane import BUSY_SECONDS
from antiphon.client.members import Members, RequestConnection
from antiphon.client.outgoing import NO_DEADLINE
from antiphon.client.progress import GroupProgress
from antiphon.client.route import Route
from antiphon.client.turns import ClientTurn, Turns
from antiphon.core import Topology
from antiphon.core.errors import BadFrame
from antiphon.core.model import GroupId, ProcessId
from antiphon.core.requests import PAYLOADS_MAX
from antiphon.runtime.net.frames import ProgressAnswer

ROUTE_BYTES_MAX = 64 << 20  # of requests of one route that are not known to be delivered everywhere
BYTES_MAX = 256 << 20  # of all routes
SHARE_BYTES = 1 << 20  # what a route may keep even then, so that those that wait never stop the others
HURRY_BYTES = 8 << 20  # a route with more than this asks at once how far its groups are
SWEEP_SECONDS_MIN = 0.005
SPELLINGS_MAX = 4096  # ways to name sets of groups that are remembered


_BEFORE_ALL = ClientTurn(-1, None)  # type: ignore[arg-type]


class Sender:
    def __init__(
        self,
        client: str,
        topology: Topology,
        join: JoinMember,
        linger: float,
        batch_bytes: int,
        *,
        assures: bool,
        across_sets: bool,
    ) -> None:
        self.client = client
        self.assures = assures  # whether members tell what a majority of each group holds
        self.turns = Turns()
        self.newest: ClientTurn | None = _BEFORE_ALL if across_sets else None  # of its turns, where these are counted
        self.linger = linger
        self.batch_bytes = batch_bytes
        self.entry_bytes = max(
            4, -(-batch_bytes // PAYLOADS_MAX)
        )  # counted per payload, so that neither limit is passed
        self.loop = asyncio.get_running_loop()
        self.members = Members(lambda member: self._topology.group_of[ProcessId(member)], join, self._on_progress)
        self.spellings: dict[Iterable[str], Route] = {}  # by the groups as callers give them
        self.next_sweep = NO_DEADLINE
        self._topology = topology
        self._routes: dict[tuple[str, ...], Route] = {}
        self._progress: dict[str, GroupProgress] = {}
        self._bytes = 0
        self._stalled: dict[Route, None] = {}  # those without room, in order
        self._sweep_handle: asyncio.TimerHandle | None = None
        self._watching = self.loop.create_task(self._watch())

    async def close(self) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        if self._sweep_handle is not None:
            self._sweep_handle.cancel()
        for progress in self._progress.values():
            progress.close()
        for route in self._routes.values():
            route.close()
        self.spellings.clear()
        await self.members.close()

    # Routes ---------------------------------------------------------------------------------------------------------

    def route(self, groups: Iterable[str]) -> Route:
        """The route to a set of groups, however it is written."""
        if type(groups) is list:
            groups = tuple(groups)
        destinations = self._topology.destinations(groups)
        route = self._routes.get(destinations)
        if route is None:
            route = self._routes[destinations] = Route(destinations, self._topology.addressees(destinations), self)
            for group in destinations:
                self._group_progress(group).routes.append(route)
        if isinstance(groups, (str, tuple, frozenset)) and len(self.spellings) < SPELLINGS_MAX:
            self.spellings[groups] = route
        return route

    def _group_progress(self, group: GroupId) -> GroupProgress:
        found = self._progress.get(group)
        if found is None:
            members = self._topology.members(group)
            found = self._progress[group] = GroupProgress(members, self.members, group)
        return found

    def follow(self, topology: Topology) -> None:
        """Members were replaced."""
        self._topology = topology
        for destinations, route in self._routes.items():
            route.candidates.set_members(topology.addressees(topology.destinations(destinations)))
        for group, progress in self._progress.items():
            progress.set_members(topology.members(GroupId(group)))

    def see_to(self, route: Route) -> None:
        """See to it that the route gets to know what is delivered."""
        if route.ledger.requests:
            hurry = route.bytes > HURRY_BYTES
            for group in route.destinations:
                self._progress[group].wake(hurry=hurry)

    def _on_progress(self, connection: RequestConnection, answer: ProgressAnswer) -> None:
        self.hear(answer.timestamp)
        for destinations, delivered in answer.delivered:
            route = self._routes.get(tuple(destinations))
            if route is None or answer.group not in route.ledger.delivered:
                raise BadFrame("A member has delivered what was never sent.")
            route.on_delivered(answer.group, delivered, connection.member)

    def hear(self, timestamp: int) -> None:
        """Nothing that a majority of each group was said to hold is ordered behind this."""
        self.turns.latest = max(self.turns.latest, timestamp)

    def begin_turn(self, route: Route) -> ClientTurn:
        self.newest = turn = self.turns.add(route)
        return turn

    # Room -----------------------------------------------------------------------------------------------------------

    def has_room(self, route: Route) -> bool:
        if route.bytes < ROUTE_BYTES_MAX and (self._bytes < BYTES_MAX or route.bytes < SHARE_BYTES):
            return True
        self._stalled[route] = None
        return False

    def hold(self, route: Route, size: int) -> None:
        route.bytes += size
        self._bytes += size

    def release(self, route: Route, size: int) -> None:
        route.bytes -= size
        self._bytes -= size
        if self._stalled:
            stalled, self._stalled = self._stalled, {}
            for each in stalled:
                each.flush()

    # Time -----------------------------------------------------------------------------------------------------------

    def sweep_by(self, deadline: float) -> None:
        """Look at all deadlines no later than this."""
        if self._sweep_handle is not None:
            self._sweep_handle.cancel()
        self.next_sweep = deadline
        self._sweep_handle = self.loop.call_at(deadline, self._sweep)

    def _sweep(self) -> None:
        now = self.loop.time()
        self.next_sweep, self._sweep_handle = NO_DEADLINE, None
        earliest = min((route.expire(now) for route in self._routes.values()), default=NO_DEADLINE)
        if earliest < NO_DEADLINE:
            self.sweep_by(max(earliest, now + SWEEP_SECONDS_MIN))

    async def _watch(self) -> None:
        """Give up members that owe an answer and do not give it."""
        while True:
            await asyncio.sleep(MEMBER_SILENCE_SECONDS / 5)
            now = self.loop.time()
            for route in self._routes.values():
                lane = route.lane
                if lane is None:
                    continue
                if lane.awaits_answer and lane.is_stuck(now):
                    self.members.drop(lane.connection)
                elif self.assures and route.ledger.unanswered and now - lane.assured_at > BUSY_SECONDS:
                    route.leave(lane, f"{lane.connection.member} has taken it and reaches no majority of each group")
