"""From a seed to a scenario: who sends what to whom and when, and which faults strike."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from antiphon.core.channel import Transport
from antiphon.core.commands import command_names
from antiphon.core.component import OrderingProtocol
from antiphon.core.declaration import Assumptions, Detector, Failures, FaultModel, Watched
from antiphon.core.errors import UsageError
from antiphon.core.model import Topology
from antiphon.core.options import option_choices, parse_options
from antiphon.core.process import Process
from antiphon.core.promises import Promise
from antiphon.core.requests import PAYLOAD_BYTES_MAX
from antiphon.protocols import in_words, protocols_with
from antiphon.protocols.ctbroadcast import CtBroadcast
from antiphon.simulation.placing import FaultKind, place_faults
from antiphon.simulation.values import (
    MILLISECOND,
    Constant,
    Exponential,
    Instruction,
    Latency,
    Plan,
    Scenario,
    Uniform,
)


class Workload(StrEnum):
    CLOSED = "closed"  # a sender waits until its message is delivered everywhere
    PERIODIC = "periodic"
    POISSON = "poisson"
    BURST = "burst"  # many at once, then silence


def parse_faults(text: str, watched: Watched, detector: Detector) -> tuple[FaultKind, ...]:
    """``all`` that can strike, ``none``, or any kinds with commas between them."""
    if text in ("all", "none"):
        return faults_for(watched, detector) if text == "all" else ()
    try:
        return tuple(FaultKind(part.strip()) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{text!r} names no faults: use all, none, or some of {', '.join(FaultKind)}.") from None


def faults_for(watched: Watched, detector: Detector) -> tuple[FaultKind, ...]:
    """The faults that can strike: wrong suspicions only where anybody asks a failure detector that makes mistakes."""
    mistaken = watched is not Watched.NOBODY and detector is not Detector.PERFECT
    return tuple(kind for kind in FaultKind if kind is not FaultKind.SUSPICION or mistaken)


def plan(
    rng: random.Random,
    topology: Topology,
    senders: Sequence[str],
    *,
    messages: int,
    fanout: int | None,
    assumes: Assumptions,
    workload: Workload,
    interval_ns: int,
    size: int = 16,
    payloads_max: int = 1,
) -> tuple[Plan, ...]:
    """The multicasts of a run, spread over the senders. ``interval_ns`` is the mean time between two of one sender."""
    groups = list(topology.groups)
    if fanout is not None and not 1 <= fanout <= len(groups):
        raise UsageError(f"A message can address 1 to {len(groups)} of these groups, not {fanout}.")
    if fanout is None and (assumes.one_group or assumes.all_groups):
        fanout = 1 if assumes.one_group else len(groups)
    clock = dict.fromkeys(senders, 0)
    plans = []
    for index in range(messages):
        sender = senders[index % len(senders)]
        count = fanout or rng.randint(1, len(groups))
        chosen = set(rng.sample(groups, count))
        destinations = tuple(str(group) for group in groups if group in chosen)
        payloads = rng.randint(1, payloads_max) if payloads_max > 1 else 1
        plans.append(Plan(sender, clock[sender], destinations, size, payloads))
        clock[sender] += _gap(rng, workload, interval_ns, index // len(senders))
    return tuple(sorted(plans, key=lambda p: p.at))


def _gap(rng: random.Random, workload: Workload, interval_ns: int, index: int) -> int:
    if workload is Workload.PERIODIC:
        return interval_ns
    if workload is Workload.POISSON:
        return int(rng.expovariate(1 / interval_ns))
    if workload is Workload.BURST:
        return 0 if (index + 1) % 10 else 10 * interval_ns
    return 0


CLOSED_LOOP_NS = 4 * MILLISECOND  # about how long a multicast takes that the next one waits for
OPTION_DRAWS_MAX = 1_000
DRAWS_APART = 10  # of the newer options, before the older ones are drawn again
EVENTS_MAX = 200_000  # of a random run; the longest of thousands has a sixth of that
SIZES, HARSH_SIZES = (1, 2, 3, 3), (1, 2, 3, 3, 3, 5)
LATENCIES: tuple[Latency, ...] = (
    Constant(MILLISECOND),
    Uniform(MILLISECOND // 10, 3 * MILLISECOND),
    Exponential(MILLISECOND // 5, 2 * MILLISECOND),
)
HARSH_LATENCIES: tuple[Latency, ...] = (
    *LATENCIES,
    Uniform(MILLISECOND // 100, 8 * MILLISECOND),
    Exponential(MILLISECOND // 100, 8 * MILLISECOND),
)


def random_scenario(protocol: type[OrderingProtocol], seed: int, options: Mapping[str, str] | None = None) -> Scenario:
    """A small, nasty run: everything that the protocol's assumptions allow, from the seed. ``options`` fixes some.

    Every second seed is harsh, and takes longer: also groups of five, latencies with long tails, and crashes late in a
    long row of effects.
    """
    harsh = seed % 2 == 1
    rng = random.Random(f"{seed}/scenario/{protocol.declaration.name}")
    sizes = {f"g{i}": rng.choice(HARSH_SIZES if harsh else SIZES) for i in range(1, rng.choice((2, 2, 3)) + 1)}
    topology = Topology.sized(sizes)
    load = _random_load(rng, topology, protocol.declaration.assumes)
    chosen = _random_options(rng, protocol, topology, options or {}, seed)
    parsed = parse_options(protocol, chosen)
    assumes, watched = protocol.assumes(parsed), protocol.watched(parsed)
    model = fault_model(rng, protocol, parsed)
    returning = not model.permanent or rng.random() < 0.5
    timeout = assumes.detector is Detector.TIMEOUT
    assures = load.through_members and Promise.DURABLE_RECEIPTS in protocol.promises(parsed)
    lonely = assumes.failures is Failures.MINORITY and model.permanent and not model.sent_survives
    # Where anything leaves before it is durable, some disks are so slow that much can happen meanwhile.
    slow = random.Random(f"{seed}/slow/{protocol.declaration.name}") if protocol.foretells(parsed) else None
    faults = place_faults(
        rng,
        [*topology.processes, *(() if load.through_members else load.clients)],
        faults_for(watched, assumes.detector),
        rng.randint(5, 9),
        load.span_ns + 5 * MILLISECOND,
        topology,
        returning=returning,
        permanent=model.permanent,
        effects_max=8 if harsh else 3,
        plans=load.plans,
        watched=watched,
        all_but_one=assumes.failures is Failures.ALL_BUT_ONE,
        sends_max=max(1, max(sizes.values()) - 1) if assumes.one_group else None,
        timeout=timeout,
        last_words=random.Random(f"{seed}/last words") if lonely else None,
        broadcast=issubclass(protocol, CtBroadcast),
        leaders=random.Random(f"{seed}/leaders/{protocol.declaration.name}") if protocol.led else None,
        receipts=random.Random(f"{seed}/receipts/{protocol.declaration.name}") if assures else None,
        replaced=random.Random(f"{seed}/replaced/{protocol.declaration.name}") if protocol.replaces else None,
        forgetting=slow if returning else None,
    )
    fifo = protocol.transport is Transport.FIFO or rng.random() < 0.5
    latencies = HARSH_LATENCIES if harsh else LATENCIES
    return Scenario(
        protocol=protocol.declaration.name,
        options=chosen,
        groups=sizes,
        plans=_with_services(load.plans, protocol, seed),
        faults=faults,
        commands=(
            *_random_commands(protocol, parsed, topology, load.span_ns, seed),
            *_random_advances(protocol, parsed, topology, load.span_ns, seed),
        ),
        # A latency that is always the same reorders nothing.
        latency=rng.choice([latency for latency in latencies if fifo or not isinstance(latency, Constant)]),
        fifo=fifo or _transport(protocol, topology, chosen) is Transport.FIFO,
        loss=random.Random(f"{seed}/loss").choice((0.0, 0.1, 0.3)) if timeout else 0.1,
        duplication=0.1,
        sent_survives=model.sent_survives,
        journal=returning,
        sync_ns=_sync_ns(rng, slow),
        snapshot_every=rng.choice((0, 5, 20)) if returning else 0,
        turn_ns=rng.choice((0, 0, MILLISECOND // 5, 2 * MILLISECOND)),
        gather=rng.choice((1, 3, 4096)),
        closed_loop=load.closed_loop,
        through_members=load.through_members,
        seed=seed,
        limit_ns=load.span_ns * 2 + 30_000 * MILLISECOND,
        events_max=EVENTS_MAX,
    )


def _sync_ns(rng: random.Random, slow: random.Random | None) -> int:
    quick = rng.choice((50_000, 500_000))
    return quick if slow is None else slow.choice((quick, 2 * MILLISECOND, 10 * MILLISECOND))


def _random_options(
    rng: random.Random,
    protocol: type[OrderingProtocol],
    topology: Topology,
    given: Mapping[str, str],
    seed: int,
) -> dict[str, str]:
    """All options but those given are drawn, until the protocol does not refuse them together.

    One that a protocol got later is drawn apart: whatever else comes of a seed is what it was before.
    """
    last = protocol.drawn_last(topology)
    choices = {option: values for option, values in option_choices(protocol).items() if option not in last}
    later = protocol.added_options
    apart = {option: random.Random(f"{seed}/{option}/{protocol.declaration.name}") for option in (*later, *last)}
    for attempt in range(OPTION_DRAWS_MAX):
        if attempt % DRAWS_APART == 0:
            first = {option: rng.choice(values) for option, values in choices.items() if option not in later}
        drawn = {**first, **{option: apart[option].choice(choices[option]) for option in later}, **given}
        refused = _refused(protocol, drawn)
        if refused is None:
            break
    else:
        assert refused is not None
        raise refused
    for option, values in last.items():
        more = {**drawn, option: apart[option].choice(values), **given}
        if _refused(protocol, more) is None:  # else it stays as it is when nobody chooses
            drawn = more
    return drawn


def _refused(protocol: type[OrderingProtocol], options: Mapping[str, str]) -> UsageError | None:
    try:
        protocol.check(parse_options(protocol, options), FaultModel(False, True))
    except UsageError as error:
        return error
    return None


def _with_services(
    plans: tuple[Plan, ...], protocol: type[OrderingProtocol], seed: int, share: float | None = None
) -> tuple[Plan, ...]:
    """Where senders can choose: the same multicasts, of which a share asks for each of the services but the first.

    Drawn apart, as options are that a protocol got later. ``share``: None, where it is drawn too.
    """
    rng = random.Random(f"{seed}/service/{protocol.declaration.name}")
    others = protocol.services[1:]
    of_run = rng.choice((0.0, 0.2, 0.5, 0.8)) if share is None else share
    return tuple(
        msgspec.structs.replace(plan, service=rng.choice(others)) if others and rng.random() < of_run else plan
        for plan in plans
    )


def _random_commands(
    protocol: type[OrderingProtocol], options: msgspec.Struct, topology: Topology, span_ns: int, seed: int
) -> tuple[Instruction, ...]:
    """Where members can be told to do something: some of them, often several at the same instant."""
    names = command_names(protocol, options)
    if not names:
        return ()
    rng = random.Random(f"{seed}/commands/{protocol.declaration.name}")
    found = []
    for _ in range(rng.randint(2, 10)):
        at = rng.randrange(max(span_ns, 1))
        members = rng.choice(list(topology.groups.values()))
        told = rng.sample(members, rng.randint(1, min(3, len(members))))
        found += [Instruction(str(process), at, rng.choice(names)) for process in told]
    return tuple(sorted(found, key=lambda each: each.at))


def _random_advances(
    protocol: type[OrderingProtocol], options: msgspec.Struct, topology: Topology, span_ns: int, seed: int
) -> tuple[Instruction, ...]:
    """Where groups can be asked to raise their floors: in one of four runs some are, to numbers that they may have
    passed or not."""
    rng = random.Random(f"{seed}/advances/{protocol.declaration.name}")
    if not protocol.can_advance(options) or rng.random() >= 0.25:
        return ()
    members = list(topology.processes)
    times = sorted(rng.randrange(max(span_ns, 1)) for _ in range(rng.randint(1, 4)))
    return tuple(Instruction(str(rng.choice(members)), at, f"advance floor={rng.randint(1, 200)}") for at in times)


def _transport(protocol: type[OrderingProtocol], topology: Topology, options: Mapping[str, str]) -> Transport:
    """How the protocol's messages travel with these options: it may choose when it is made."""
    return Process(topology.processes[0], topology, protocol, options).protocol.transport


def _on_datagrams(protocol: type[OrderingProtocol], topology: Topology, options: Mapping[str, str]) -> bool:
    """Whether any part of it sends what may get lost, and mends that."""
    parts = Process(topology.processes[0], topology, protocol, options).parts
    return any(part.transport is Transport.DATAGRAM for part in parts)


class Load(NamedTuple):
    """Who sends what in a random run."""

    clients: list[str]
    through_members: bool  # the clients are no processes, and hand their messages to members
    closed_loop: bool
    plans: tuple[Plan, ...]
    span_ns: int  # about how long it takes


def _random_load(rng: random.Random, topology: Topology, assumes: Assumptions) -> Load:
    clients = [f"c{i}" for i in range(1, rng.randint(0, 3) + 1)]
    through_members = bool(clients) and rng.random() < 0.3
    senders = clients or rng.sample(list(topology.processes), rng.randint(1, len(topology.processes)))
    workload = Workload.POISSON if through_members else rng.choice(tuple(Workload))
    interval_ns = rng.choice((MILLISECOND // 4, MILLISECOND, 4 * MILLISECOND))
    messages = rng.randint(24, 40)
    plans = plan(
        rng,
        topology,
        senders,
        messages=messages,
        fanout=None,
        assumes=assumes,
        workload=workload,
        interval_ns=interval_ns,
        payloads_max=4 if through_members else 2,
    )
    span_ns = max(plans[-1].at, messages // len(senders) * 5 * MILLISECOND if workload is Workload.CLOSED else 0)
    return Load(clients, through_members, workload is Workload.CLOSED, plans, span_ns)


def fault_model(rng: random.Random, protocol: type[OrderingProtocol], options: msgspec.Struct) -> FaultModel:
    """What crashes may do: the worst that the protocol bears with these options."""
    assumes = protocol.assumes(options)
    survives = assumes.sent_survives or rng.random() < 0.3
    permanent = assumes.failures is not Failures.CRASH_RECOVERY and rng.random() < 0.8
    models = (FaultModel(permanent, survives), FaultModel(permanent, True), FaultModel(False, survives))
    for model in models:
        try:
            protocol.check(options, model)
        except UsageError:
            continue
        return model
    raise AssertionError("every option works when all processes return")


def workload_scenario(
    protocol: type[OrderingProtocol],
    options: Mapping[str, str],
    groups: Mapping[str, int],
    *,
    clients: int,
    messages: int,
    seed: int,
    fanout: int | None,
    faults: Sequence[FaultKind],
    sent_survives: bool,
    workload: Workload,
    interval_ns: int,
    latency: Latency,
    size: int,
    loss: float = 0.0,
    causal: float = 0.0,
) -> Scenario:
    """One run as described: a workload from clients (none: from the members), with faults spread over it."""
    if size > PAYLOAD_BYTES_MAX:
        raise UsageError(f"A payload has at most {PAYLOAD_BYTES_MAX} bytes, not {size}.")
    topology, parsed = Topology.sized(groups), parse_options(protocol, options)
    assumes = protocol.assumes(parsed)
    if loss and not _on_datagrams(protocol, topology, options):
        name, able = protocol.declaration.name, protocols_with("transport", "datagram")
        can = "it can" if name in able else f"{in_words(able)} can"
        raise UsageError(f"The {name} protocol cannot mend losses as it is; {can}, with -o transport=datagram.")
    protocol.admit_service("causal" if causal else None)
    outside = [f"c{i}" for i in range(1, clients + 1)]
    members = [str(p) for p in topology.processes]
    senders = outside or members
    rng = random.Random(f"{seed}/command")
    plans = plan(
        rng,
        topology,
        senders,
        messages=messages,
        fanout=fanout,
        assumes=assumes,
        workload=workload,
        interval_ns=interval_ns,
        size=size,
    )
    expected = _expected(plans)
    span_ns = max((p.at for p in plans), default=0) or messages // len(senders) * CLOSED_LOOP_NS
    count = max(4, messages // 50) if faults else 0
    permanent = assumes.failures is not Failures.CRASH_RECOVERY
    return Scenario(
        protocol=protocol.declaration.name,
        options=dict(options),
        groups=dict(groups),
        plans=_with_services(plans, protocol, seed, causal),
        faults=place_faults(
            rng,
            members + outside,
            faults,
            count,
            span_ns,
            topology,
            returning=bool(faults),
            permanent=permanent,
            plans=expected,
            watched=protocol.watched(parsed),
            all_but_one=assumes.failures is Failures.ALL_BUT_ONE,
            sends_max=max(1, max(groups.values()) - 1) if assumes.one_group else None,
            timeout=assumes.detector is Detector.TIMEOUT,
            broadcast=issubclass(protocol, CtBroadcast),
        ),
        latency=latency,
        loss=loss,
        sent_survives=sent_survives or assumes.sent_survives,
        journal=bool(faults),
        steps=True,
        closed_loop=workload is Workload.CLOSED,
        seed=seed,
    )


def _expected(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """When the multicasts will about be made, also in a closed loop."""
    if any(plan.at for plan in plans):
        return tuple(plans)
    made: dict[str, int] = {}
    found = []
    for plan in plans:
        made[plan.sender] = made.get(plan.sender, -1) + 1
        found.append(msgspec.structs.replace(plan, at=made[plan.sender] * CLOSED_LOOP_NS))
    return tuple(sorted(found, key=lambda plan: plan.at))
