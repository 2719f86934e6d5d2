"""Order with gaps in runs that go on long after the crashes, so that much is delivered in every era."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from antiphon.checks import check_run
from antiphon.core import ProcessId, Promise, Topology
from antiphon.protocols import protocols
from antiphon.protocols.arrow import ArrowMulticast
from antiphon.services.tree import Place, lightest, places, ring
from antiphon.simulation import (
    MILLISECOND,
    Crash,
    Fault,
    Outcome,
    Partition,
    Pause,
    Plan,
    Scenario,
    Slow,
    Uniform,
    as_code,
    simulate,
)
from antiphon.simulation.search import Scope, explore
from mutants.gaps import gaps_mutants, losing_mutants
from mutants.record import is_caught
from mutants.scopes import assert_replays

SWAPS = ("arrow", "combining", "hybrid")
SEEDS = 60
LOGS = {
    "a.1": ["a.1:1"],
    "a.2": ["a.1:1", "gap", "a.2:2", "a.3:2"],
    "a.3": ["a.1:1", "gap", "a.2:2", "a.3:2"],
}
WHILE_ONE_HAS_NOT_HEARD = {"CarriesNoEra", "DoesNotMoveWithAFrame"}
QUICK = {  # seeds that show some of the mistakes at once; at others they never come to rest, and take long
    "TakesFramesOfErasThatAreOver": {"arrow": 20, "combining": 20, "hybrid": 55},
    "GoesWhereverAFrameComesFrom": {"arrow": 26, "combining": 29, "hybrid": 55},
    "ForgetsItsEraOnRestart": {"arrow": 27, "combining": 27, "hybrid": 35},
    "DeliversWhatItHeldBackBehindTheGap": {"arrow": 27, "combining": 44, "hybrid": 23},
}
CALM = 2_000 * MILLISECOND  # by then everybody has heard of all crashes


def long_run(name: str, seed: int) -> Scenario:
    """One group, of which up to all but one are lost; some are slow, cut off or down for a while."""
    rng = random.Random(f"{seed}/gaps")
    members = [str(p) for p in Topology.sized({"a": rng.choice((2, 3, 4, 5, 5))}).processes]
    senders = [*members, "c1", "c2"]
    lost = rng.sample(members, rng.randint(1, len(members) - 1)) + rng.sample(["c2"], rng.randint(0, 1))
    faults: list[Fault] = [Crash(p, rng.randrange(rng.choice((5, 250)) * MILLISECOND)) for p in lost]
    times = [rng.randrange(300 * MILLISECOND) for _ in range(rng.choice((0, 20, 60)))]
    # Most around the time at which one after the other hears of a crash: that is when they are in different eras.
    times += [crash.at + rng.randrange(40 * MILLISECOND) for crash in faults for _ in range(rng.choice((3, 15)))]
    plans = [Plan(rng.choice(senders), at, ("a",)) for at in times]
    plans += [Plan(sender, CALM + rng.randrange(20 * MILLISECOND), ("a",)) for sender in senders for _ in range(2)]
    for process in members:
        at, for_ns = rng.randrange(250 * MILLISECOND), rng.randrange(60 * MILLISECOND)
        others: list[Fault] = [
            Pause(process, at, for_ns),
            Slow(process, at, for_ns, rng.randrange(30 * MILLISECOND)),
            Partition((process,), at, for_ns),
        ]
        if process not in lost:
            others.append(Crash(process, at, for_ns))
        faults += rng.sample(others, rng.randint(0, 2))
    return Scenario(
        protocol=name,
        options={
            "gaps": "true",
            "by": rng.choice(("travel", "reduction")),
            "multicast": rng.choice(("direct", "tree")),
            "tree": rng.choice(("balanced", "line", "star", "random")),
        },
        groups={"a": len(members)},
        plans=tuple(sorted(plans, key=lambda plan: plan.at)),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        latency=Uniform(100_000, rng.choice((2, 20)) * MILLISECOND),
        sent_survives=rng.random() < 0.3,
        journal=True,
        snapshot_every=rng.choice((0, 5)),
        seed=seed,
        events_max=20_000,
    )


def run_while_one_has_not_heard(name: str, seed: int) -> Scenario:
    """a.1 delivers a message that reaches a.2 only, and is gone. a.2 goes on behind the gap; a.3 may hear of it late.

    The first message behind the gap follows nothing. So it is a first message to a.3 as well, which has delivered none:
    if it took that frame in the era before, it would deliver it without a gap, and a.2 has one before it.
    """
    return Scenario(
        protocol=name,
        options={"gaps": "true", "by": ("travel", "reduction")[seed % 2]},
        groups={"a": 3},
        plans=(Plan("a.1", MILLISECOND, ("a",)), *(Plan("a.2", i * MILLISECOND, ("a",)) for i in range(5, 60, 2))),
        faults=(Partition(("a.3",), at=0, for_ns=4 * MILLISECOND), Crash("a.1", at=5 * MILLISECOND // 2)),
        journal=True,
        seed=seed,
    )


def lost_in_the_calm(outcome: Outcome) -> list[str]:
    """What a process that lives multicast when all was calm again, and some member that lives does not deliver."""
    down = {p for p in _rows_by_process(outcome) if _last_of(outcome, p, "crash") > _last_of(outcome, p, "recover")}
    members = [p for p in outcome.facts.groups["a"] if p not in down]
    delivered = {(row.process, row.message) for row in outcome.rows if row.kind == "deliver"}
    return [
        f"{row.message} at {p}"
        for row in outcome.rows
        if row.kind == "multicast" and row.time_ns >= CALM and row.process not in down
        for p in members
        if (p, row.message) not in delivered
    ]


def _rows_by_process(outcome: Outcome) -> list[str]:
    return sorted({row.process for row in outcome.rows})


def _last_of(outcome: Outcome, process: str, kind: str) -> int:
    return max((row.seq for row in outcome.rows if row.process == process and row.kind == kind), default=-1)


def out_of_order(outcome: Outcome) -> list[str]:
    """Where what a process delivers of one sender is not in the order in which that one sent it."""
    newest: dict[tuple[str, str], int] = {}
    found = []
    for row in sorted(outcome.rows, key=lambda row: (row.process, row.seq)):
        if row.kind == "deliver" and row.message is not None:
            sender, _, number = row.message.rpartition(":")
            if int(number) < newest.get((row.process, sender), 0):
                found.append(f"{row.message} at {row.process}")
            newest[row.process, sender] = int(number)
    return found


@pytest.mark.parametrize("name", SWAPS)
def test_after_the_last_gap_nothing_is_lost(name: str) -> None:
    """The promises hold; all that live are in one era in the end, and its object works.

    What is delivered of one sender keeps its order, though some of it may be missing. A hybrid of clusters keeps no
    such order, gaps or not.
    """
    gaps = behind = 0
    for seed in range(SEEDS):
        outcome = simulate(scenario := long_run(name, seed))
        assert not outcome.violations, f"{outcome.violations}\n{as_code(scenario)}"
        assert not lost_in_the_calm(outcome), as_code(scenario)
        assert not out_of_order(outcome), as_code(scenario)
        gaps += sum(row.kind == "gap" for row in outcome.rows)
        behind += sum(row.kind == "deliver" and row.time_ns >= CALM for row in outcome.rows)
    assert gaps > 2 * SEEDS
    assert behind > 10 * SEEDS


def mutants(make: Any) -> list[Any]:
    return [
        pytest.param(name, mutant, id=f"{name}-{mutant.__name__}")
        for name in SWAPS
        for mutant in make(protocols()[name])
    ]


@pytest.mark.parametrize(("name", "mutant"), mutants(gaps_mutants))
def test_mistakes_with_eras_and_gaps_break_a_promise(name: str, mutant: Any) -> None:
    make = run_while_one_has_not_heard if mutant.__name__ in WHILE_ONE_HAS_NOT_HEARD else long_run
    seeds = (QUICK.get(mutant.__name__, {}).get(name, 0), *range(SEEDS))
    assert any(is_caught(simulate(make(name, seed), mutant).violations) for seed in seeds)


@pytest.mark.parametrize("name", SWAPS)
def test_who_hears_late_of_a_crash_takes_no_frame_of_a_later_era_before(name: str) -> None:
    for seed in range(12):
        outcome = simulate(run_while_one_has_not_heard(name, seed))
        assert outcome.violations == []


@pytest.mark.parametrize(("name", "mutant"), mutants(losing_mutants))
def test_what_loses_for_ever_is_seen_behind_the_last_gap(name: str, mutant: Any) -> None:
    def shows(seed: int) -> bool:
        outcome = simulate(long_run(name, seed), mutant)
        return bool(outcome.violations or lost_in_the_calm(outcome))

    assert any(shows(seed) for seed in range(SEEDS))


# All states of a small world ----------------------------------------------------------------------------------------

FOUND = {
    "CarriesNoEra",
    "DoesNotMoveWithAFrame",
    "AnnouncesNoGap",
    "AnnouncesTheGapTooLate",
    "AnnouncesAGapOnlyIfItMissesSomething",
    "DeliversWhatItHeldBack",
    "SwapsAgainWhatIsUnderWay",
}


def small_world(name: str, crashes: int = 1) -> Scope:
    return Scope(
        protocol=name,
        options={"gaps": "true"},
        groups={"a": 3},
        plans=(("a.1", ("a",)), ("a.2", ("a",))),
        may_crash=("a.1", "a.3")[:crashes],
        crashes=crashes,
        restarts=crashes == 1,
    )


@pytest.mark.parametrize("crashes", [1, 2])
@pytest.mark.parametrize("name", SWAPS)
def test_a_small_world_with_a_gap_is_searched_to_its_end(name: str, crashes: int) -> None:
    found = explore(small_world(name, crashes))
    assert found.violations == []
    assert found.complete
    assert found.terminal > 1


@pytest.mark.parametrize(
    "mutant",
    [mutant for mutant in gaps_mutants(protocols()["arrow"]) if mutant.__name__ in FOUND],
    ids=lambda mutant: mutant.__name__,
)
def test_the_search_finds_what_is_missing_without_a_gap(mutant: Any) -> None:
    found = explore(small_world("arrow"), mutant)
    assert {violation.property for violation in found.violations} <= {"gaps", "integrity"}
    assert_replays(found, mutant)


NOT_PROMISED = (
    Promise.VALIDITY,
    Promise.AGREEMENT,
    Promise.UNIFORM_AGREEMENT,
    Promise.TOTAL_ORDER,
    Promise.FIFO,
    Promise.CAUSAL,
)


@pytest.mark.parametrize("promise", NOT_PROMISED)
@pytest.mark.parametrize("name", SWAPS)
def test_what_an_order_with_gaps_does_not_promise(name: str, promise: Promise) -> None:
    def breaks(seed: int) -> bool:
        outcome = simulate(long_run(name, seed))
        facts = msgspec.structs.replace(outcome.facts, promises=[promise.value])
        return any(violation.property == promise.value for violation in check_run(facts, outcome.rows))

    assert any(breaks(seed) for seed in range(SEEDS))


@pytest.mark.parametrize("name", SWAPS)
def test_behind_a_gap_requests_may_be_in_different_orders(name: str) -> None:
    """Clients change member, and each member admits the copy that it has not lost."""
    rng = random.Random(6)
    scenario = long_run(name, 6)
    plans = tuple(msgspec.structs.replace(plan, sender=rng.choice(("c1", "c2", "c3"))) for plan in scenario.plans)
    outcome = simulate(msgspec.structs.replace(scenario, plans=plans, through_members=True))
    assert outcome.violations == []
    promise = Promise.REQUEST_ORDER
    assert promise not in outcome.facts.promises
    facts = msgspec.structs.replace(outcome.facts, promises=[promise.value])
    assert [violation.property for violation in check_run(facts, outcome.rows)][:1] == [promise.value]


def assert_led_round_the_dead(name: str, multicast: str, mutant: Any = None) -> None:
    """A ring of five, a.1 to a.5, without a.3: the survivors send along the edges of the ring only, and all deliver.

    Without a.5 as well it falls apart, into a.1 and a.2, and a.4: each piece goes on by itself, in one order.
    """
    late, later = 1_000 * MILLISECOND, 3_000 * MILLISECOND
    members = [f"a.{i}" for i in range(1, 6)]
    plans = [Plan(sender, 0, ("a",)) for sender in members]
    plans += [Plan(sender, late, ("a",)) for sender in members if sender != "a.3"]
    plans += [Plan(sender, later + i * MILLISECOND, ("a",)) for i, sender in ((0, "a.1"), (9, "a.2"), (20, "a.4"))]
    outcome = simulate(
        Scenario(
            protocol=name,
            options={"gaps": "true", "weights": ring(5), "multicast": multicast},
            groups={"a": 5},
            plans=tuple(plans),
            faults=(Crash("a.3", 100 * MILLISECOND), Crash("a.5", 2_000 * MILLISECOND)),
        ),
        mutant,
    )
    assert outcome.violations == []
    logs: dict[str, list[str]] = {member: [] for member in members}
    edges = {frozenset((f"a.{i}", f"a.{i % 5 + 1}")) for i in range(1, 6)}
    for row in outcome.rows:
        if row.kind == "deliver":
            logs[row.process].append(str(row.message))
        elif row.kind == "send" and multicast == "tree":
            assert all(frozenset((row.process, peer)) in edges for peer in row.peers or ())
    assert len(logs["a.3"]) == 5
    assert len(logs["a.5"]) == 5 + 4, "all that live deliver what they multicast round a.3"
    assert logs["a.1"] == logs["a.2"]
    assert logs["a.1"][:9] == logs["a.4"][:9]
    assert sorted(logs["a.1"][9:]) == ["a.1:3", "a.2:3"]
    assert logs["a.4"][9:] == ["a.4:3"]


@pytest.mark.parametrize("multicast", ["direct", "tree"])
@pytest.mark.parametrize("name", SWAPS)
def test_redundant_edges_lead_round_a_dead_node(name: str, multicast: str) -> None:
    assert_led_round_the_dead(name, multicast)


class MulticastsBeyondItsPiece(ArrowMulticast):
    def nodes(self) -> tuple[ProcessId, ...]:
        return tuple(p for p in self.members if p not in self.dead(self.group))


class KeepsTheDeadInItsTree(ArrowMulticast):
    def place(self) -> Place:
        return lightest(self.members, self.options.weights)[self.me]


class TakesAnyEdge(ArrowMulticast):
    def place(self) -> Place:
        return places(self.nodes(), "line")[self.me]


@pytest.mark.parametrize("mutant", [MulticastsBeyondItsPiece, KeepsTheDeadInItsTree, TakesAnyEdge])
def test_mistakes_with_redundant_edges(mutant: Any) -> None:
    multicast = "direct" if mutant is MulticastsBeyondItsPiece else "tree"
    with pytest.raises(AssertionError):
        assert_led_round_the_dead("arrow", multicast, mutant)


def test_a_sink_that_crashes_with_the_value() -> None:
    """The scenario of docs/protocols/gaps.md: a.1 is the sink, and gone before it can answer."""
    scenario = Scenario(
        protocol="arrow",
        options={"gaps": "true"},
        groups={"a": 3},
        plans=(
            Plan("a.1", 1 * MILLISECOND, ("a",)),
            Plan("a.2", 3 * MILLISECOND, ("a",)),
            Plan("a.3", 4 * MILLISECOND, ("a",)),
            Plan("a.2", 500 * MILLISECOND, ("a",)),
            Plan("a.3", 600 * MILLISECOND, ("a",)),
        ),
        faults=(Crash("a.1", 3 * MILLISECOND),),
    )
    outcome = simulate(scenario)
    assert outcome.violations == []
    logs = {
        member: [
            row.message or "gap" for row in outcome.rows if row.process == member and row.kind in ("deliver", "gap")
        ]
        for member in ("a.1", "a.2", "a.3")
    }
    assert logs == LOGS


# Clients ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["arrow", "combining"])
@pytest.mark.parametrize("seed", range(3))
def test_behind_a_gap_clients_go_on(name: str, seed: int) -> None:
    """A request that was lost in it keeps no later one of its client back."""
    scenario = Scenario(
        protocol=name,
        options={"gaps": "true"},
        groups={"a": 3},
        plans=tuple(Plan(f"c{1 + i % 2}", i * MILLISECOND, ("a",)) for i in range(150)),
        faults=(Crash("a.1", at=30 * MILLISECOND),),
        through_members=True,
        gather=1,
        seed=seed,
        latency=Uniform(MILLISECOND // 10, 3 * MILLISECOND),
    )
    outcome = simulate(scenario)
    assert outcome.violations == []
    for process in ("a.2", "a.3"):
        rows = [row for row in outcome.rows if row.process == process]
        (gap,) = [row.seq for row in rows if row.kind == "gap"]
        behind = [cell for row in rows if row.kind == "deliver" and row.seq > gap for cell in row.requests or ()]
        assert {cell.client for cell in behind} == {"c1", "c2"}
        assert all(max(cell.first for cell in behind if cell.client == client) == 74 for client in ("c1", "c2"))
