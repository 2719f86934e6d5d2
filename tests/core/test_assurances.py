"""What a member tells its clients beyond its own journal: when all groups have decided, in the requests' order."""

from __future__ import annotations

import pytest

from antiphon.core import Process, Topology
from antiphon.core.assurances import Assurance, Assurances
from antiphon.core.buffers import Buffers
from antiphon.core.effects import AnyEffect, Assured, Reply
from antiphon.core.errors import BadFrame, UsageError
from antiphon.core.floors import least_number
from antiphon.core.inputs import Begin, Submit, TurnEnd
from antiphon.core.model import GroupId, Message, MessageId, ProcessId
from antiphon.core.requests import Request, encode_request, parse_request
from antiphon.core.sessions import SessionId
from antiphon.protocols import protocols

A = (GroupId("a"),)
SESSION = SessionId("dora", A)


def request(first: int, settled: int = 0) -> Request:
    return parse_request(encode_request("dora", first, settled, [b"x"]))


def told(effects: list[AnyEffect]) -> list[tuple[int, int, tuple[int, ...]]]:
    found = [effect for effect in effects if type(effect) is Assured]
    return [(each.assured, each.timestamp, tuple(r.first for r in each.requests)) for each in found]


def firsts(found: list[Assurance]) -> list[tuple[list[int], int]]:
    return [([request.first for request in each.requests], each.timestamp) for each in found]


def taken(count: int) -> Assurances:
    table = Assurances()
    assert table.when_taken(SESSION, [request(number) for number in range(count)], count, count, 0) == []
    return table


def test_requests_are_assured_in_the_order_in_which_they_were_taken() -> None:
    table = taken(4)
    assert table.reached(SESSION, 4) == 0
    assert firsts(table.when_decided(A, [request(2)], 70)) == []
    assert firsts(table.when_decided(A, [request(0)], 10)) == [([0], 10)]
    assert firsts(table.when_decided(A, [request(0)], 10)) == [], "once is enough"
    assert table.reached(SESSION, 4) == 1
    assert firsts(table.when_decided(A, [request(1)], 20)) == [([1, 2], 70)], "with what had waited for it"
    assert firsts(table.when_delivered(A, [request(3)], 80)) == [([3], 80)]
    assert table.reached(SESSION, 4) == 4
    assert table.waiting == {}
    assert table.latest == 80


def test_what_is_delivered_assures_all_that_came_before_it() -> None:
    table = taken(3)
    assert firsts(table.when_delivered(A, [request(1)], 5)) == [([1], 5)], "a client that lied about what is settled"
    assert table.reached(SESSION, 3) == 2


def alone() -> Process:
    process = Process(ProcessId("a.2"), Topology.sized({"a": 3}), protocols()["primcast"], {"hybrid": "false"})
    process.step(Begin(0))
    return process


def submit(process: Process, *requests: Request) -> list[AnyEffect]:
    effects = process.step(Submit(1, A, Buffers(*[each.data for each in requests])))
    return effects + process.step(TurnEnd(1))


def message(process: Process, number: int) -> Message:
    return next(known.message for id, known in process.protocol.known.items() if id.number == number)  # type: ignore[attr-defined]


def test_a_retry_waits_for_the_same_decision_and_is_answered_at_once_after_it() -> None:
    process = alone()
    effects = submit(process, request(0), request(1))
    assert [type(effect) for effect in effects].count(Reply) == 1
    assert told(effects) == []
    first = message(process, 1)
    assert told(submit(process, request(0))) == []
    process._effects = []
    process.assure(first, 7)
    assert told(process._effects) == [(2, 7, (0, 1))]
    assert told(submit(process, request(0), request(1), request(2))) == [(2, 7, (0, 1))], "the third waits"


def test_nobody_answers_for_what_it_neither_took_nor_delivered() -> None:
    """A client that calls settled what it never sent, and then sends it, is not believed."""
    process = alone()
    submit(process, request(10, settled=10))
    process._effects = []
    process.assure(message(process, 1), 7)
    assert told(process._effects) == [(11, 7, (10,))]
    assert told(submit(process, request(0))) == []
    assert told(submit(process, request(10, settled=10))) == [(11, 7, (10,))]


def test_what_a_client_has_given_up_leaves_nothing_behind() -> None:
    table = taken(2)
    assert firsts(table.when_delivered(A, [request(5)], 5)) == []
    assert table.waiting == {}


def test_what_is_delivered_together_is_assured_together() -> None:
    table = taken(3)
    assert firsts(table.when_delivered(A, [request(0), request(1)], 5)) == [([0, 1], 5)]
    assert table.reached(SESSION, 3) == 2


def test_what_waits_survives_a_snapshot() -> None:
    process = alone()
    submit(process, request(0))
    submit(process, request(1))
    process._effects = []
    process.assure(message(process, 2), 9)
    assert told(process._effects) == []
    again = Process(ProcessId("a.2"), Topology.sized({"a": 3}), protocols()["primcast"], {"hybrid": "false"})
    again.restore(process.snapshot())
    again._effects = []
    again.assure(message(again, 1), 4)
    assert told(again._effects) == [(2, 9, (0, 1))]


def test_a_copy_that_another_member_multicast_assures_when_it_is_delivered() -> None:
    process = alone()
    submit(process, request(0))
    copy = Message(MessageId(ProcessId("a.3"), 1), A, 1, Buffers(request(0).data))
    process._effects = []
    process.deliver(copy, (12, *copy.id))
    assert told(process._effects) == [(1, 12, (0,))]
    assert told(submit(process, request(0, settled=0))) == [(1, 12, (0,))]


def test_other_protocols_assure_nobody() -> None:
    process = Process(ProcessId("a.1"), Topology.sized({"a": 1}), protocols()["skeen"])
    process.step(Begin(0))
    effects = submit(process, request(0))
    assert told(effects) == []
    assert process.state.assurances == Assurances()


# Turns and floors ---------------------------------------------------------------------------------------------------


def test_a_turn_and_its_floor_are_among_the_bytes_that_a_request_keeps() -> None:
    plain, turned = request(3), parse_request(encode_request("dora", 3, 0, [b"x"], None, 41, 2))
    assert (plain.floor, plain.turn, turned.floor, turned.turn) == (0, 0, 41, 2)
    assert list(plain.payloads()) == list(turned.payloads()) == [b"x"]
    assert len(turned.data) == len(plain.data) + 16
    assert turned.digest != plain.digest
    assert not turned.goes_on(request(2))


def test_the_greatest_floor_of_its_requests_is_that_of_a_message() -> None:
    floors = [encode_request(f"c{floor}", 0, 0, [b"x"], None, floor, 1) for floor in (5, 90, 7)]
    m = Message(MessageId(ProcessId("a.1"), 1), A, 3, Buffers(*floors))
    assert least_number(m) == 90
    assert least_number(Message(m.id, A, 1, Buffers(request(0).data))) == 0
    process = alone()
    process.protocol.tick(m, 0)  # type: ignore[attr-defined]
    assert process.protocol.clock == 90  # type: ignore[attr-defined]


def test_protocols_that_do_not_heed_floors_take_no_turns() -> None:
    process = Process(ProcessId("a.1"), Topology.sized({"a": 1}), protocols()["skeen"])
    turned = encode_request("dora", 0, 0, [b"x"], None, 9, 1)
    with pytest.raises(UsageError, match="clients do not count turns with it"):
        process.checks.request("dora", A, turned)
    with pytest.raises(BadFrame, match="clients do not count turns with it"):
        process.checks.body(Message(MessageId(ProcessId("a.1"), 1), A, 1, Buffers(turned)))


def test_a_floor_that_no_cluster_can_have_given_is_refused() -> None:
    """Else one client could take the clocks of all groups to the end of their range, for good."""
    process, now_us = alone(), 1_800_000_000_000_000

    def check(floor: int) -> Request:
        data = encode_request("dora", 0, 0, [b"x"], None, floor, 1)
        return process.checks.request("dora", A, data, at=now_us * 1000)

    assert check(now_us + 60_000_000).floor == now_us + 60_000_000, "clocks may be apart"
    with pytest.raises(UsageError, match="cannot have given it"):
        check(now_us + 2 * 3_600_000_000)
    process.protocol.clock = now_us + 2 * 3_600_000_000  # type: ignore[attr-defined]
    assert check(now_us + 2 * 3_600_000_000 + 1).turn == 1, "here it has"


def test_requests_of_several_turns_have_an_answer_each() -> None:
    process = alone()
    requests = [parse_request(encode_request("dora", n, 0, [b"x"], None, n, n)) for n in range(3)]
    replies = [effect for effect in submit(process, *requests) if type(effect) is Reply]
    assert [(reply.taken, reply.fresh, [r.turn for r in reply.requests]) for reply in replies] == [
        (3, 1, [0]),
        (3, 1, [1]),
        (3, 1, [2]),
    ]
