"""Run one scenario to its end and judge it."""

from __future__ import annotations

import gc
import hashlib
import traceback
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import chain
from operator import itemgetter, mul

import msgspec

from antiphon.checks import RunHistory, Violation, check_history
from antiphon.core.component import OrderingProtocol
from antiphon.core.options import parse_options
from antiphon.protocols import protocol_named
from antiphon.services.label import Label
from antiphon.simulation.clients import MemberClient
from antiphon.simulation.floors import below_floors
from antiphon.simulation.injection import schedule, schedule_command
from antiphon.simulation.liveness import late_deliveries
from antiphon.simulation.observation import Observations
from antiphon.simulation.values import LIVELOCK, Crash, Fault, Scenario, name_of
from antiphon.simulation.workload import SETTLE_NS, Application
from antiphon.simulation.world import Livelock, World
from antiphon.trace import EventKind, RequestCell, Row, RunFacts

_PEERS, _BYTES = itemgetter(2), itemgetter(5)  # of a frame
_REQUESTS: Callable[[Row], tuple[RequestCell, ...]] = itemgetter(6)  # of a delivery
_PAYLOADS: Callable[[RequestCell], int] = itemgetter(2)


class Outcome(msgspec.Struct, kw_only=True, dict=True):
    """What came of a run. The trace is made when somebody reads it."""

    scenario: Scenario
    facts: RunFacts
    observations: Observations
    outside: list[Row]  # what no process tells: crashes without a return, and what their process forgot
    events: int
    multicasts: int
    deliveries: int
    payloads: int  # delivered
    messages_sent: int
    bytes_sent: int
    steps_max: int | None
    virtual_ns: int
    overtakings: int
    faults_effective: list[Fault]
    violations: list[Violation]

    @cached_property
    def rows(self) -> list[Row]:
        return self.observations.rows() + self.outside

    @cached_property
    def digest(self) -> str:
        """Equal where all that happened is equal."""
        return hashlib.blake2b(msgspec.msgpack.encode(self.rows), digest_size=16).hexdigest()

    @cached_property
    def rounds(self) -> dict[Label, int]:
        """The highest round of each instance of consensus."""
        return self.observations.rounds()

    def summary(self) -> dict[str, object]:
        """The outcome for machines, without the trace."""
        left_out = ("scenario", "facts", "observations", "outside")
        result: dict[str, object] = {
            name: msgspec.to_builtins(getattr(self, name)) for name in self.__struct_fields__ if name not in left_out
        }
        return {"protocol": self.scenario.protocol, "seed": self.scenario.seed, "digest": self.digest, **result}


def simulate(scenario: Scenario, protocol: type[OrderingProtocol] | None = None) -> Outcome:
    """Run a scenario. The same scenario gives the same outcome, on every machine."""
    protocol = protocol or protocol_named(scenario.protocol)
    protocol.check(parse_options(protocol, scenario.options), scenario.model)
    broken: list[Violation] = []
    collecting = gc.isenabled()
    gc.disable()  # a run allocates much and frees nothing: the collector would only walk it again and again
    try:
        world = World(scenario, protocol)
        for plan in scenario.plans:
            protocol.admit(world.topology, world.topology.destinations(plan.destinations))
            protocol.admit_service(plan.service)
        if scenario.through_members:
            MemberClient.all_of(world)
        else:
            Application(world)
        for fault in scenario.faults:
            schedule(world, fault)
        for instruction in scenario.commands:
            schedule_command(world, instruction)
        broken = _run(world)
        return _judge(world, broken)
    finally:
        if collecting:
            gc.enable()


def _run(world: World) -> list[Violation]:
    try:
        world.run()
    except Livelock as endless:
        return [Violation(LIVELOCK, (), (), str(endless))]
    except Exception as error:  # a protocol's own assertion, or any other way in which it breaks
        where = traceback.extract_tb(error.__traceback__)[-1]
        detail = f"{type(error).__name__} in {where.name}: {error} ({where.line})"
        return [Violation(name_of(error), (), (), detail)]
    return []


def _judge(world: World, broken: list[Violation]) -> Outcome:
    scenario = world.scenario
    gone = [site for site in world.sites.values() if not site.up]
    outside = world.observations.unrecorded()
    outside += [Row(site.id, site.released_seq + 1, site.crashed_at, EventKind.CRASH.value) for site in gone]
    resaid, incomplete, wrong = world.observations.resaid()
    outside += resaid
    evidence = world.observations.evidence()
    evidence.rows += outside
    traffic = evidence.frames
    observations = world.observations.hand_over()
    world.close()
    options = parse_options(world.protocol, scenario.options)
    promises = world.protocol.promises(options)
    facts = RunFacts(
        run=f"{scenario.protocol}-{scenario.seed}",
        driver="simulation",
        protocol=scenario.protocol,
        options=scenario.options,
        groups={group: list(members) for group, members in world.members.items()},
        promises=[promise.value for promise in promises],
        drained=not broken and scenario.limit_ns > _calm_at(scenario) + SETTLE_NS,
        faulty=[str(site.id) for site in gone],
        incomplete=incomplete,
        clock_error_ns=0,
        seed=scenario.seed,
    )
    history = RunHistory(facts, evidence.rows, traffic)
    deliveries = history.deliveries.values()
    delivered = sum(map(len, deliveries))
    below = below_floors(history) if world.protocol.can_advance(options) else []
    receivers = list(map(len, map(_PEERS, traffic)))  # of each frame
    return Outcome(
        scenario=scenario,
        facts=facts,
        observations=observations,
        outside=outside,
        events=world.events,
        multicasts=sum(map(len, history.acts.values())) - delivered,
        deliveries=delivered,
        payloads=_payloads(history),
        messages_sent=sum(receivers),
        bytes_sent=sum(map(mul, receivers, map(_BYTES, traffic))),
        steps_max=_most_steps(deliveries) if scenario.steps else None,
        virtual_ns=world.now,
        overtakings=world.overtakings,
        faults_effective=[fault for fault in scenario.faults if fault in world.took_effect],
        violations=broken + wrong + check_history(history) + below + late_deliveries(history, scenario, world.now),
    )


def _payloads(history: RunHistory) -> int:
    """How many were delivered in all: each process as many as the one that speaks for it."""
    of_voices = {
        process: sum(map(_PAYLOADS, chain.from_iterable(map(_REQUESTS, rows))))
        for process, rows in history.voices.items()
    }
    return sum(map(of_voices.__getitem__, history.speakers.values()))


def _most_steps(deliveries: Iterable[list[Row]]) -> int | None:
    return max([row[11] for rows in deliveries for row in rows if row[11] is not None], default=None)


def _calm_at(scenario: Scenario) -> int:
    """When the last fault is over, and the last command given."""
    lasting = [(f.at, f.down_ns if isinstance(f, Crash) else f.for_ns) for f in scenario.faults]
    lasting += [(each.at, 0) for each in scenario.commands]
    return max((at + (lasts or 0) for at, lasts in lasting), default=0)
