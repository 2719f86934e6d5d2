"""A sender chooses its service, message by message: causal and agreed ones share one graph (toto.txt, section 2)."""

from __future__ import annotations

from itertools import islice
from typing import Any
from unittest.mock import patch

import pytest

import antiphon
from antiphon.core import Gather, GroupId, Process, ProcessId, Topology
from antiphon.core.buffers import Buffers
from antiphon.core.errors import BadFrame, Unavailable, UsageError
from antiphon.core.gather import Gathering
from antiphon.core.inputs import Begin, Multicast
from antiphon.core.model import Message, MessageId
from antiphon.core.requests import encode_request, parse_request, requests_in, with_settled
from antiphon.core.sessions import Session, SessionId, Sessions
from antiphon.protocols import protocols
from antiphon.simulation import MILLISECOND, Outcome, Plan, Scenario, clients, random_scenario, simulate
from antiphon.simulation.campaign import scenarios
from antiphon.simulation.graph import graph_of
from client.fake_cluster import FakeCluster, run

A = (GroupId("a"),)
OFFERING = ("allack", "toto")


# The request ------------------------------------------------------------------------------------------------------


def test_a_request_carries_its_service_and_pays_nothing_for_it() -> None:
    plain, causal = (encode_request("c", 3, 0, (b"x", b"yz"), service) for service in (None, "causal"))
    assert len(plain) == len(causal)
    assert [parse_request(data).service for data in (plain, causal)] == [None, "causal"]
    assert parse_request(causal).count == 2
    assert list(parse_request(causal).payloads()) == [b"x", b"yz"]
    again = parse_request(b"".join(with_settled(causal, 2)))
    assert (again.service, again.digest) == ("causal", parse_request(causal).digest)
    assert parse_request(plain).digest != again.digest


def test_a_service_that_there_is_not_is_refused() -> None:
    data = bytearray(encode_request("c", 0, 0, (b"x",), "causal"))
    data[15] = 3
    with pytest.raises(BadFrame, match="service that there is not"):
        parse_request(bytes(data))


def test_requests_of_different_services_never_share_a_message() -> None:
    gathering = Gathering()
    for client, service in (("x", None), ("y", "causal"), ("z", None), ("x", "causal"), ("x", None)):
        gathering.add(A, parse_request(encode_request(client, 0, 0, (b"",), service)), Gather())
    services = [[request.service for request in requests_in(m.body())] for m in gathering.messages]
    assert services == [[None, None], ["causal", "causal"], [None]]


def toto_process() -> Process:
    process = Process(ProcessId("a.1"), Topology.sized({"a": 3}), protocols()["toto"])
    process.step(Begin(0))
    return process


def test_a_message_of_two_services_is_refused() -> None:
    requests = [encode_request(client, 0, 0, (b"",), service) for client, service in (("x", None), ("y", "causal"))]
    message = Message(MessageId(ProcessId("a.2"), 1), A, 2, Buffers(b"".join(requests)))
    with pytest.raises(BadFrame, match="one service"):
        toto_process().checks.body(message)


# Who offers the choice --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(protocols()) - set(OFFERING)))
def test_who_offers_no_choice_says_who_does(name: str) -> None:
    protocol = protocols()[name]
    protocol.admit_service(None)
    with pytest.raises(UsageError, match=r"cannot ask for causal ones; allack and toto leave the choice\.$"):
        protocol.admit_service("causal")


@pytest.mark.parametrize(("name", "alike"), [("toto", False), ("allack", False), ("transis", False), ("skeen", True)])
def test_where_there_are_causal_messages_each_member_has_its_own_log(name: str, alike: bool) -> None:
    assert Process(ProcessId("a.1"), Topology.sized({"a": 3}), protocols()[name]).alike is alike


def test_those_that_offer_it_are_those_that_are_named() -> None:
    assert tuple(sorted(name for name, kind in protocols().items() if kind.services)) == OFFERING


def test_a_client_says_what_it_wants() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        await client.multicast("a", b"0")
        await client.multicast("a", b"1", service="causal")
        await client.multicast_many("a", [b"2", b"3"], service="agreed")
        with pytest.raises(UsageError, match="agreed or causal, not 'safe'"):
            await client.multicast("a", b"4", service="safe")  # type: ignore[arg-type]
        assert [request.service for request in cluster.requests()] == [None, "causal", "agreed"]
        assert cluster.payloads("a") == [b"0", b"1", b"2", b"3"]

    run({"a": 2}, story)


def test_a_member_refuses_it_before_it_takes_it() -> None:
    process = Process(ProcessId("a.1"), Topology.sized({"a": 3}), protocols()["skeen"])
    with pytest.raises(UsageError, match="allack and toto leave the choice"):
        process.checks.request("c", A, encode_request("c", 0, 0, (b"x",), "causal"))
    assert process.checks.request("c", A, encode_request("c", 0, 0, (b"x",))).service is None


def test_a_refused_call_fails_and_the_next_ones_go_on() -> None:
    async def story(cluster: FakeCluster, client: antiphon.Client) -> None:
        for member in cluster.members.values():
            member.refuses = "usage"
        with pytest.raises(UsageError, match="It says no"):
            await client.multicast("a", b"0", service="causal")
        for member in cluster.members.values():
            member.refuses = ""
        receipt = await client.multicast("a", b"1")
        assert (receipt.number, cluster.payloads("a")) == (0, [b"1"])

    run({"a": 2}, story)


# Delivery ---------------------------------------------------------------------------------------------------------


def steps(outcome: Outcome) -> dict[str, int | None]:
    """Of each message: the most that its deliveries at other machines took."""
    found: dict[str, int | None] = {}
    for row in outcome.rows:
        if row.kind == "deliver" and row.message and not row.message.startswith(row.process):
            found[row.message] = max(found.get(row.message) or 0, row.step or 0)
    return found


@pytest.mark.parametrize("name", OFFERING)
def test_a_causal_message_does_not_wait_for_an_order_but_for_what_it_follows(name: str) -> None:
    plans = (
        Plan("g.1", 0, ("g",), service="causal"),
        Plan("g.1", 50 * MILLISECOND, ("g",)),
        Plan("g.1", 50 * MILLISECOND, ("g",), service="causal"),
    )
    outcome = simulate(Scenario(protocol=name, groups={"g": 4}, plans=plans, steps=True))
    assert outcome.violations == []
    assert steps(outcome) == {"g.1:1": 1, "g.1:2": 2, "g.1:3": 2}  # the last one follows an agreed one
    services = [m["service"] for m in graph_of(outcome)["messages"].values() if m["service"] != "ack"]
    assert services == ["causal", "agreed", "causal"]
    asked = [row.layer for row in outcome.rows if row.kind == "multicast"]
    assert asked == ["causal", None, "causal"]


def test_the_service_comes_through_a_snapshot() -> None:
    process = toto_process()
    process.step(Multicast(1, A, (b"x",)))
    process.step(Multicast(2, A, (b"y",), "causal"))
    held: Any = process.protocol
    assert [node.service for held_back in held.held_back.values() for node in held_back] == ["causal"]
    other = Process(ProcessId("a.1"), Topology.sized({"a": 3}), protocols()["toto"])
    other.restore(process.snapshot())
    again: Any = other.protocol
    assert again.held_back == held.held_back
    assert [again.service_of(node.message) for node in again.held_back[("a.1", 1)]] == ["causal"]


@pytest.mark.parametrize("name", OFFERING)
def test_random_runs_have_both(name: str) -> None:
    runs = [random_scenario(protocols()[name], seed) for seed in range(12)]
    assert {plan.service for run in runs for plan in run.plans} == {None, "causal"}
    assert any(all(plan.service is None for plan in run.plans) for run in runs)


# A retry ----------------------------------------------------------------------------------------------------------


def test_a_member_takes_nothing_behind_what_it_has_yet_to_deliver() -> None:
    """Else a causal message could come where what is settled has not come: a session would begin behind it."""
    request = parse_request(encode_request("c", 4, 2, (b"x",), "causal"))
    session = SessionId("c", A)
    Sessions().check(session, request, 4)
    Sessions({session: Session(next=2)}).check(session, request, 4, mixed=True)
    with pytest.raises(Unavailable, match="not delivered yet"):
        Sessions().check(session, request, 4, mixed=True)


def without_service(data: bytes, settled: int) -> tuple[bytes, bytes]:
    head, rest = with_settled(data, settled)
    return head, bytes(rest[:7]) + b"\0" + bytes(rest[8:])


def first_broken(name: str, seeds: int) -> set[str]:
    runs = (run for run in islice(scenarios(protocols()[name], 0), seeds) if run.through_members)
    for scenario in runs:
        if violations := simulate(scenario).violations:
            return {violation.property for violation in violations}
    return set()


def test_a_client_that_forgets_the_service_at_a_retry_is_caught() -> None:
    """The bytes of a request are for life, so its digest shows it."""
    with patch.object(clients, "with_settled", without_service):
        assert "receipts" in first_broken("toto", 60)
