"""The membership service where machines are in several groups: what goes to a group of which nobody is in the view."""

from __future__ import annotations

import pytest

from antiphon.checks import RunHistory
from antiphon.core import GroupId, OrderingProtocol, ProcessId
from antiphon.protocols import protocol_named
from antiphon.protocols.transis import Transis
from antiphon.services.dag import Node
from antiphon.simulation import MILLISECOND, Outcome, Partition, Plan, Scenario, simulate

PROTOCOLS = ["transis", "allack", "toto"]
BOTH = ("a", "b")
REQUESTS = 45


def parted(protocol: type[OrderingProtocol], plans: list[Plan], *, through_members: bool = False) -> Outcome:
    """b.1, which is all of its group, is cut off from 50 to 800 ms."""
    scenario = Scenario(
        protocol=protocol.declaration.name,
        options={"membership": "true"},
        groups={"a": 2, "b": 1},
        plans=tuple(plans),
        faults=(Partition(("b.1",), 50 * MILLISECOND, 750 * MILLISECOND),),
        through_members=through_members,
        seed=1,
    )
    return simulate(scenario, protocol)


def with_a_client(protocol: type[OrderingProtocol]) -> Outcome:
    """It sends to both groups, and to one of them."""
    both = [Plan("c1", i * 20 * MILLISECOND, BOTH) for i in range(REQUESTS)]
    one = [Plan("c1", (i * 20 + 5) * MILLISECOND, ("a",)) for i in range(REQUESTS)]
    return parted(protocol, both + one, through_members=True)


def missed(outcome: Outcome) -> int:
    """How many of the client's requests to both groups some process did not deliver."""
    history = RunHistory(outcome.facts, outcome.rows)
    missed = 0
    for process in ("a.1", "a.2", "b.1"):
        rows = [row for row in history.deliveries[ProcessId(process)] if row.destinations == BOTH]
        numbers = [cell.first for row in rows for cell in row.requests or ()]
        assert numbers == sorted(set(numbers)), "each once, and in the client's order"
        missed += REQUESTS - len(numbers)
    return missed


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_request_waits_for_a_group_of_which_nobody_is_there(protocol: str) -> None:
    outcome = with_a_client(protocol_named(protocol))
    assert outcome.violations == []
    assert missed(outcome) == 0
    alone = [row for row in outcome.rows if row.kind == "deliver" and 600 < row.time_ns / MILLISECOND < 800]
    assert {(row.process, row.destinations) for row in alone} == {("a.1", ("a",)), ("a.2", ("a",))}, "others go on"


class GoesOutWithoutAGroup(Transis):
    def absent(self, destinations: tuple[GroupId, ...]) -> list[GroupId]:
        return []


class ForgetsWhatAGroupMayMiss(Transis):
    """What was multicast before anybody noticed that the group was gone."""

    def may_be_missed(self, m: Node, staying: tuple[ProcessId, ...]) -> bool:
        return False


@pytest.mark.parametrize("mutant", [GoesOutWithoutAGroup, ForgetsWhatAGroupMayMiss])
def test_without_it_a_group_misses_requests(mutant: type[OrderingProtocol]) -> None:
    assert missed(with_a_client(mutant)) > 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_so_does_what_a_machine_multicasts_itself_and_what_comes_behind_it(protocol: str) -> None:
    """But nobody repeats what it multicast before it noticed that the group was gone."""
    plans = [Plan("a.1", at * MILLISECOND, BOTH if at % 20 else ("a",)) for at in range(0, 900, 10)]
    outcome = parted(protocol_named(protocol), plans)
    assert outcome.violations == []
    history = RunHistory(outcome.facts, outcome.rows)
    delivered = {p: [str(row.message) for row in rows] for p, rows in history.deliveries.items()}
    sent = {str(row.message): row for row in outcome.rows if row.kind == "multicast"}
    assert delivered[ProcessId("a.2")] == list(sent)
    noticed = min(row.seq for row in history.views[ProcessId("a.2")] if row.peers == ("a.1", "a.2"))
    before = [str(row.message) for row in history.deliveries[ProcessId("a.2")] if row.seq < noticed]
    for_b = [id for id, row in sent.items() if row.destinations == BOTH]
    lost = [id for id in before if sent[id].time_ns > 49 * MILLISECOND]
    assert delivered[ProcessId("b.1")] == [id for id in for_b if id not in lost]
