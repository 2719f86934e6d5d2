"""Runs that show a mistake which the suite's seeds show rarely or never, kept as they were found."""

from __future__ import annotations

import pytest

from antiphon.simulation import (
    MILLISECOND,
    Crash,
    Depose,
    Distrust,
    Exponential,
    Instruction,
    Pause,
    Plan,
    Replace,
    Scenario,
    Uniform,
    WrongSuspicion,
    simulate,
)
from mutants.foretold import WaitsThoughItStood
from mutants.host import SLIPS
from mutants.tom import FollowsOneDefinitiveTimestamp

# Of each multicast: the client, when, the groups (12: g1 and g2), and how many payloads.
PLANS = """
    c1 0 1 4, c2 0 1 4, c2 159120 1 3, c1 3165727 1 3, c2 9015133 12 4,
    c2 15999371 2 3, c2 16604488 2 3, c2 20087565 2 2, c1 23359862 12 4, c2 27212149 12 2,
    c1 28353055 1 2, c2 30490848 2 4, c2 31647004 12 1, c2 32690096 12 2, c1 33444995 12 4,
    c2 34504792 12 4, c2 34610290 1 3, c2 36427156 1 4, c1 41094982 12 2, c2 42571925 2 4,
    c1 45893044 12 1, c2 49064859 1 4, c1 51184997 1 2, c1 52485675 12 3, c1 52560049 12 1,
    c1 53391944 12 3, c1 55388729 1 2, c1 56004883 12 2, c1 56190928 12 2, c1 56702097 12 3,
    c1 56775701 1 1, c1 56801805 12 1, c2 60823709 1 4, c2 61013939 12 4, c2 62464095 12 1,
"""


def planned(plans: str = PLANS, *sender: str) -> tuple[Plan, ...]:
    rows = [[*sender, *row.split()] for row in plans.replace("\n", " ").split(",") if row.strip()]
    return tuple(
        Plan(sender, int(at), tuple(f"g{group}" for group in groups), payloads=int(payloads))
        for sender, at, groups, payloads in rows
    )


def test_all_definitive_timestamps_of_a_decision_are_followed() -> None:
    """Else the clocks of a group's members part, and with them the timestamps that they give."""
    scenario = Scenario(
        protocol="tom",
        options={
            "consensus": "hr",
            "reliable": "lazy",
            "estimates": "true",
            "flood_origin": "true",
            "echo_origin": "false",
            "sets": "true",
        },
        groups={"g1": 1, "g2": 3},
        plans=planned(),
        faults=(Pause("g2.2", 1_026_207, 13_751_422), WrongSuspicion("g2.1", "g2.3", 3_950_810, 23_420_495)),
        latency=Exponential(floor_ns=200_000, mean_ns=2_000_000),
        fifo=False,
        loss=0.1,
        duplication=0.1,
        sent_survives=True,
        journal=True,
        sync_ns=500_000,
        through_members=True,
        seed=104,
        limit_ns=30_164_625_974,
    )
    assert simulate(scenario).violations == []
    (violation,) = simulate(scenario, FollowsOneDefinitiveTimestamp).violations
    assert "a group agrees on its timestamp" in violation.detail


def test_a_restart_brings_back_the_requests_that_wait_for_a_predecessor() -> None:
    """Under skeen none ever waits: the protocol keeps the order of a client itself. Tom does not."""
    scenario = Scenario(
        protocol="tom",
        options={"reliable": "lazy", "estimates": "false", "flood_origin": "false"},
        groups={"g1": 3, "g2": 3},
        plans=(
            Plan("c1", 0, ("g2",)),
            Plan("c2", 0, ("g1",)),
            Plan("c1", 487_570, ("g1",), payloads=4),
            Plan("c1", 603_781, ("g1",), payloads=4),
        ),
        faults=(Crash("g1.2", at=4_290_048, down_ns=3_531_392, effects=1),),
        latency=Uniform(low_ns=100_000, high_ns=3_000_000),
        fifo=False,
        journal=True,
        sync_ns=50_000,
        snapshot_every=5,
        through_members=True,
        seed=436,
    )
    assert simulate(scenario).violations == []
    (slip,) = [slip for slip in SLIPS if slip.name == "ForgetsTheRequestsThatWaitOnRestart"]
    with slip.made():
        violations = simulate(scenario).violations
    assert {violation.property for violation in violations} == {"receipts", "request_order"}


def test_who_stood_makes_way_though_it_has_nothing() -> None:
    """g2.3 stands, and crashes before it begins; all others have promised, and trust it."""
    scenario = Scenario(
        protocol="primcast",
        groups={"g1": 1, "g2": 3},
        plans=(Plan("g2.2", 0, ("g2",)),),
        faults=(
            Crash("g2.3", 32068824, down_ns=5351713),
            Distrust(("g1.1", "g2.1", "g2.2", "g2.3"), trusted=("g1.1", "g2.3"), at=41169817),
            Depose("g2", 44077186, 24946707, "crash"),
            Depose("g2", 123951735, 13368674, "crash"),
        ),
        loss=0.1,
        duplication=0.1,
        journal=True,
        sync_ns=20 * MILLISECOND,
        turn_ns=5 * MILLISECOND,
        closed_loop=True,
        seed=70638,
    )
    assert simulate(scenario).violations == []
    (violation,) = simulate(scenario, WaitsThoughItStood).violations
    assert violation.property == "validity"


# Of one client to g1 of three and g2 of one, as above.
OF_ONE = """
    0 1 4, 150853 12 1, 528084 12 2, 753862 12 2, 842247 12 2, 1836713 12 2, 1938973 12 2, 2061654 12 1,
    3423707 1 3, 4783054 12 3, 5064653 12 3, 5137111 12 4, 5164166 1 2, 5323040 12 3, 5659304 12 3, 5767157 2 1,
"""
LOST_NOTHING = (
    # g1.2 shows a delivery, crashes, shows it again, and is gone before it was durable in either life.
    Scenario(
        protocol="primcast",
        options={"hybrid": "false", "early": "false", "kept": "4000"},
        groups={"g1": 3, "g2": 1},
        plans=(Plan("g1.3", 0, ("g1", "g2"), payloads=2), Plan("g1.2", 0, ("g1",), payloads=2)),
        faults=(
            Crash("g1.2", 4980703, down_ns=3316182, effects="delivery"),
            Replace("g1.1", 15409137, MILLISECOND, then="g1.2", after_ns=60 * MILLISECOND),
        ),
        loss=0.1,
        duplication=0.1,
        journal=True,
        sync_ns=20 * MILLISECOND,
        seed=104168,
    ),
    # g1.3 crashes for good amid a release; what it multicast in the rest of it others had heard of early.
    Scenario(
        protocol="primcast",
        options={"hybrid": "false", "order": "realtime", "kept": "4000"},
        groups={"g1": 3, "g2": 1},
        plans=planned(OF_ONE, "c1"),
        faults=(Crash("g1.3", 3572537, effects="delivery"),),
        latency=Exponential(200_000, 2 * MILLISECOND),
        loss=0.1,
        duplication=0.1,
        journal=True,
        sync_ns=5 * MILLISECOND,
        turn_ns=2 * MILLISECOND,
        through_members=True,
        seed=100180,
    ),
    # g1.1 forgets that it began, and is back when it has been replaced, and has not heard of it.
    Scenario(
        protocol="primcast",
        options={"kept": "4000"},
        groups={"g1": 3},
        plans=(),
        faults=(
            Depose("g1", 745094, 1505507, "crash"),
            Replace("g1.1", 847989, 20 * MILLISECOND, after_ns=60 * MILLISECOND, lingers=True),
        ),
        commands=(Instruction("g1.1", 5369110, "advance floor=66"),),
        loss=0.1,
        duplication=0.1,
        journal=True,
        sync_ns=20 * MILLISECOND,
        seed=108185,
    ),
)


@pytest.mark.parametrize("scenario", LOST_NOTHING, ids=lambda scenario: str(scenario.seed))
def test_runs_in_which_only_the_simulator_was_wrong(scenario: Scenario) -> None:
    assert simulate(scenario).violations == []
