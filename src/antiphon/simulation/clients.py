"""Simulated clients that are no processes: they hand requests to members, lose answers, and try again elsewhere."""

from __future__ import annotations

import random

from antiphon.core.effects import Deliver, Reply
from antiphon.core.inputs import Submit
from antiphon.core.model import GroupId, ProcessId, user_name
from antiphon.simulation.links import sampler
from antiphon.simulation.site import Site
from antiphon.simulation.values import MILLISECOND, Plan
from antiphon.simulation.world import World

PATIENCE_NS = 20 * MILLISECOND


class MemberClient:
    """One client: numbers its requests, repeats each until a member answers, and says which are settled."""

    def __init__(self, world: World, name: str, plans: list[Plan]) -> None:
        self.world = world
        self.name = name
        self.plans = plans
        self.rng = random.Random(f"{world.scenario.seed}/client/{name}")
        self.delay = sampler(world.scenario.latency, self.rng)
        self.answered: set[int] = set()
        self.owed: dict[int, set[GroupId]] = {}  # by request: the groups not known to have delivered it
        for number, plan in enumerate(plans, start=1):
            self.owed[number] = set(world.topology.destinations(plan.destinations))
            world.at(plan.at, self._try, number)

    @classmethod
    def all_of(cls, world: World) -> None:
        names = dict.fromkeys(plan.sender for plan in world.scenario.plans)
        clients = {name: cls(world, name, [p for p in world.scenario.plans if p.sender == name]) for name in names}

        def on_reply(site: Site, reply: Reply) -> None:
            client = clients[reply.client]
            if client.rng.random() < 0.8:  # an answer can get lost with its connection
                world.at(world.now + client.delay(), client._on_answer, reply.number)

        def on_delivered(site: Site, effect: Deliver) -> None:
            name, _, number = user_name(effect.message.id).rpartition(":")
            clients[name]._on_progress(int(number), world.topology.group_of[site.id])

        world.on_reply = on_reply
        world.on_delivered = on_delivered

    @property
    def settled(self) -> int:
        """The smallest number that may still be repeated or is not known to be delivered in all its groups."""
        return next((n for n in range(1, len(self.plans) + 1) if n in self.owed), len(self.plans) + 1)

    def _try(self, number: int, *_: object) -> None:
        if number in self.answered:
            return
        plan, world = self.plans[number - 1], self.world
        destinations = world.topology.destinations(plan.destinations)
        member = world.sites[ProcessId(self.rng.choice(world.topology.addressees(destinations)))]
        due = world.now + self.delay()
        request = Submit(due, self.name, number, min(self.settled, number), destinations, bytes(plan.size))
        world.at(due, lambda *_: world.take(member, request, {}))
        world.at(world.now + PATIENCE_NS, self._try, number)

    def _on_answer(self, number: int, *_: object) -> None:
        self.answered.add(number)
        self._settle(number)

    def _on_progress(self, number: int, group: GroupId) -> None:
        if number in self.owed:
            self.owed[number].discard(group)
            self._settle(number)

    def _settle(self, number: int) -> None:
        if number in self.answered and not self.owed.get(number, True):
            del self.owed[number]
