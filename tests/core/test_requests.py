"""A client's request as bytes: what is made comes back, and everything else is refused before it is journaled."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core import Buffers, Message, MessageId, Process, ProcessId, Topology
from antiphon.core.errors import BadFrame, UsageError
from antiphon.core.requests import (
    NUMBER_MAX,
    PAYLOAD_BYTES_MAX,
    PAYLOADS_MAX,
    check_payloads,
    encode_request,
    parse_request,
    requests_in,
    with_settled,
)
from antiphon.core.sessions import OutOfTurn
from antiphon.protocols.skeen import Skeen

CLIENTS = st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True)
PAYLOADS = st.lists(st.binary(max_size=12), min_size=1, max_size=6)
SETTLED_AND_FIRST = st.tuples(st.integers(0, NUMBER_MAX), st.integers(0, NUMBER_MAX)).map(sorted)
SIZE_AT, COUNT_AT, FIRST_AT, NAME_LENGTH_AT, NAME_AT = 8, 12, 16, 24, 25  # the picture in core/requests.py


@given(CLIENTS, SETTLED_AND_FIRST, PAYLOADS, st.binary(max_size=5), st.integers(0, 7))
def test_a_request_comes_back_as_it_was(
    client: str, numbers: list[int], payloads: list[bytes], before: bytes, start: int
) -> None:
    settled, first = numbers
    data = encode_request(client, first, settled, payloads)
    request = parse_request(before + data, len(before))
    assert (request.client, request.first, request.settled) == (client, first, settled)
    assert (request.count, request.end) == (len(payloads), first + len(payloads))
    assert list(request.payloads()) == payloads
    assert list(request.payloads(start)) == payloads[start:]
    assert bytes(request.data) == data
    assert check_payloads(payloads) == sum(map(len, payloads))


@given(CLIENTS, SETTLED_AND_FIRST, PAYLOADS, st.data())
def test_any_cut_and_any_other_count_is_refused(
    client: str, numbers: list[int], payloads: list[bytes], draw: st.DataObject
) -> None:
    data = encode_request(client, numbers[1], numbers[0], payloads)
    with pytest.raises(BadFrame):
        parse_request(data[: draw.draw(st.integers(0, len(data) - 1))])
    count = draw.draw(st.integers(0, 2**32 - 1).filter(lambda n: n != len(payloads)))
    with pytest.raises(BadFrame):
        parse_request(data[:COUNT_AT] + struct.pack("<I", count) + data[COUNT_AT + 4 :])
    (size,) = struct.unpack_from("<I", data, SIZE_AT)
    wrong = draw.draw(st.integers(0, 2**32 - 1).filter(lambda n: n != size))
    with pytest.raises(BadFrame):
        parse_request(data[:SIZE_AT] + struct.pack("<I", wrong) + data[SIZE_AT + 4 :])


@given(PAYLOADS, st.data())
def test_a_length_that_does_not_fit_is_refused(payloads: list[bytes], draw: st.DataObject) -> None:
    data = encode_request("c", 0, 0, payloads)
    index = draw.draw(st.integers(0, len(payloads) - 1))
    length = draw.draw(st.integers(0, 2**32 - 1).filter(lambda n: n != len(payloads[index])))
    at = NAME_AT + 1 + 4 * index
    with pytest.raises(BadFrame):
        parse_request(data[:at] + struct.pack("<I", length) + data[at + 4 :])


@given(st.lists(st.tuples(CLIENTS, PAYLOADS), max_size=5), st.data())
def test_a_body_is_a_row_of_requests_however_it_is_cut_into_pieces(
    made: list[tuple[str, list[bytes]]], draw: st.DataObject
) -> None:
    rows = [encode_request(client, 0, 0, payloads) for client, payloads in made]
    cut = draw.draw(st.integers(0, len(rows)))
    found = requests_in(Buffers(b"".join(rows[:cut]), *rows[cut:]))
    assert [(request.client, list(request.payloads())) for request in found] == made
    if rows:
        with pytest.raises(BadFrame):
            requests_in(Buffers(b"".join(rows) + b"x"))


def forged(name: bytes = b"c", first: int = 0, settled: int = 0, payloads: tuple[bytes, ...] = (b"x",)) -> bytes:
    """A request whose parts fit together, whatever they are."""
    data = encode_request("c", first, settled, payloads)
    size = len(data) - COUNT_AT + len(name) - 1
    return b"".join(
        (
            data[:SIZE_AT],
            struct.pack("<I", size),
            data[COUNT_AT:NAME_LENGTH_AT],
            bytes([len(name)]),
            name,
            data[NAME_AT + 1 :],
        )
    )


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (forged(name=b""), "client's name"),
        (forged(name=b"me too"), "client's name"),
        (forged(name=b"c@orders.1"), "client's name"),
        (forged(name="ß".encode()), "client's name"),
        (forged(name=b"x" * 65), "client's name"),
        (forged(first=NUMBER_MAX + 1), "out of range"),
        (forged(first=3, settled=4), "calls itself settled"),
        (forged(payloads=()), "1 to 65536 payloads"),
        (forged(payloads=(b"",) * (PAYLOADS_MAX + 1)), "1 to 65536 payloads"),
        (forged(payloads=(bytes(PAYLOAD_BYTES_MAX + 1),)), "at most 1048576 bytes"),
        (forged(payloads=(bytes(PAYLOAD_BYTES_MAX + 1), b"")), "at most 1048576 bytes"),
        (forged(payloads=(bytes(PAYLOAD_BYTES_MAX),) * 5), "or may have"),
    ],
)
def test_a_request_that_no_client_of_ours_makes_is_refused(data: bytes, sentence: str) -> None:
    assert list(parse_request(forged()).payloads()) == [b"x"]
    with pytest.raises(BadFrame, match=sentence):
        parse_request(data)


@pytest.mark.parametrize(
    ("payloads", "sentence"),
    [
        ([], "at least one payload"),
        (["text"], "bytes, not str"),
        ([None], "bytes, not NoneType"),
        ([b"x", bytes(PAYLOAD_BYTES_MAX + 1)], "at most 1048576 bytes"),
        ([b""] * (PAYLOADS_MAX + 1), "at most 65536 payloads"),
        ([bytes(PAYLOAD_BYTES_MAX)] * 4, "at most 4194304 bytes"),
    ],
)
def test_a_caller_is_told_what_is_wrong_with_a_batch(payloads: list[bytes], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        check_payloads(payloads)


def test_what_is_settled_may_change_but_the_request_keeps_its_bytes() -> None:
    data = encode_request("c", 7, 0, [b"one", b"two"])
    again = b"".join(with_settled(data, 5))
    assert parse_request(again).settled == 5
    assert parse_request(again).digest == parse_request(data).digest
    assert parse_request(encode_request("c", 7, 0, [b"two", b"one"])).digest != parse_request(data).digest
    assert parse_request(encode_request("c", 7, 0, [b"on", b"etwo"])).digest != parse_request(data).digest
    assert parse_request(encode_request("c", 8, 0, [b"one", b"two"])).digest != parse_request(data).digest


# At a member, before anything is journaled ------------------------------------------------------------------------

TOPOLOGY = Topology.sized({"a": 2, "b": 1})


@pytest.mark.parametrize(
    ("client", "groups", "data", "error", "sentence"),
    [
        ("me", ["b"], encode_request("me", 0, 0, [b""]), UsageError, "in none of the destination groups"),
        ("me", [], encode_request("me", 0, 0, [b""]), UsageError, "at least one destination"),
        ("me", ["zebra"], encode_request("me", 0, 0, [b""]), UsageError, "no group 'zebra'"),
        ("me", ["a"], encode_request("me", 0, 0, [b""]) + b"x", BadFrame, "longer than it says"),
        ("me", ["a"], encode_request("you", 0, 0, [b""]), BadFrame, "of another client"),
        ("me", ["a"], encode_request("me", 0, 0, [b""])[:-1], BadFrame, "more bytes than it has"),
        ("me", ["a"], encode_request("me", 1, 0, [b""]), OutOfTurn, "from number 0 on"),
    ],
)
def test_a_bad_request_is_refused_in_a_sentence(client, groups, data, error, sentence: str) -> None:
    process = Process(ProcessId("a.1"), TOPOLOGY, Skeen)
    before = process.snapshot()
    with pytest.raises(error, match=sentence):
        process.checks.request(client, process.checks.destinations(groups), data)
    assert process.snapshot() == before
    assert process.checks.request("me", process.checks.destinations(["a"]), encode_request("me", 0, 0, [b""])).end == 1


def test_requests_that_came_together_follow_one_another() -> None:
    process = Process(ProcessId("a.1"), TOPOLOGY, Skeen)
    groups = process.checks.destinations(["a"])
    first = process.checks.request("me", groups, encode_request("me", 0, 0, [b"x"] * 3))
    assert process.checks.request("me", groups, encode_request("me", 3, 0, [b"x"]), first).end == 4
    assert process.checks.request("me", groups, encode_request("me", 3, 2, [b"x"]), first).end == 4
    with pytest.raises(OutOfTurn, match="from number 3 on"):
        process.checks.request("me", groups, encode_request("me", 4, 0, [b"x"]), first)
    with pytest.raises(BadFrame, match="of another client"):
        process.checks.request("me", groups, encode_request("you", 3, 0, [b"x"]), first)
    with pytest.raises(UsageError, match="cannot ask for causal"):
        process.checks.request("me", groups, encode_request("me", 3, 0, [b"x"], "causal"), first)


def test_a_message_whose_count_does_not_fit_its_body_is_refused_from_a_peer() -> None:
    process = Process(ProcessId("a.1"), TOPOLOGY, Skeen)
    body = Buffers(encode_request("c", 0, 0, [b"x", b"y"]))
    id = MessageId(ProcessId("b.1"), 1)
    process.checks.body(Message(id, TOPOLOGY.destinations(["a"]), 2, body))
    for count, wrong in ((3, body), (1, body), (0, Buffers())):
        with pytest.raises(BadFrame, match="as many as it says"):
            process.checks.body(Message(id, TOPOLOGY.destinations(["a"]), count, wrong))
    with pytest.raises(BadFrame, match="no such set"):
        process.checks.body(Message(id, ("b", "a"), 2, body))


def test_a_payload_is_measured_in_bytes_not_items() -> None:
    wide = memoryview(bytes(PAYLOAD_BYTES_MAX + 8)).cast("Q")
    assert len(wide) < PAYLOAD_BYTES_MAX
    with pytest.raises(UsageError, match="at most"):
        check_payloads([wide])
