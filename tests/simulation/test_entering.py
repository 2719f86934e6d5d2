"""Entering and leaving in runs in which many do it, at once and under traffic; and in hand-made ones."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import msgspec
import pytest

from antiphon.checks import check_run
from antiphon.core import Message, MessageId, OrderingProtocol, ProcessId, Promise, Table, Topology
from antiphon.core.errors import UsageError
from antiphon.protocols import protocols
from antiphon.services.entering import Progress
from antiphon.simulation import (
    MILLISECOND,
    Constant,
    Crash,
    Exponential,
    Fault,
    Instruction,
    Latency,
    Outcome,
    Partition,
    Pause,
    Plan,
    Scenario,
    Slow,
    Uniform,
    as_code,
    random_scenario,
    simulate,
)
from mutants.entering import client_mutants, entering_mutants

MOVABLE = ("arrow", "combining")
SEEDS = 40
SHOWN = {  # from where on the seeds show a mistake, if not from 0
    ("arrow", "BeginsToLeaveWhileItIsLocked"): 10,
    ("arrow", "IsLockedForNeighboursOnly"): 87,
    ("arrow", "ChoosesAnyHeir"): 7,
    ("arrow", "UnlocksOneOfThem"): 23,
    ("arrow", "LeavesJoinersBehind"): 6,
    ("arrow", "ForgetsWhatIsHeldOnRestart"): 127,
    ("arrow", "ForgetsItsNeighboursOnRestart"): 12,
    ("arrow", "IsNotToldWhatIsHeldBack"): 18,
    ("arrow", "OrdersWhileItIsLocked"): 8,
    ("combining", "BeginsToLeaveWhileItIsLocked"): 13,
    ("combining", "LocksOnlyThoseItHadAtFirst"): 6,
    ("combining", "IsLockedForNeighboursOnly"): 24,
    ("combining", "UnlocksOneOfThem"): 23,
    ("combining", "LeavesJoinersBehind"): 7,
    ("combining", "ForgetsItsNeighboursOnRestart"): 18,
    ("combining", "IsNotToldWhatIsHeldBack"): 106,
    ("combining", "MulticastsToItsLocker"): 10,
}
CALM = 2_000 * MILLISECOND  # by then all are told to enter, and have
MOVING = {"moving": "true", "multicast": "tree"}


# Random runs --------------------------------------------------------------------------------------------------------


def restless_run(name: str, seed: int) -> Scenario:
    """One group, of which most leave and enter, often several at the same instant; in the end all are told to enter."""
    rng = random.Random(f"{seed}/entering")
    members = [str(p) for p in Topology.sized({"a": rng.choice((2, 3, 4, 5, 6, 9))}).processes]
    senders = [*members, "c1", "c2"]
    restless = rng.sample(members, rng.randint(1, len(members)))
    span = rng.choice((10, 60, 250)) * MILLISECOND
    commands = []
    for _ in range(rng.choice((2, 6, 15))):
        at, told = rng.randrange(span), rng.sample(restless, rng.randint(1, len(restless)))
        commands += [Instruction(p, at, rng.choice(("leave", "leave", "enter"))) for p in told]
    commands += [Instruction(p, CALM - 500 * MILLISECOND, "enter") for p in restless]
    plans = [Plan(rng.choice(senders), rng.randrange(span), ("a",)) for _ in range(rng.choice((5, 20, 60)))]
    plans += [Plan(sender, CALM + rng.randrange(5 * MILLISECOND), ("a",)) for sender in senders]
    faults: list[Fault] = []
    for process in members:
        at, for_ns = rng.randrange(span), rng.randrange(60 * MILLISECOND)
        possible: list[Fault] = [
            Pause(process, at, for_ns),
            Slow(process, at, for_ns, rng.randrange(30 * MILLISECOND)),
            Partition((process,), at, for_ns),
            Crash(process, at, for_ns),
        ]
        faults += rng.sample(possible, rng.choice((0, 0, 0, 1, 2)))
    latencies: tuple[Latency, ...] = (
        Constant(),
        Uniform(100_000, rng.choice((2, 20)) * MILLISECOND),
        Exponential(10_000, 5 * MILLISECOND),
    )
    return Scenario(
        protocol=name,
        options={**MOVING, "tree": rng.choice(("balanced", "line", "star", "random")), "seed": str(rng.randrange(9))}
        | ({"window": rng.choice(("0", "0", "3"))} if name == "combining" else {}),
        groups={"a": len(members)},
        plans=tuple(sorted(plans, key=lambda plan: plan.at)),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        commands=tuple(sorted(commands, key=lambda tell: tell.at)),
        latency=rng.choice(latencies),
        journal=True,
        snapshot_every=rng.choice((0, 5)),
        turn_ns=rng.choice((0, 0, MILLISECOND)),
        seed=seed,
        events_max=50_000,
    )


def restless_clients(name: str, seed: int) -> Scenario:
    """The same, where all is sent by clients that hand it to members, and go on at another one when that is away."""
    rng = random.Random(f"{seed}/clients")
    scenario = restless_run(name, seed)
    plans = tuple(msgspec.structs.replace(plan, sender=rng.choice(("c1", "c2", "c3"))) for plan in scenario.plans)
    return msgspec.structs.replace(scenario, plans=plans, through_members=True, gather=rng.choice((1, 3)))


def logs(outcome: Outcome) -> dict[str, list[str]]:
    """What each member delivers, and where it announces a gap."""
    found: dict[str, list[str]] = {p: [] for p in outcome.facts.groups["a"]}
    for row in sorted(outcome.rows, key=lambda row: (row.process, row.seq)):
        if row.kind in ("deliver", "gap"):
            found[row.process].append(row.message or "gap")
    return found


def missing(outcome: Outcome) -> list[str]:
    """What should be in a log and is not.

    Who was never told to leave delivers everything that was multicast, and so do all what was multicast in the calm.
    """
    moved = {tell.process for tell in outcome.scenario.commands if tell.command == "leave"}
    made = [(row.message or "", row.time_ns) for row in outcome.rows if row.kind == "multicast"]
    return [
        f"{message} at {process}"
        for process, log in logs(outcome).items()
        for message, at in made
        if message not in log and (process not in moved or at >= CALM)
    ]


def broken(outcome: Outcome) -> list[str]:
    found = [str(violation) for violation in outcome.violations] + missing(outcome)
    keys = defaultdict(set)
    for row in outcome.rows:
        if row.kind == "deliver":
            keys[row.message].add(row.order_key)
    return found + [f"{message} has several places" for message, places in keys.items() if len(places) > 1]


def chained(honest: Any) -> type[OrderingProtocol]:
    """The protocol, in which every member holds all that it ever hears to be one chain."""

    class Chained(honest):  # type: ignore[misc]
        successors: Table[MessageId, MessageId]
        predecessors: Table[MessageId, MessageId]
        heard: list[MessageId]  # since it entered

        def initialise(self) -> None:
            super().initialise()
            self.successors, self.predecessors, self.heard = {}, {}, []

        def when_received(self, place: MessageId, m: Message) -> None:
            assert self.successors.setdefault(place, m.id) == m.id, "a value is taken once"
            assert self.predecessors.setdefault(m.id, place) == place, "a swap returns one value"
            assert m.id not in self.heard, "every node of the tree hears of a message once"
            self.heard.append(m.id)
            super().when_received(place, m)

        def when_entered(self, by: ProcessId, progress: Progress) -> None:
            self.heard = []
            super().when_entered(by, progress)

    return Chained


@pytest.mark.parametrize("name", MOVABLE)
def test_who_stays_misses_nothing_and_who_comes_back_misses_nothing_more(name: str) -> None:
    left = gaps = 0
    protocol = chained(protocols()[name])
    for seed in range(SEEDS // 2):
        outcome = simulate(scenario := restless_run(name, seed), protocol)
        assert not broken(outcome), f"{broken(outcome)[:5]}\n{as_code(scenario)}"
        gaps += sum(row.kind == "gap" for row in outcome.rows)
        left += sum((row.layer or "").endswith("moving") and row.kind == "send" for row in outcome.rows)
    assert gaps > SEEDS // 2
    assert left > 10 * SEEDS


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        pytest.param(name, mutant, id=f"{name}-{mutant.__name__}")
        for name in MOVABLE
        for mutant in entering_mutants(protocols()[name])
    ],
)
def test_mistakes_of_those_who_enter_and_leave(name: str, mutant: Any) -> None:
    if mutant.__name__ == "HearsItselfLater":
        assert broken(simulate(last_who_would_leave(name), mutant))
        return
    first = SHOWN.get((name, mutant.__name__), 0)
    assert any(broken(simulate(restless_run(name, seed), mutant)) for seed in range(first, first + SEEDS))


CLIENTS_SHOWN = {  # the first seed at which clients notice a mistake, if it is not 12
    ("arrow", "DoesNotAskWhereClientsAre"): 30,
    ("arrow", "IsNotToldWhatWaits"): 14,
    ("combining", "DoesNotAskWhereClientsAre"): 14,
    ("combining", "IsNotToldWhatWaits"): 14,
}


@pytest.mark.parametrize("name", MOVABLE)
def test_requests_are_in_one_order_whoever_enters_and_leaves(name: str) -> None:
    for seed in (*range(10), 12, 14, 30):
        outcome = simulate(scenario := restless_clients(name, seed))
        assert outcome.violations == [], as_code(scenario)
        assert Promise.REQUEST_ORDER in outcome.facts.promises


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        pytest.param(name, mutant, id=f"{name}-{mutant.__name__}")
        for name in MOVABLE
        for mutant in client_mutants(protocols()[name])
    ],
)
def test_mistakes_about_where_clients_are(name: str, mutant: Any) -> None:
    first = CLIENTS_SHOWN.get((name, mutant.__name__), 12)
    assert any(
        violation.property == Promise.REQUEST_ORDER
        for seed in range(first, first + SEEDS)
        for violation in simulate(restless_clients(name, seed), mutant).violations
    )


@pytest.mark.parametrize(("name", "seed"), [("arrow", 33), ("combining", 214)])
def test_a_campaign_finds_who_does_not_ask_where_clients_are(name: str, seed: int) -> None:
    mutant = client_mutants(protocols()[name])[0]
    outcome = simulate(random_scenario(protocols()[name], seed, {"moving": "true"}), mutant)
    assert Promise.REQUEST_ORDER in {violation.property for violation in outcome.violations}


NOT_PROMISED = (
    Promise.AGREEMENT,
    Promise.UNIFORM_AGREEMENT,
    Promise.TOTAL_ORDER,
    Promise.FIFO,
    Promise.CAUSAL,
    Promise.GENUINENESS,
)


@pytest.mark.parametrize("promise", NOT_PROMISED)
@pytest.mark.parametrize("name", MOVABLE)
def test_what_is_not_promised_where_members_move(name: str, promise: Promise) -> None:
    def breaks(scenario: Scenario) -> bool:
        outcome = simulate(scenario)
        assert not broken(outcome)
        facts = msgspec.structs.replace(outcome.facts, promises=[promise.value])
        return any(violation.property == promise.value for violation in check_run(facts, outcome.rows))

    if (
        promise is Promise.GENUINENESS
    ):  # who leaves a group to which nobody multicasts sends frames for nobody's message
        assert breaks(run(name, 3, "line", (), (Instruction("a.3", 0, "leave"),)))
    else:
        assert any(breaks(restless_run(name, seed)) for seed in range(SEEDS))


# Hand-made runs -----------------------------------------------------------------------------------------------------

MS = MILLISECOND


def run(name: str, n: int, tree: str, plans: Any, commands: tuple[Instruction, ...]) -> Scenario:
    """``plans``: who multicasts, and when in milliseconds."""
    made = tuple(Plan(sender, at * MS, ("a",)) for sender, at in plans)
    return Scenario(protocol=name, options={**MOVING, "tree": tree}, groups={"a": n}, plans=made, commands=commands)


def frames(outcome: Outcome) -> int:
    """What it took to enter and leave."""
    return sum(
        len(row.peers or ())
        for row in outcome.rows
        if row.kind == "send" and (row.layer or "").endswith("/moving") and not row.about
    )


def everywhere(n: int, at: int) -> list[tuple[str, int]]:
    return [(f"a.{i}", at) for i in range(1, n + 1)]


@pytest.mark.parametrize("name", MOVABLE)
@pytest.mark.parametrize(
    ("n", "tree", "leaver", "degree"),
    [
        (3, "line", "a.3", 1),
        (3, "line", "a.2", 2),
        (3, "line", "a.1", 1),  # the sink, or root
        (4, "star", "a.1", 3),
        (4, "star", "a.4", 1),
        (7, "balanced", "a.2", 3),
        (9, "random", "a.5", None),
    ],
)
def test_one_leaves_and_comes_back(name: str, n: int, tree: str, leaver: str, degree: int | None) -> None:
    """It costs three messages for each neighbour, and two to come back."""
    plans = [*everywhere(n, 0), *everywhere(n, 200), *everywhere(n, 400)]
    scenario = run(name, n, tree, plans, (Instruction(leaver, 100 * MS, "leave"),))
    outcome = simulate(scenario)
    assert broken(outcome) == []
    left = frames(outcome)
    assert left % 3 == 0
    assert left == 3 * degree if degree is not None else left
    assert logs(outcome)[leaver] == logs(outcome)["a.1" if leaver != "a.1" else "a.2"][:n]

    commands = (*scenario.commands, Instruction(leaver, 300 * MS, "enter"))
    outcome = simulate(msgspec.structs.replace(scenario, commands=commands))
    assert broken(outcome) == []
    assert frames(outcome) == left + 2
    log = logs(outcome)
    whole = log["a.1" if leaver != "a.1" else "a.2"]
    assert log[leaver] == [*whole[:n], "gap", *whole[2 * n :]]


@pytest.mark.parametrize("name", MOVABLE)
@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize(("n", "tree"), [(2, "line"), (4, "line"), (5, "balanced")])
def test_two_neighbours_leave_at_the_same_instant(name: str, at: int, n: int, tree: str) -> None:
    """While all multicast; the last of two stays, whoever it is told to leave."""
    plans = [*everywhere(n, 0), *everywhere(n, 2), *everywhere(n, 4), *everywhere(n, 100)]
    outcome = simulate(
        run(name, n, tree, plans, (Instruction("a.1", at * MS, "leave"), Instruction("a.2", at * MS, "leave")))
    )
    assert broken(outcome) == []
    log = logs(outcome)
    assert len(log[f"a.{n}"]) == 4 * n
    assert len(log["a.1"]) < 4 * n


@pytest.mark.parametrize("name", MOVABLE)
@pytest.mark.parametrize("stays", range(1, 6))
def test_the_whole_path_leaves_but_one(name: str, stays: int) -> None:
    """At the same instant, under traffic; then they come back, and one of them multicasts for the last time."""
    others = [f"a.{i}" for i in range(1, 6) if i != stays]
    commands = (*(Instruction(p, MS, "leave") for p in others), *(Instruction(p, 200 * MS, "enter") for p in others))
    plans = [*everywhere(5, 0), *everywhere(5, 2), *everywhere(5, 100), (others[0], 300)]
    outcome = simulate(run(name, 5, "line", plans, commands))
    assert broken(outcome) == []
    log = logs(outcome)
    assert len(log[f"a.{stays}"]) == 16
    assert all(log[p][-2:] == ["gap", log[f"a.{stays}"][-1]] for p in others)


@pytest.mark.parametrize("name", MOVABLE)
def test_when_all_leave_one_stays_until_another_has_come(name: str) -> None:
    everybody = tuple(Instruction(f"a.{i}", 10 * MS, "leave") for i in range(1, 5))
    plans = [*everywhere(4, 0), *everywhere(4, 100), ("c1", 120)]
    outcome = simulate(run(name, 4, "balanced", plans, everybody))
    assert outcome.violations == []
    (whole,) = [log for log in logs(outcome).values() if len(log) == 9]
    assert all(log == whole[:4] for log in logs(outcome).values() if log != whole)
    outcome = simulate(run(name, 4, "balanced", plans, (*everybody, Instruction("a.1", 110 * MS, "enter"))))
    assert outcome.violations == []
    assert logs(outcome)["a.1"][-2:] == ["gap", "c1:1"]
    assert [p for p, log in logs(outcome).items() if "c1:1" in log] == ["a.1"]


def last_who_would_leave(name: str) -> Scenario:
    """a.3 is outside. a.1 and a.2 leave; a.1 is first, and meanwhile a.2 multicasts and a.3 asks it to enter."""
    commands = (
        *(Instruction("a.3", 0, "leave"), Instruction("a.1", 20 * MS, "leave"), Instruction("a.2", 20 * MS, "leave")),
        Instruction("a.3", 20 * MS, "enter"),
        *(Instruction(p, 100 * MS, "enter") for p in ("a.1", "a.2")),
    )
    return run(name, 3, "line", [("a.2", 22), ("a.1", CALM // MS)], commands)


@pytest.mark.parametrize("name", MOVABLE)
def test_who_enters_by_the_last_one_is_told_what_that_one_just_multicast(name: str) -> None:
    assert broken(simulate(last_who_would_leave(name))) == []


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({}, "multicast=tree"),
        ({"multicast": "direct"}, "multicast=tree"),
        ({**MOVING, "by": "reduction"}, "by=travel"),
        ({**MOVING, "gaps": "true"}, "gaps=false"),
        ({"by": "reduction", "gaps": "true"}, "multicast=tree and by=travel and gaps=false"),
    ],
)
@pytest.mark.parametrize("name", MOVABLE)
def test_what_cannot_move_is_refused(name: str, options: dict[str, str], needed: str) -> None:
    with pytest.raises(UsageError, match=f"{name} with moving=true needs {needed}: only the neighbours"):
        simulate(Scenario(protocol=name, options={"moving": "true", **options}, groups={"a": 2}, plans=()))


def test_only_who_can_move_is_told_to() -> None:
    told = Scenario(protocol="arrow", groups={"a": 2}, plans=(), commands=(Instruction("a.1", 0, "leave"),))
    with pytest.raises(UsageError, match="has no command 'leave'; with these options it has no commands"):
        simulate(told)
    with pytest.raises(UsageError, match="has no command 'jump'; it can be told to enter or leave"):
        simulate(msgspec.structs.replace(told, options=MOVING, commands=(Instruction("a.1", 0, "jump"),)))


@pytest.mark.parametrize("name", MOVABLE)
def test_what_it_costs_does_not_depend_on_the_group(name: str) -> None:
    """But on the node: one of a line with two neighbours, and the middle of a star."""
    commands = (Instruction("a.2", 0, "leave"), Instruction("a.2", 50 * MS, "enter"))
    assert {frames(simulate(run(name, n, "line", (), commands))) for n in (4, 16, 64)} == {3 * 2 + 2}
    for n in (4, 16, 64):
        outcome = simulate(
            run(name, n, "star", (), (Instruction("a.1", 0, "leave"), Instruction("a.1", 50 * MS, "enter")))
        )
        assert frames(outcome) == 3 * (n - 1) + 2
        talking = {row.process for row in outcome.rows if row.kind == "send"}
        assert len(talking) == n
    outcome = simulate(run(name, 64, "line", (), commands))
    assert {row.process for row in outcome.rows if row.kind == "send"} == {"a.1", "a.2", "a.3"}


@pytest.mark.parametrize("name", MOVABLE)
def test_who_enters_again_goes_on_with_the_clients_that_it_knew(name: str) -> None:
    """What they sent while it was outside keeps nothing back."""
    scenario = Scenario(
        protocol=name,
        options=MOVING,
        groups={"a": 3},
        plans=tuple(Plan("c1", i * MILLISECOND, ("a",)) for i in range(150)),
        commands=(Instruction("a.2", 20 * MILLISECOND, "leave"), Instruction("a.2", 60 * MILLISECOND, "enter")),
        through_members=True,
        gather=1,
    )
    outcome = simulate(scenario)
    assert outcome.violations == []
    delivered = {
        process: [
            c.first for r in outcome.rows if r.process == process for c in r.requests or () if r.kind == "deliver"
        ]
        for process in ("a.1", "a.2", "a.3")
    }
    assert delivered["a.1"] == delivered["a.3"] == list(range(150))
    missed = sorted(set(delivered["a.1"]) - set(delivered["a.2"]))
    assert 20 < len(missed) < 60
    assert missed == list(range(missed[0], missed[-1] + 1)), "in one piece, where it was outside"


def test_commands_are_for_members() -> None:
    plans = (Plan("c1", 0, ("a",)),)
    commands = (Instruction("c1", MILLISECOND, "enter"),)
    with pytest.raises(UsageError, match="c1 is in no group"):
        simulate(Scenario(protocol="arrow", options=MOVING, groups={"a": 2}, plans=plans, commands=commands))
