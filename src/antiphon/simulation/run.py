"""Run one scenario to its end and judge it."""

from __future__ import annotations

import gc
import hashlib
import traceback
from collections import deque

import msgspec

from antiphon.checks import Violation, check_run
from antiphon.core.component import OrderingProtocol
from antiphon.core.effects import Deliver
from antiphon.core.model import ProcessId
from antiphon.core.options import parse_options
from antiphon.protocols import protocol_named
from antiphon.simulation.clients import MemberClient
from antiphon.simulation.injection import schedule
from antiphon.simulation.site import Site
from antiphon.simulation.values import MILLISECOND, Crash, Fault, Plan, Scenario
from antiphon.simulation.world import World
from antiphon.trace import Kind, Row, RunFacts

SETTLE_NS = 5_000 * MILLISECOND  # how long the world goes on after the last delivery, to see what should not come
INVARIANT = "invariant"  # the name under which an exception in a protocol is reported


class Outcome(msgspec.Struct, kw_only=True):
    """What came of a run."""

    scenario: Scenario
    facts: RunFacts
    rows: list[Row]
    digest: str
    events: int
    multicasts: int
    deliveries: int
    messages_sent: int
    bytes_sent: int
    steps_max: int | None
    virtual_ns: int
    faults_effective: list[Fault]
    violations: list[Violation]

    def summary(self) -> dict[str, object]:
        """The outcome for machines, without the trace."""
        left_out = ("scenario", "facts", "rows")
        result: dict[str, object] = {
            name: msgspec.to_builtins(getattr(self, name)) for name in self.__struct_fields__ if name not in left_out
        }
        return {"protocol": self.scenario.protocol, "seed": self.scenario.seed, **result}


class Application:
    """Makes the planned multicasts and knows what is still to be delivered."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.scenario = world.scenario
        self.queues: dict[str, deque[Plan]] = {}
        for plan in world.scenario.plans:
            self.queues.setdefault(plan.sender, deque()).append(plan)
        self.asked: dict[str, int] = {}  # multicasts that a sender was told to make
        self.made: dict[str, int] = {}  # and those that left it
        self.missing: dict[str, set[ProcessId]] = {}  # who has yet to deliver a message
        self.sender_of: dict[str, str] = {}
        world.on_multicast = self.on_multicast
        world.on_delivered = self.on_delivered
        world.on_restart = self.on_restart
        world.on_gone = self.on_gone
        for sender, queue in self.queues.items():
            if self.scenario.closed_loop:
                world.at(queue[0].at, self._next, sender)
            else:
                for plan in queue:
                    world.at(plan.at, self._next, sender)

    def _next(self, sender: str, *_: object) -> None:
        """Make a sender's next multicast; if it is down, at its restart."""
        site = self.world.sites[ProcessId(sender)]
        self.asked[sender] = self.asked.get(sender, 0) + 1
        if site.up:
            self._make(site, self.queues[sender][self.asked[sender] - 1])

    def _make(self, site: Site, plan: Plan) -> None:
        self.world.multicast(site, plan.destinations, bytes(plan.size))

    def on_restart(self, site: Site) -> None:
        """What the journal did not keep was never multicast: the application asks again."""
        first, last = self.made.get(site.id, 0), self.asked.get(site.id, 0)
        for index in range(first, last):
            self._make(site, self.queues[site.id][index])

    def on_multicast(self, site: Site, name: str, destinations: tuple[str, ...]) -> None:
        self.made[site.id] = self.made.get(site.id, 0) + 1
        self.sender_of[name] = site.id
        groups = self.world.topology.destinations(destinations)
        self.missing.setdefault(name, set(self.world.topology.addressees(groups)))

    def on_delivered(self, site: Site, effect: Deliver) -> None:
        self._done(site, effect.message.id)

    def on_gone(self, site: Site) -> None:
        """A process that never returns is not waited for, and makes no more multicasts."""
        self.queues.pop(site.id, None)
        for name in list(self.missing):
            self._done(site, name)

    def _done(self, site: Site, name: str) -> None:
        missing = self.missing.get(name)
        if missing is None:
            return
        missing.discard(site.id)
        if missing:
            return
        del self.missing[name]
        self.world.forget(name)
        sender = self.sender_of.pop(name)
        queue = self.queues.get(sender, ())
        if self.scenario.closed_loop and self.asked[sender] < len(queue):
            self.world.at(queue[self.asked[sender]].at, self._next, sender)
        elif not self.missing and all(self.made.get(s, 0) == len(q) for s, q in self.queues.items()):
            self.world.end_ns = min(self.world.end_ns, self.world.now + SETTLE_NS)


def simulate(scenario: Scenario, protocol: type[OrderingProtocol] | None = None) -> Outcome:
    """Run a scenario. The same scenario gives the same outcome, on every machine."""
    protocol = protocol or protocol_named(scenario.protocol)
    protocol.check(parse_options(protocol, scenario.options), scenario.model)
    world = World(scenario, protocol)
    for plan in scenario.plans:
        protocol.admit(world.topology, world.topology.destinations(plan.destinations))
    if scenario.through_members:
        MemberClient.all_of(world)
    else:
        Application(world)
    for fault in scenario.faults:
        schedule(world, fault)
    broken: list[Violation] = []
    collecting = gc.isenabled()
    gc.disable()  # a run allocates much and frees nothing: the collector would only walk it again and again
    try:
        world.run()
    except Exception as error:  # a protocol's own assertion, or any other way in which it breaks
        where = traceback.extract_tb(error.__traceback__)[-1]
        detail = f"{type(error).__name__} in {where.name}: {error} ({where.line})"
        broken.append(Violation(INVARIANT, (), (), detail))
    finally:
        if collecting:
            gc.enable()
    return _judge(world, broken)


def _judge(world: World, broken: list[Violation]) -> Outcome:
    scenario = world.scenario
    faulty = [site.id for site in world.sites.values() if not site.up]
    for process in faulty:
        site = world.sites[process]
        world.rows.append(Row(process, site.process.state.seq + 1, site.crashed_at, Kind.CRASH))
    facts = RunFacts(
        run=f"{scenario.protocol}-{scenario.seed}",
        driver="simulation",
        protocol=scenario.protocol,
        options=scenario.options,
        groups={group: list(members) for group, members in world.topology.groups.items()},
        promises=[str(promise) for promise in world.protocol.declaration.promises],
        drained=not broken and scenario.limit_ns > _calm_at(scenario) + SETTLE_NS,
        faulty=[str(process) for process in faulty],
        seed=scenario.seed,
    )
    rows = world.rows
    delivered = [row for row in rows if row.kind == "deliver"]
    return Outcome(
        scenario=scenario,
        facts=facts,
        rows=rows,
        digest=hashlib.blake2b(_encoder.encode(rows), digest_size=16).hexdigest(),
        events=world.events,
        multicasts=sum(row.kind == "multicast" for row in rows),
        deliveries=len(delivered),
        messages_sent=world.messages_sent,
        bytes_sent=world.bytes_sent,
        steps_max=max((row.step for row in delivered if row.step is not None), default=None),
        virtual_ns=world.now,
        faults_effective=[fault for fault in scenario.faults if fault in world.took_effect],
        violations=broken + check_run(facts, rows),
    )


def _calm_at(scenario: Scenario) -> int:
    """When the last fault is over."""
    return max((f.at + (f.down_ns or 0 if isinstance(f, Crash) else f.for_ns) for f in scenario.faults), default=0)


_encoder = msgspec.msgpack.Encoder()
