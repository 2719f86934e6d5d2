"""The search through all states of a small world: what it must find, and that its reduction hides nothing."""

from __future__ import annotations

import pytest

from antiphon.core import (
    MessageId,
    OrderingProtocol,
    Promise,
)
from antiphon.protocols import protocol_named
from antiphon.protocols.tom import Tom
from antiphon.simulation.search import MoveKind, Scope, explore
from antiphon.simulation.search.search import Search
from antiphon.simulation.search.states import StateTable
from mutants import realtime, tom
from mutants.parts import CtRotatesAmongAMajority, EagerDoesNotForward, over_consensus, over_reliable
from mutants.scopes import (
    AB,
    CANNOT_SHOW,
    INSIDE,
    MEMBERS,
    OUTSIDE,
    SEARCHED,
    THREE,
    TWOS,
    UNEQUAL,
    A,
    assert_replays,
    mutant_scopes,
    ones,
    replaced,
    search,
)


@pytest.mark.parametrize(("protocol", "mutant"), SEARCHED, ids=lambda value: getattr(value, "__name__", value))
def test_every_mutant_is_found_that_can_show(protocol: str, mutant: type[OrderingProtocol]) -> None:
    if mutant in CANNOT_SHOW:
        assert explore(mutant_scopes(protocol)["ones"], mutant).complete
        return
    shown = search(protocol, mutant)
    assert shown is not None, f"{mutant.__name__} shows in none of the scopes"
    assert_replays(shown[1], mutant)


PRIMCAST = ones("primcast", options={"hybrid": "false"}, late_timers=True)  # what it tries again it tries for ever


# What is multicast only after a delivery -----------------------------------------------------------------------------

# d:1 puts the clock of a ahead. e:1 is multicast when anybody has delivered c:1.
REAL_TIME = replaced(
    PRIMCAST,
    options={"hybrid": "false", "order": "realtime"},
    plans=(("d", A), ("c", AB), ("e", ("b",))),
    after=((2, 1),),
)
BY_A_THIRD_GROUP = replaced(
    REAL_TIME,
    groups={"a": 1, "b": 1, "k": 1},
    plans=(("d", A), ("f", ("b", "k")), ("c", AB), ("e", ("k",))),
    after=((3, 2),),
)


@pytest.mark.parametrize(
    ("scope", "mutant"),
    [
        (REAL_TIME, realtime.LeavesOutReady),
        (BY_A_THIRD_GROUP, realtime.LeavesOutReady),
        (BY_A_THIRD_GROUP, realtime.IsReadyBeforeWhatIsAhead),
    ],
)
def test_an_order_that_is_not_one_of_real_time_is_found(scope: Scope, mutant: type[OrderingProtocol]) -> None:
    found = explore(scope, mutant)
    assert [violation.property for violation in found.violations] == [Promise.REAL_TIME_ORDER]
    assert_replays(found, mutant)


def test_the_half_measure_is_enough_for_two_groups() -> None:
    found = explore(REAL_TIME, realtime.IsReadyBeforeWhatIsAhead)
    assert (found.violations, found.complete) == ([], True)


def test_who_waits_for_what_nobody_delivers_multicasts_nothing() -> None:
    """And with it, nobody else: e:1 awaits itself by way of d:1."""
    scope = replaced(REAL_TIME, plans=(("d", A), ("e", A)), after=((0, 1), (1, 0)))
    found = explore(scope)
    assert (found.states, found.terminal, found.violations) == (1, 1, [])


# The protocols themselves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scope",
    [
        ones("skeen", plans=(*OUTSIDE, ("c", A)), restarts=True),
        ones("tom", plans=(*OUTSIDE, ("c", A)), may_crash=("c", "d"), crashes=2),
        ones("tom", options={"sets": "false", "consensus": "ct"}, plans=(*OUTSIDE, ("c", A)), restarts=True),
        ones("scalatom", may_crash=("c", "d"), crashes=2),
        ones("scalatom", options={"piggyback": "true"}, plans=(("a.1", AB), ("b.1", AB)), restarts=True),
        ones("tom", groups=THREE, plans=(("a.1", A),), may_crash=MEMBERS, crashes=1),
        ones("tom", groups=THREE, plans=(("a.1", A),), may_crash=("a.1",), crashes=1, wrong_suspicions=1),
        ones("scalatom", groups=THREE, plans=(("a.1", A),), may_crash=("a.1",), crashes=1),
        ones(
            "scalatom",
            options={"reliable": "eager"},
            groups=THREE,
            plans=(("a.1", A),),
            may_crash=MEMBERS,
            crashes=1,
            sent_survives=True,
        ),
        ones("tom", options={"reliable": "eager"}, plans=OUTSIDE, may_crash=("c", "d"), crashes=2, sent_survives=True),
        ones("nonminimal", restarts=True),
        ones("reliable", restarts=True),
        ones("ctbroadcast", groups={"a": 2}, plans=(("a.1", A), ("d", A)), restarts=True),
        ones("sequencer", groups=THREE, plans=(("c", A), ("c", A), ("d", A)), restarts=True),
        replaced(PRIMCAST, restarts=True),
        REAL_TIME,
        replaced(PRIMCAST, groups=UNEQUAL, plans=OUTSIDE[:1]),
        # An entry that comes before the one before it would be ignored; but behind that one it does not come yet.
        replaced(PRIMCAST, groups=THREE, plans=(("a.2", A), ("c", A))),
        replaced(PRIMCAST, groups=THREE, plans=(("a.2", A),), may_crash=MEMBERS, crashes=1),
    ],
    ids=str,
)
def test_a_small_world_is_searched_to_its_end(scope: Scope) -> None:
    found = explore(scope)
    assert found.violations == []
    assert found.complete
    assert found.terminal > 1


@pytest.mark.parametrize("protocol", ["tom", "scalatom"])
def test_a_larger_world_is_searched_in_part(protocol: str) -> None:
    scope = ones(protocol, groups=TWOS, may_crash=("c", "d"), crashes=1, breadth="deviations", states_max=15_000)
    found = explore(scope)
    assert found.violations == []
    assert found.states >= 15_000
    assert not found.complete
    assert found.terminal > 1, "this order of the search reaches the ends of runs at once"


@pytest.mark.parametrize("protocol", ["skeen", "tom", "scalatom"])
def test_neither_the_reduction_nor_the_order_of_the_search_hides_a_state(protocol: str) -> None:
    """Every reached combination of what was delivered, and every end, is the same without the reduction."""
    plain = _searched(ones(protocol, reduce=False))
    for scope in (ones(protocol), ones(protocol, breadth="deviations")):
        search = _searched(scope)
        assert _delivered(search) == _delivered(plain)
        assert _ends(search) == _ends(plain)
        assert len(search.configurations) <= len(plain.configurations)


def _searched(scope: Scope) -> Search:
    search = Search(scope, StateTable(scope, protocol_named(scope.protocol)))
    assert search.run().complete
    return search


def _delivered(search: Search) -> set[tuple[tuple[MessageId, ...], ...]]:
    return {
        tuple(search.table.local_of(situation).delivered for situation in configuration[:-1])
        for configuration in search.configurations
    }


def _ends(search: Search) -> set[tuple[bytes, ...]]:
    """The states of all processes in which nothing more has to happen."""
    table = search.table
    ends = (configuration for configuration in search.configurations if not search.moves(configuration)[0])
    return {tuple(table.keys[table.situations[number].local] for number in end[:-1]) for end in ends}


@pytest.mark.parametrize("mutant", tom.SEARCHED[:6], ids=lambda mutant: mutant.__name__)
def test_the_same_mutants_are_found_without_the_reduction(mutant: type[OrderingProtocol]) -> None:
    reduced, whole = (explore(ones("tom", reduce=reduce), mutant) for reduce in (True, False))
    assert [v.property for v in reduced.violations] == [v.property for v in whole.violations]


@pytest.mark.parametrize("protocol", ["skeen", "tom", "scalatom"])
def test_the_order_of_what_is_unordered_never_shows(protocol: str) -> None:
    """In a whole small world every two states that were taken for one behave as one; in a larger one, those seen."""
    assert explore(ones(protocol, shuffle=True)).complete
    scope = ones(protocol, groups=THREE, plans=(*INSIDE, ("c", A)), breadth="deviations", states_max=2_000)
    if protocol != "skeen":
        scope = replaced(scope, may_crash=MEMBERS, crashes=1, options={"consensus": "ct"})
    assert explore(replaced(scope, shuffle=True)).violations == []


@pytest.mark.parametrize(
    "scope",
    [
        ones("nonminimal", restarts=True),
        ones("sequencer", groups=THREE, plans=(("c", A), ("c", A), ("d", A))),
        ones("ctbroadcast", groups=THREE, plans=INSIDE, breadth="deviations", states_max=2_000),
        ones(
            "reliable", groups=THREE, plans=INSIDE, may_crash=MEMBERS, crashes=1, breadth="deviations", states_max=2_000
        ),
        ones("mto", groups=THREE, plans=INSIDE, breadth="deviations", states_max=2_000),
        ones("tom", groups=THREE, plans=INSIDE, may_crash=MEMBERS, crashes=1, breadth="deviations", states_max=2_000),
        PRIMCAST,
        replaced(PRIMCAST, groups=THREE, plans=(("a.2", A),), may_crash=MEMBERS, crashes=1, states_max=2_000),
    ],
    ids=str,
)
def test_nor_does_it_show_in_the_other_protocols(scope: Scope) -> None:
    assert explore(replaced(scope, shuffle=True)).violations == []


def test_two_who_suspect_one_another_for_ever_do_not_stop_the_search() -> None:
    """A schedule that no ◇S detector allows: the rounds of such a consensus have no end, but the search has."""
    scope = ones("tom", groups=THREE, plans=(("a.1", A),), may_crash=MEMBERS, crashes=1, wrong_suspicions=2)
    found = explore(replaced(scope, breadth="deviations", states_max=8_000))
    assert found.violations == []
    assert found.states == 8_000


@pytest.mark.parametrize("consensus", ["ct", "hr"])
def test_the_search_reaches_the_round_of_the_only_one_who_is_trusted(consensus: str) -> None:
    """All but the last of five are suspected for ever, though all are correct: ◇S promises no more."""
    five = [f"a.{i}" for i in range(1, 6)]
    options = {"reliable": "eager", "consensus": consensus}
    scope = ones("tom", options=options, groups={"a": 5}, plans=(("a.1", A),), distrusted=tuple(five[:4]))
    searched = Search(replaced(scope, breadth="deviations", states_max=2_000), StateTable(scope, protocol_named("tom")))
    found = searched.run()
    assert found.violations == []
    assert found.terminal > 0
    assert _rounds(searched) >= {1, 2, 3, 4, 5}


def _rounds(search: Search) -> set[int]:
    process = search.table.processes[0]
    frames = [move.frame for move in search.table.moves.values() if move.kind is MoveKind.FRAME]
    return {message.round for _, message in map(process.decode, frames) if hasattr(message, "round")}


def test_who_rotates_among_a_majority_never_comes_to_the_one_who_is_trusted() -> None:
    scope = ones("tom", options={"reliable": "eager", "consensus": "ct"}, groups=THREE, plans=(("a.1", A),))
    scope = replaced(scope, breadth="deviations", states_max=2_000, distrusted=("a.1", "a.2"))
    assert explore(scope).violations == []
    found = explore(scope, over_consensus(Tom, CtRotatesAmongAMajority))
    assert [violation.property for violation in found.violations] == [Promise.VALIDITY]


def test_fifo_channels_allow_less() -> None:
    """All states, whatever leads to nothing: of a channel that keeps its order, less of it can be left out."""
    fifo, any_order = (explore(ones("tom", fifo=fifo, reduce=False)) for fifo in (True, False))
    assert fifo.complete
    assert any_order.complete
    assert fifo.states < any_order.states


def test_a_crash_amid_a_multicast() -> None:
    """Where what was sent survives, only a crash between two sends can keep a message from some of its addressees."""
    mutant = over_reliable(Tom, EagerDoesNotForward)
    scope = ones(
        "tom", options={"reliable": "eager"}, may_crash=("c",), crashes=1, sent_survives=True, plans=(("c", AB),)
    )
    found = explore(scope, mutant)
    assert found.complete
    assert found.violations == [], "in groups of one, whoever gets it waits for the other group's timestamp"
    three = explore(replaced(scope, groups=THREE, plans=(("c", A),)), mutant)
    assert three.violations
    assert MoveKind.CUT in {move.kind for move in three.path}
    assert_replays(three, mutant)


def test_a_scope_prints_as_code() -> None:
    scope = ones("tom", options={"sets": "false"}, may_crash=("c",), crashes=1, fifo=True)
    assert eval(repr(scope)) == scope
