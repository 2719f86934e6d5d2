"""What goes into one message: all that a turn brought for one set of groups, as far as a client's order allows it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core import Gather, GroupId
from antiphon.core.gather import Gathered, Gathering
from antiphon.core.requests import Request

A, B, AB = (GroupId("a"),), (GroupId("b"),), (GroupId("a"), GroupId("b"))
Handed = tuple[str, tuple[GroupId, ...]]


def gathered(handed: list[Handed], limit: Gather, kind: type[Gathering] = Gathering) -> list[Gathered]:
    """Requests of ten bytes and two payloads; each says who handed it over, and as its how-manieth."""
    gathering = kind()
    for index, (client, groups) in enumerate(handed):
        request = Request(client, 2 * index, 2, 0, f"{client}{index:09}".encode(), 0)
        gathering.add(groups, request, limit)
    return gathering.messages


def drawn(messages: list[Gathered]) -> list[tuple[str, str]]:
    """Each message as the names of its groups and of the clients in it."""
    return [("".join(m.destinations), "".join(bytes(data)[:1].decode() for data in m.requests)) for m in messages]


def test_one_set_is_one_message_from_all_clients() -> None:
    messages = gathered([("x", A), ("y", A), ("x", A), ("z", B)], Gather())
    assert drawn(messages) == [("a", "xyx"), ("b", "z")]
    assert [(m.count, m.size) for m in messages] == [(6, 30), (2, 10)]


def test_a_request_joins_unless_its_client_has_sent_to_another_set_since() -> None:
    assert drawn(gathered([("x", A), ("y", B), ("x", B), ("x", A)], Gather())) == [("a", "x"), ("b", "yx"), ("a", "x")]
    # y has sent to no other set since: it joins the newest message to a.
    handed = [("x", A), ("x", B), ("x", A), ("y", A)]
    assert drawn(gathered(handed, Gather())) == [("a", "x"), ("b", "x"), ("a", "xy")]
    assert drawn(gathered([("x", A), ("x", AB), ("y", A), ("x", AB)], Gather())) == [("a", "xy"), ("ab", "xx")]


def test_stated_limits_of_count_and_bytes() -> None:
    five = [("x", A)] * 5
    assert drawn(gathered(five, Gather(requests=2))) == [("a", "xx"), ("a", "xx"), ("a", "x")]
    assert drawn(gathered(five, Gather(bytes=30))) == [("a", "xxx"), ("a", "xx")]
    assert drawn(gathered(five, Gather(bytes=29))) == [("a", "xx"), ("a", "xx"), ("a", "x")]
    assert drawn(gathered(five[:2], Gather(bytes=1))) == [("a", "x"), ("a", "x")], "a request is never cut"


def test_gathering_can_be_off() -> None:
    handed = [("x", A), ("y", A), ("x", B)]
    assert drawn(gathered(handed, Gather(requests=1))) == [("a", "x"), ("a", "y"), ("b", "x")]


HANDED = st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from([A, B, AB])), max_size=20)
LIMITS = st.builds(Gather, requests=st.integers(1, 4), bytes=st.sampled_from([1, 25, 1000])) | st.just(Gather())


def assert_keeps_every_clients_order(handed: list[Handed], limit: Gather, kind: type[Gathering] = Gathering) -> None:
    messages = gathered(handed, limit, kind)
    multicast = [(m.destinations, bytes(data).decode()) for m in messages for data in m.requests]
    for client in "xyz":
        expected = [(groups, f"{c}{index:09}") for index, (c, groups) in enumerate(handed) if c == client]
        assert [each for each in multicast if each[1].startswith(client)] == expected
    assert len(multicast) == len(handed)


@given(HANDED, LIMITS)
def test_what_one_client_hands_over_is_multicast_in_that_order_across_sets_too(
    handed: list[Handed], limit: Gather
) -> None:
    assert_keeps_every_clients_order(handed, limit)
    for message in gathered(handed, limit):
        assert len(message.requests) <= limit.requests
        assert message.size <= limit.bytes or len(message.requests) == 1


class JoinsRegardless(Gathering):
    """A mutant: joins its set's open message although its client has sent to another set since."""

    def add(self, destinations: tuple[GroupId, ...], request: Request, limit: Gather) -> None:
        self.newest.clear()
        super().add(destinations, request, limit)


def test_joining_regardless_of_another_set_is_caught() -> None:
    with pytest.raises(AssertionError):
        assert_keeps_every_clients_order([("x", A), ("x", B), ("x", A)], Gather(), JoinsRegardless)


def test_what_a_client_has_handed_over_can_be_left_out_again() -> None:
    gathering = Gathering()
    for index, (client, groups) in enumerate([("x", A), ("y", A), ("x", B), ("x", A)]):
        request = Request(client, 2 * index, 2, 0, f"{client}{index:09}".encode(), 0)
        gathering.add(groups, request, Gather())
    gathering.drop("x", A, 6)
    assert drawn(gathering.messages) == [("a", "y"), ("b", "x"), ("a", "x")]
    gathering.drop("x", A, 7)
    assert [(m.count, m.size) for m in gathering.messages] == [(2, 10), (2, 10), (0, 0)]
