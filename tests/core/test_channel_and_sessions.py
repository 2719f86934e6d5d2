"""Numbers that make repeats harmless: on channels, and for clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core import sessions
from antiphon.core.channel import Inbox, Outbox
from antiphon.core.sessions import Sessions


@given(st.permutations(range(1, 12)))
def test_an_inbox_takes_every_number_once_in_any_order(numbers: list[int]) -> None:
    inbox = Inbox()
    for number in numbers:
        assert inbox.is_new(number)
        inbox.take(number)
        assert not inbox.is_new(number)
    assert (inbox.received, inbox.early) == (11, set())


def test_an_outbox_keeps_what_is_not_acknowledged() -> None:
    outbox = Outbox()
    assert [outbox.push(frame) for frame in (b"a", b"bb", b"ccc")] == [1, 2, 3]
    outbox.acknowledge(2)
    outbox.acknowledge(1)  # an old acknowledgement says nothing new
    assert (outbox.frames, outbox.size, outbox.acknowledged) == ({3: b"ccc"}, 3, 2)
    with pytest.raises(AssertionError):
        outbox.acknowledge(4)


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), max_size=60))
def test_the_first_copy_is_delivered_and_no_other(copies: list[tuple[int, int]]) -> None:
    """Against a memory that forgets nothing. A client's mark is never above a number not yet delivered."""
    table, delivered = Sessions(), set()
    for number, wish in copies:
        lowest_missing = next(n for n in range(1, 10) if n not in delivered)
        settled = min(wish, lowest_missing, number)
        assert table.admit("c", number, settled) == (number not in delivered)
        delivered.add(number)
        assert set(table.delivered("c", 1, 100)) == delivered


def test_a_member_multicasts_a_request_once_while_it_is_under_way() -> None:
    table = Sessions()
    assert table.accept("c", 1)
    assert not table.accept("c", 1)
    assert table.admit("c", 1, 0)
    assert not table.accept("c", 1)
    assert table.accepted == {}


def test_the_numbers_below_the_mark_are_forgotten_and_still_refused() -> None:
    table = Sessions()
    for number in range(1, 100):
        assert table.admit("c", number, number)
    assert len(table.seen["c"].delivered) == 1
    assert not table.admit("c", 5, 1)


def test_the_client_not_heard_of_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "CLIENTS_MAX", 2)
    table = Sessions()
    for client in ("a", "b", "a", "c"):
        table.admit(client, 1, 0)
    assert list(table.seen) == ["a", "c"]
