"""Numbers that make repeats harmless: on channels, and for clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core import Buffers, GroupId, sessions
from antiphon.core.channel import FrameInbox, Inbox, Outbox
from antiphon.core.errors import Unavailable
from antiphon.core.requests import Request, encode_request, parse_request
from antiphon.core.sessions import Mark, OutOfTurn, SessionId, Sessions

# Channels -----------------------------------------------------------------------------------------------------------


@given(st.permutations(range(1, 12)))
def test_an_inbox_takes_every_number_once_in_any_order(numbers: list[int]) -> None:
    inbox = Inbox()
    for number in numbers:
        assert inbox.is_new(number)
        inbox.take(number)
        assert not inbox.is_new(number)
    assert (inbox.received, inbox.early) == (11, set())


def outbox(*frames: bytes) -> Outbox:
    box = Outbox()
    for number, frame in enumerate(frames, 1):
        box.push(number, Buffers(frame))
    return box


def test_an_outbox_keeps_what_is_not_acknowledged() -> None:
    box = outbox(b"a", b"bb", b"ccc")
    box.acknowledge(2)
    box.acknowledge(1)  # an old acknowledgement says nothing new
    assert (list(box.frames_from(1)), box.size, box.acknowledged) == ([(3, Buffers(b"ccc"))], 3, 2)
    with pytest.raises(AssertionError):
        box.acknowledge(4)
    with pytest.raises(AssertionError):
        box.push(5, Buffers(b"e"))


def test_what_is_on_disk_is_let_go_and_not_taken_for_acknowledged() -> None:
    box = outbox(b"a", b"bb", b"ccc", b"dddd")
    box.let_go(2)
    assert (box.acknowledged, box.first_kept, box.size) == (0, 3, 7)
    assert [number for number, _ in box.frames_from(1)] == [3, 4]
    assert [number for number, _ in box.frames_from(4)] == [4]
    box.acknowledge(1)
    assert (box.acknowledged, box.first_kept) == (1, 3)
    box.acknowledge(3)
    assert (box.acknowledged, box.first_kept, box.size) == (3, 4, 4)


@given(st.permutations(range(1, 8)), st.integers(0, 7))
def test_both_ends_of_a_channel_come_to_the_same_digest(numbers: list[int], let_go: int) -> None:
    frames = [b"%d" % number for number in range(1, 8)]
    box, inbox = outbox(*frames), FrameInbox()
    box.let_go(let_go)
    seen = {0: 0}
    for number in numbers:
        inbox.take_frame(number, Buffers(frames[number - 1][:1], frames[number - 1][1:]))
        seen[inbox.received] = inbox.digest
    assert not inbox.early_checksums
    for received, digest in seen.items():
        assert box.digest_up_to(received) == (digest if received >= let_go else None)
    assert outbox(*reversed(frames)).digest_up_to(7) != seen[7]


# Sessions -----------------------------------------------------------------------------------------------------------

SESSION = SessionId("c", (GroupId("a"),))


def request(first: int, count: int = 1, settled: int = 0) -> Request:
    payloads = [f"{first + k}".encode() for k in range(count)]
    return parse_request(encode_request("c", first, settled, payloads))


def admitted(table: Sessions, wanted: Request, *, ordered: bool = True) -> list[tuple[int, int]]:
    return [(each.first, each.end) for each in table.admit(SESSION, wanted, ordered=ordered)]


@st.composite
def copies_of_a_session(draw: st.DrawFn) -> list[Request]:
    """A client's requests, each at least once, in any order: what two members make of its retries."""
    requests, first = [], 0
    for count in draw(st.lists(st.integers(1, 4), min_size=1, max_size=8)):
        requests.append(request(first, count))
        first += count
    repeats = draw(st.lists(st.sampled_from(requests), max_size=8))
    return draw(st.permutations([*requests, *repeats]))


@given(copies_of_a_session(), st.booleans())
def test_requests_are_admitted_once_and_in_order_however_they_come(copies: list[Request], ordered: bool) -> None:
    table = Sessions()
    log: list[Request] = []
    for copy in copies:
        log += table.admit(SESSION, copy, ordered=ordered)
    assert [(each.first, each.end) for each in log] == sorted({(each.first, each.end) for each in copies})
    assert all(bytes(each.data) == bytes(request(each.first, each.count).data) for each in log)
    assert table.known[SESSION].waiting == {}
    assert table.progress(SESSION) == max(each.end for each in copies)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 5)), max_size=30))
def test_the_ranges_of_a_dishonest_client_never_overlap_in_the_log(ranges: list[tuple[int, int]]) -> None:
    table = Sessions()
    end = 0
    for first, count in ranges:
        for each in table.admit(SESSION, request(first, count), ordered=True):
            assert each.first == end, "no hole and no repeat"
            end = each.end
        assert all(waits > end for waits in table.known[SESSION].waiting), "nothing is kept that can never come"


def test_a_request_waits_for_its_predecessor_and_comes_right_behind_it() -> None:
    table = Sessions()
    assert admitted(table, request(5, 2)) == []
    assert admitted(table, request(2, 3)) == []
    assert admitted(table, request(0, 2)) == [(0, 2), (2, 5), (5, 7)]
    assert admitted(table, request(2, 3)) == []


def test_a_session_that_is_not_known_begins_where_the_client_is_sure() -> None:
    """With one order, what is settled was delivered before; without, it may be what comes next."""
    assert admitted(Sessions(), request(7, 1, settled=7)) == [(7, 8)]
    assert admitted(Sessions(), request(7, 1, settled=6)) == []
    assert admitted(Sessions(), request(7, 1, settled=7), ordered=False) == []


def test_with_views_nothing_waits_for_what_was_delivered_on_another_side() -> None:
    table = Sessions()

    def got(wanted: Request) -> list[tuple[int, int]]:
        return [(each.first, each.end) for each in table.admit(SESSION, wanted, ordered=False, with_views=True)]

    assert got(request(3, 2)) == [(3, 5)]  # this member was not there before
    assert got(request(9)) == [(9, 10)]  # nor when 5 to 8 were delivered
    assert got(request(5, 4)) == []  # too late: a client's numbers grow
    table.check(SESSION, request(12, settled=12), with_views=True)  # what is left out may be under way, or not
    assert table.take(SESSION, request(12, settled=12)) == (13, True)
    with pytest.raises(Unavailable):
        table.check(SESSION, request(13, settled=12))


def test_behind_a_gap_nothing_waits_for_what_was_lost_in_it() -> None:
    table = Sessions()
    assert admitted(table, request(0), ordered=False) == [(0, 1)]
    for early in (3, 5):
        assert admitted(table, request(early), ordered=False) == []
    table.begin_gap()
    assert admitted(table, request(8), ordered=False) == [(3, 4), (5, 6), (8, 9)]
    assert admitted(table, request(4), ordered=False) == [], "too late"
    assert admitted(table, request(10), ordered=False) == [], "nothing more was lost: number 9 is still to come"
    assert admitted(table, request(9), ordered=False) == [(9, 10), (10, 11)]


def test_behind_a_gap_a_member_has_sent_again_what_it_took() -> None:
    table = Sessions()
    assert take(table, request(0))
    assert take(table, request(1))
    table.begin_gap()
    with pytest.raises(OutOfTurn) as refused:
        table.check(SESSION, request(2))
    assert refused.value.expected == 0
    assert admitted(table, request(0), ordered=False) == [(0, 1)]
    with pytest.raises(Unavailable):
        table.check(SESSION, request(3, settled=3))
    table.begin_gap()
    table.check(SESSION, request(3, settled=3))  # what is settled was delivered elsewhere, and is lost here


@given(copies_of_a_session(), st.integers(0, 16), st.integers(0, 300))
def test_who_takes_over_where_clients_are_admits_what_the_other_admits(
    copies: list[Request], away: int, others: int
) -> None:
    table, entering = Sessions(), Sessions()
    for number in range(others):
        table.admit(SessionId(f"other{number}", SESSION.destinations), request(0), ordered=True)
    for copy in copies[:away]:
        table.admit(SESSION, copy, ordered=True)
    assert take(entering, request(0, 2)), "while it is away"
    pieces = table.standing()
    assert all(len(piece.delivered) <= sessions.STANDING_MAX for piece in pieces)
    assert pieces
    entering.adopt(pieces)
    assert (entering.known, list(entering.known)) == (table.known, list(table.known))
    assert entering.taken == ({SESSION: 2} if table.progress(SESSION) < 2 else {})
    for copy in copies[away:]:
        assert admitted(entering, copy) == admitted(table, copy)


def released(table: Sessions, heard: int = 0) -> list[int]:
    return [each.first for each in table.release(SESSION, heard)]


def test_with_views_a_request_waits_while_an_earlier_number_may_still_come() -> None:
    table = Sessions()
    assert not table.must_wait(SESSION, request(0))
    assert table.must_wait(SESSION, request(4)), "whatever is settled, nobody has brought what comes before it"
    table.hands_on(SESSION, request(0, 4))
    assert not table.must_wait(SESSION, request(4)), "it follows what this member has handed on itself"
    table.begin_view()
    assert table.must_wait(SESSION, request(4)), "in another view"
    table.admit(SESSION, request(0, 4), ordered=False, with_views=True)
    assert not table.must_wait(SESSION, request(4)), "it follows what came to all"


def test_with_views_what_is_held_goes_in_order_up_to_the_next_hole() -> None:
    table = Sessions()
    for each in (request(6), request(5), request(9)):
        table.hold(SESSION, each)
    assert table.must_wait(SESSION, request(10)), "behind these"
    assert released(table, heard=4) == []
    assert released(table, heard=5) == [5, 6]
    assert table.mark(SESSION) == Mark(*SESSION, 9)
    table.admit(SESSION, request(8), ordered=False, with_views=True)
    assert released(table) == [9], "what comes before it came"
    assert table.mark(SESSION) is None


def test_with_views_nothing_below_a_mark_is_taken_but_what_was_under_way_is_admitted() -> None:
    table = Sessions()
    for each in (request(2), request(7)):
        table.hold(SESSION, each)
    table.hear(Mark(*SESSION, 5))
    assert table.expected(SESSION, 0) == 5
    assert table.mark(SESSION) == Mark(*SESSION, 7)
    assert [each.first for each in table.admit(SESSION, request(2), ordered=False, with_views=True)] == [2]
    table.begin_view()
    assert released(table) == []
    table.hold(SESSION, request(5))
    assert released(table) == [5], "all who are in the next view have heard of it"


def test_where_sides_meet_the_least_is_common() -> None:
    table = Sessions()
    group = SESSION.destinations[0]
    table.admit(SESSION, request(0, 7), ordered=False, with_views=True)
    assert table.marks() == [Mark(*SESSION, 7)]
    for number in (7, 3):
        table.meet(Mark(*SESSION, number))
    table.met({group: 2})
    assert table.must_wait(SESSION, request(7))
    assert not table.must_wait(SESSION, request(3))
    table.meet(Mark(*SESSION, 7))
    table.met({group: 2})
    assert table.must_wait(SESSION, request(3)), "who said nothing of the client is at 0"


def take(table: Sessions, wanted: Request) -> bool:
    table.check(SESSION, wanted)
    return table.take(SESSION, wanted)[1]


def test_a_member_takes_a_request_only_behind_its_predecessor() -> None:
    table = Sessions()
    with pytest.raises(OutOfTurn) as refused:
        take(table, request(2))
    assert refused.value.expected == 0
    assert take(table, request(0, 2))
    assert not take(table, request(0, 2)), "it is under way"
    assert take(table, request(2))
    assert table.expected(SESSION, 0) == 3
    with pytest.raises(OutOfTurn):
        take(table, request(2, 4))  # another range over the same numbers
    assert take(table, request(9, 1, settled=9)), "what is settled need not have come through this member"


def test_what_was_delivered_through_another_member_is_not_multicast_again() -> None:
    table = Sessions()
    assert admitted(table, request(0, 2)) == [(0, 2)]
    assert not take(table, request(0, 2))
    assert take(table, request(2))
    assert table.taken == {SESSION: 3}
    assert admitted(table, request(2)) == [(2, 3)]
    assert table.taken == {}, "what is delivered says it all"


def test_sets_of_groups_and_clients_are_numbered_apart() -> None:
    table = Sessions()
    other_set = SessionId("c", (GroupId("a"), GroupId("b")))
    assert admitted(table, request(0)) == [(0, 1)]
    assert [each.first for each in table.admit(other_set, request(0), ordered=True)] == [0]
    assert (table.progress(SESSION), table.progress(other_set)) == (1, 1)
    assert table.progress(SessionId("d", SESSION.destinations)) == 0


def test_a_session_with_requests_that_wait_is_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
    table = Sessions()
    assert admitted(table, request(1)) == []
    for number in range(9):
        assert table.admit(SessionId(f"other{number}", SESSION.destinations), request(0), ordered=True)
    assert len(table.known) == 3
    assert admitted(table, request(0)) == [(0, 1), (1, 2)]


def test_the_session_not_heard_of_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
    table = Sessions()
    ids = {name: SessionId(name, (GroupId("a"),)) for name in "abc"}
    for number, name in ((0, "a"), (0, "b"), (1, "a"), (0, "c")):
        table.admit(ids[name], request(number), ordered=True)
    assert list(table.known) == [ids["a"], ids["c"]]
    for name in "abc":
        table.admit(ids[name], request(7), ordered=False)
    assert len(table.known) == 3, "without one order, nobody can know when to begin again"


def test_a_lie_about_what_is_settled_is_refused_and_harms_only_the_liar() -> None:
    table = Sessions()
    assert admitted(table, request(0)) == [(0, 1)]
    with pytest.raises(Unavailable, match="has not delivered yet"):
        table.check(SESSION, request(1000, settled=1000))
    # Through a member that did not know better, it comes all the same: nothing waits for ever.
    assert admitted(table, request(3)) == []
    assert admitted(table, request(1000, settled=1000)) == [(1000, 1001)]
    assert table.known[SESSION].waiting == {}
    assert admitted(table, request(1)) == []
