"""Reliable multicast alone: eager, lazy and uniform. What each costs, what it keeps, and whose agreement is uniform."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.checks import check_run
from antiphon.core import Process, ProcessId, Topology
from antiphon.core.effects import Deliver, Monitor, Send
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Fire, Multicast, Receive, Suspect
from antiphon.protocols import protocols
from antiphon.protocols.reliable import Reliable
from antiphon.services.reliable import LazyReliableMulticast
from antiphon.services.stack import StackedProtocol
from antiphon.simulation import (
    MILLISECOND,
    Crash,
    Exponential,
    Outcome,
    Partition,
    Plan,
    Scenario,
    Uniform,
    WrongSuspicion,
    simulate,
)
from mutants.parts import LazyForgetsWhatOneOtherHas, LazyIgnoresAnEarlierSuspicion

KINDS = ("eager", "lazy", "uniform")
SEED_OF_THE_LOST_COPIES = 6
STACKED = sorted(name for name, protocol in protocols().items() if issubclass(protocol, StackedProtocol))


def run(kind: str, groups: dict[str, int], *plans: Plan, **rest: object) -> Outcome:
    return simulate(Scenario(protocol="reliable", options={"reliable": kind}, groups=groups, plans=plans, **rest))


def uniform_agreement(outcome: Outcome) -> list[str]:
    facts = msgspec.structs.replace(outcome.facts, promises=["uniform_agreement"])
    return [violation.detail for violation in check_run(facts, outcome.rows)]


# Counts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_each_kind_costs_what_its_page_says(d: int, n: int) -> None:
    groups = {f"g{i}": n for i in range(1, 5)}
    to = tuple(groups)[:d]
    k = d * n
    copies = {"eager": k * k, "lazy": k, "uniform": k * k}
    for kind in KINDS:
        outcome = run(kind, groups, Plan("c1", 0, to))
        sent = [row for row in outcome.rows if row.kind == "send" and row.message is not None]
        assert len(sent) == copies[kind]
        assert outcome.deliveries == k
        assert outcome.steps_max == (2 if kind == "uniform" and k > 1 else 1)  # the second step brings the echoes
    lazy = run("lazy", groups, Plan("c1", 0, to))
    assert lazy.messages_sent == k + k * (k - 1)  # every addressee tells every other once, some time later


def test_a_member_that_sends_is_not_sent_its_own_message_unless_it_needs_the_echoes() -> None:
    sent = {kind: run(kind, {"g": 5}, Plan("g.2", 0, ("g",))) for kind in KINDS}
    copies = {kind: sum(r.kind == "send" and r.message is not None for r in o.rows) for kind, o in sent.items()}
    assert copies == {"eager": 4 * 4, "lazy": 4, "uniform": 4 + 4 * 4}


# Uniformity ------------------------------------------------------------------------------------------------------


def dying_member(kind: str, *, survives: bool, seed: int) -> Outcome:
    """Member g.1 multicasts, delivers its own message, and dies; so may all that it sent."""
    crash = Crash("g.1", at=MILLISECOND // 10)
    plan = Plan("g.1", 0, ("g",))
    return run(kind, {"g": 3}, plan, faults=(crash,), sent_survives=survives, seed=seed)


def test_eager_is_not_uniform_when_what_was_sent_dies_with_its_sender() -> None:
    """g.1 sends, delivers and dies, and both copies die with it. Nobody else will ever deliver the message."""
    outcome = dying_member("eager", survives=False, seed=SEED_OF_THE_LOST_COPIES)
    assert [row.process for row in outcome.rows if row.kind == "deliver"] == ["g.1"]
    assert outcome.violations == []  # agreement binds correct processes only, and it is all that this kind promises
    assert uniform_agreement(outcome) == ["g.1 delivers g.1:1, but g.2 is correct, addressed and never delivers it."]


@pytest.mark.parametrize("seed", range(40))
def test_uniform_is_uniform_though_what_was_sent_dies_with_its_sender(seed: int) -> None:
    assert uniform_agreement(dying_member("uniform", survives=False, seed=seed)) == []


@pytest.mark.parametrize("seed", range(40))
def test_eager_is_uniform_where_what_was_sent_survives(seed: int) -> None:
    outcome = dying_member("eager", survives=True, seed=seed)
    assert uniform_agreement(outcome) == []
    assert outcome.deliveries == 3


def test_lazy_is_not_uniform_even_where_what_was_sent_survives() -> None:
    """The only addressee that the dying client reaches delivers, and dies before anybody suspects the client."""
    faults = (Crash("c1", at=0, effects=2), Crash("g.1", at=2 * MILLISECOND))
    outcome = run("lazy", {"g": 3}, Plan("c1", 1, ("g",)), faults=faults, sent_survives=True)
    assert [row.process for row in outcome.rows if row.kind == "deliver"] == ["g.1"]
    assert uniform_agreement(outcome) == ["g.1 delivers c1:1, but g.2 is correct, addressed and never delivers it."]
    assert outcome.violations == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("effects", range(1, 6))
def test_a_sender_that_dies_in_mid_multicast_reaches_all_or_none(kind: str, effects: int) -> None:
    """One effect is its own record of the multicast, the others are copies."""
    crash = Crash("c1", at=0, effects=effects)
    outcome = run(kind, {"g": 5}, Plan("c1", 1, ("g",)), faults=(crash,), sent_survives=True)
    assert outcome.violations == []
    assert outcome.deliveries == (0 if effects == 1 else 5)


@pytest.mark.parametrize("n", [3, 5])
def test_uniform_waits_for_a_majority_of_every_destination_group(n: int) -> None:
    """A whole group out of reach: not even the group that has the message delivers it, until the link heals."""
    heals = 500 * MILLISECOND
    apart = Partition(tuple(f"b.{i}" for i in range(1, n + 1)), 0, heals)
    outcome = run("uniform", {"a": n, "b": n}, Plan("a.1", MILLISECOND, ("a", "b")), faults=(apart,))
    assert outcome.violations == []
    assert min(row.time_ns for row in outcome.rows if row.kind == "deliver") > heals
    eager = run("eager", {"a": n, "b": n}, Plan("a.1", MILLISECOND, ("a", "b")), faults=(apart,))
    assert min(row.time_ns for row in eager.rows if row.kind == "deliver") < heals


# Lazy ------------------------------------------------------------------------------------------------------------


def forwarded(outcome: Outcome) -> int:
    return sum(r.kind == "send" and r.message is not None and r.process not in ("c1", "c2") for r in outcome.rows)


def test_lazy_forwards_only_on_suspicion() -> None:
    plan = Plan("c1", 0, ("g",))
    assert forwarded(run("lazy", {"g": 4}, plan)) == 0
    innocent = WrongSuspicion("g.2", "g.3", 0, 100 * MILLISECOND)
    assert forwarded(run("lazy", {"g": 4}, plan, faults=(innocent,))) == 0  # of somebody else
    wrong = WrongSuspicion("g.2", "c1", 0, 100 * MILLISECOND)
    assert forwarded(run("lazy", {"g": 4}, plan, faults=(wrong,))) == 3
    late = WrongSuspicion("g.2", "c1", 200 * MILLISECOND, 100 * MILLISECOND)
    assert forwarded(run("lazy", {"g": 4}, plan, Plan("c2", 300 * MILLISECOND, ("g",)), faults=(late,))) == 0


def test_lazy_monitors_only_the_origins_of_what_it_keeps() -> None:
    topology = Topology.sized({"g": 2})
    sender, member = (Process(ProcessId(p), topology, Reliable, {"reliable": "lazy"}) for p in ("c1", "g.1"))
    copy, _ = (e for e in sender.step(Multicast(0, topology.destinations({"g"}), b"")) if isinstance(e, Send))
    effects = member.step(Receive(0, ProcessId("c1"), 1, copy.frame))
    assert [e.processes for e in effects if isinstance(e, Monitor)] == [("c1",)]
    assert any(isinstance(e, Deliver) for e in effects)
    suspected = member.step(Suspect(1, ProcessId("c1")))
    assert [e.to for e in suspected if isinstance(e, Send)] == ["g.2"]


def test_lazy_tells_the_others_what_it_has_though_they_told_it_first() -> None:
    """Else they would keep the message, and watch its sender, for ever."""
    topology = Topology.sized({"g": 2})
    sender = Process(ProcessId("c1"), topology, Reliable, {"reliable": "lazy"})
    early, late = (Process(ProcessId(p), topology, Reliable, {"reliable": "lazy"}) for p in ("g.1", "g.2"))
    copies = [e for e in sender.step(Multicast(0, topology.destinations({"g"}), b"")) if isinstance(e, Send)]
    early.step(Receive(0, sender.me, 1, copies[0].frame))
    late.step(Receive(MILLISECOND, sender.me, 1, copies[1].frame))
    ((timer, due),) = early.state.timers.items()
    (told,) = (e for e in early.step(Fire(due, timer, due)) if isinstance(e, Send))
    late.step(Receive(due, early.me, 1, told.frame))
    ((timer, due),) = late.state.timers.items()
    (answer,) = (e for e in late.step(Fire(due, timer, due)) if isinstance(e, Send))
    early.step(Receive(due, late.me, 1, answer.frame))
    for process in (early, late):
        assert process.protocol.multicasting.kept == {}
        assert process.monitored() == ()


# Memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_bounded_over_thousands_of_messages(kind: str) -> None:
    sizes: dict[int, int] = {}
    processes: list[Process] = []

    class Measured(Reliable):
        def initialise(self) -> None:
            super().initialise()
            processes.append(self.process)

        def on_delivered(self, m, label) -> None:  # type: ignore[no-untyped-def]
            super().on_delivered(m, label)
            number = max(label.numbers)
            if number % 1000 == 0:
                sizes[number] = max(sizes.get(number, 0), len(self.multicasting.snapshot()))

    plans = tuple(Plan("c1", i * 10 * MILLISECOND, ("a", "b") if i % 3 else ("a",)) for i in range(3000))
    latency = Exponential(100_000, 2 * MILLISECOND)
    scenario = Scenario(
        protocol="reliable",
        options={"reliable": kind},
        groups={"a": 3, "b": 2},
        plans=plans,
        latency=latency,
        fifo=False,
    )
    outcome = simulate(scenario, Measured)
    assert outcome.violations == []
    assert len(sizes) == 3
    assert max(sizes.values()) < 4000  # what is under way at the time: a few messages
    for process in processes:
        part = process.protocol.multicasting
        assert not any(stream.early for stream in part.seen.streams.values())
        assert not getattr(part, "kept", {})
        assert not getattr(part, "echoes", {})


@pytest.mark.parametrize("seed", range(30))
def test_lazy_keeps_nothing_that_everybody_has(seed: int) -> None:
    processes: list[Process] = []

    class Watched(Reliable):
        def initialise(self) -> None:
            super().initialise()
            processes.append(self.process)

    latency = Uniform(100_000, 5 * MILLISECOND)
    plans = (Plan("c1", 0, ("g",)), Plan("c2", 0, ("g", "h")))
    scenario = Scenario(protocol="reliable", options={"reliable": "lazy"}, groups={"g": 2, "h": 1}, plans=plans)
    simulate(msgspec.structs.replace(scenario, latency=latency, seed=seed), Watched)
    assert [process.protocol.multicasting.kept for process in processes] == [{}] * len(processes)


def test_lazy_forwards_what_comes_from_somebody_who_is_suspected_already() -> None:
    """g.1 alone has the second message, and has suspected its dead sender since the first."""
    scenario = Scenario(
        protocol="reliable",
        options={"reliable": "lazy"},
        groups={"g": 3},
        plans=(Plan("c1", 0, ("g",)), Plan("c1", 2 * MILLISECOND, ("g",))),
        faults=(
            Partition(("c1",), 1_500_000, 43 * MILLISECOND, one_way=True),
            Crash("c1", at=1_600_000, effects=2),
        ),
        sent_survives=True,
    )
    assert simulate(scenario).violations == []
    assert {v.property for v in simulate(scenario, over_lazy(LazyIgnoresAnEarlierSuspicion)).violations} == {
        "agreement"
    }


def test_lazy_keeps_what_only_some_of_the_others_have() -> None:
    """g.3 is out of contact when the sender dies; g.1 and g.2 have told one another that they have the message."""
    scenario = Scenario(
        protocol="reliable",
        options={"reliable": "lazy"},
        groups={"g": 3},
        plans=(Plan("c1", 0, ("g",)),),
        faults=(Partition(("g.3",), 0, 500 * MILLISECOND), Crash("c1", at=200 * MILLISECOND)),
    )
    assert simulate(scenario).violations == []
    (violation,) = simulate(scenario, over_lazy(LazyForgetsWhatOneOtherHas)).violations
    assert violation.property == "agreement"


def over_lazy(kind: type[LazyReliableMulticast]) -> type[Reliable]:
    class Mutant(Reliable):
        def part(self, part, name, options=None, /, **upcalls):  # type: ignore[no-untyped-def]
            return super().part(kind if part is LazyReliableMulticast else part, name, options, **upcalls)

    return Mutant


# What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STACKED)
def test_eager_is_refused_where_crashes_are_final_and_take_along_what_was_sent(name: str) -> None:
    groups = {"a": 3}
    crashed = Scenario(
        protocol=name,
        options={"reliable": "eager"},
        groups=groups,
        plans=(Plan("c1", 0, ("a",)),),
        faults=(Crash("a.1", at=0),),
    )
    with pytest.raises(UsageError) as refused:
        simulate(crashed)
    causal = "causal order, which waits for ever for a message that died with its sender: it must survive."
    uniform = "uniform agreement, which reliable=eager gives only where what was sent survives its sender: "
    assert str(refused.value) == f"{name} needs {causal if name == 'mto' else uniform + 'use reliable=uniform.'}"
    assert simulate(msgspec.structs.replace(crashed, sent_survives=True)).violations == []
    returning = (Crash("a.1", at=0, down_ns=MILLISECOND),)
    assert simulate(msgspec.structs.replace(crashed, faults=returning, journal=True)).violations == []


@pytest.mark.parametrize("name", STACKED)
def test_lazy_is_refused_where_crashes_are_final(name: str) -> None:
    crashed = Scenario(
        protocol=name,
        options={"reliable": "lazy"},
        groups={"a": 3},
        plans=(Plan("c1", 0, ("a",)),),
        faults=(Crash("a.1", at=0),),
        sent_survives=True,
    )
    with pytest.raises(UsageError) as refused:
        simulate(crashed)
    assert str(refused.value) == (
        f"{name} needs uniform agreement, which reliable=lazy loses when a process never returns."
    )
    returning = (Crash("a.1", at=0, down_ns=MILLISECOND),)
    assert simulate(msgspec.structs.replace(crashed, faults=returning, journal=True)).violations == []
