"""The search through all states of a small world: what it must find, and that its reduction hides nothing."""

from __future__ import annotations

import pytest

from antiphon.core import Assumptions, Declaration, Failures, Message, OrderingProtocol, ProcessId, Promise, Wire
from antiphon.protocols import protocol_named
from antiphon.protocols.tom import Tom
from antiphon.simulation.explore import Search, explore
from antiphon.simulation.explore_replay import replay
from antiphon.simulation.explore_state import Table
from antiphon.simulation.explore_values import Exploration, MoveKind, Scope
from mutants import tom
from mutants.parts import EagerDoesNotForward, over_reliable
from mutants.scopes import (
    AB,
    CANNOT_SHOW,
    INSIDE,
    MEMBERS,
    ONES,
    OUTSIDE,
    SEARCHED,
    THREE,
    TWOS,
    A,
    mutant_scopes,
    replaced,
    search,
)


def ones(protocol: str, **others: object) -> Scope:
    return replaced(Scope(protocol=protocol, groups=ONES, plans=OUTSIDE), **others)


@pytest.mark.parametrize(("protocol", "mutant"), SEARCHED, ids=lambda value: getattr(value, "__name__", value))
def test_every_mutant_is_found_that_can_show(protocol: str, mutant: type[OrderingProtocol]) -> None:
    if mutant in CANNOT_SHOW:
        assert explore(mutant_scopes(protocol)["ones"], mutant).complete
        return
    shown = search(protocol, mutant)
    assert shown is not None, f"{mutant.__name__} shows in none of the scopes"
    assert_replays(shown[1], mutant)


def assert_replays(found: Exploration, protocol: type[OrderingProtocol]) -> None:
    """The path leads plain processes to the same violation, and the story tells every move of it."""
    assert found.violations[0].property in {v.property for v in replay(found.scope, found.path, protocol)}
    assert len(found.story) == len(found.path)


# The protocols themselves ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scope",
    [
        ones("skeen", plans=(*OUTSIDE, ("c", A)), restarts=True),
        ones("tom", plans=(*OUTSIDE, ("c", A)), may_crash=("c", "d"), crashes=2),
        ones("tom", options={"sets": "false", "consensus": "ct"}, plans=(*OUTSIDE, ("c", A)), restarts=True),
        ones("scalatom", may_crash=("c", "d"), crashes=2),
        ones("scalatom", options={"piggyback": "true"}, plans=(("a.1", AB), ("b.1", AB)), restarts=True),
        ones("tom", groups=THREE, plans=(("a.1", A),), may_crash=MEMBERS, crashes=1, wrong_suspicions=1),
        ones("scalatom", groups=THREE, plans=(("a.1", A),), may_crash=MEMBERS, crashes=1),
        ones("tom", options={"reliable": "eager"}, plans=OUTSIDE, may_crash=("c", "d"), crashes=2, sent_survives=True),
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
        assert len(search.worlds) <= len(plain.worlds)


def _searched(scope: Scope) -> Search:
    search = Search(scope, Table(scope, protocol_named(scope.protocol)))
    assert search.run().complete
    return search


def _delivered(search: Search) -> set[tuple[tuple[str, ...], ...]]:
    table = search.table
    return {tuple(table.locals[table.slots[slot].local].delivered for slot in world[:-1]) for world in search.worlds}


def _ends(search: Search) -> set[tuple[bytes, ...]]:
    """The states of all processes in which nothing more has to happen."""
    table = search.table
    ends = (world for world in search.worlds if not search.moves(world)[0])
    return {tuple(table.keys[table.slots[slot].local] for slot in world[:-1]) for world in ends}


@pytest.mark.parametrize("mutant", tom.MUTANTS[:6], ids=lambda mutant: mutant.__name__)
def test_the_same_mutants_are_found_without_the_reduction(mutant: type[OrderingProtocol]) -> None:
    reduced, whole = (explore(ones("tom", reduce=reduce), mutant) for reduce in (True, False))
    assert [v.property for v in reduced.violations] == [v.property for v in whole.violations]


@pytest.mark.parametrize("protocol", ["skeen", "tom", "scalatom"])
def test_the_order_of_an_unordered_dict_never_shows(protocol: str) -> None:
    scope = ones(protocol, groups=THREE, plans=(*INSIDE, ("c", A)), breadth="deviations", states_max=6_000)
    if protocol != "skeen":
        scope = replaced(scope, may_crash=MEMBERS, crashes=1, options={"consensus": "ct"})
    table = Table(scope, protocol_named(protocol))
    table.shuffle = True
    assert not Search(scope, table).run().violations


def test_two_who_suspect_one_another_for_ever_do_not_stop_the_search() -> None:
    """A schedule that no ◇S detector allows: the rounds of such a consensus have no end, but the search has."""
    scope = ones("tom", groups=THREE, plans=(("a.1", A),), may_crash=MEMBERS, crashes=1, wrong_suspicions=2)
    found = explore(replaced(scope, breadth="deviations", states_max=20_000))
    assert found.violations == []
    assert found.states == 20_000


def test_fifo_channels_allow_less() -> None:
    assert explore(ones("tom", fifo=True)).states < explore(ones("tom")).states


def test_a_crash_amid_a_multicast() -> None:
    """Where what was sent survives, only a crash between two sends can keep a message from some of its addressees."""
    mutant = over_reliable(Tom, EagerDoesNotForward)
    scope = ones(
        "tom", options={"reliable": "eager"}, may_crash=("c",), crashes=1, sent_survives=True, plans=(("c", AB),)
    )
    found = explore(scope, mutant)
    assert [v.property for v in found.violations] == [Promise.UNIFORM_AGREEMENT] or found.violations == []
    three = explore(replaced(scope, groups=THREE, plans=(("c", A),)), mutant)
    assert three.violations
    assert MoveKind.CUT in {move.kind for move in three.path}
    assert_replays(three, mutant)


def test_a_scope_prints_as_code() -> None:
    scope = ones("tom", options={"sets": "false"}, may_crash=("c",), crashes=1, fifo=True)
    assert eval(repr(scope)) == scope


# Canaries ----------------------------------------------------------------------------------------------------------


class Ping(Wire, frozen=True, tag=1):
    message: Message


class Hasty(OrderingProtocol):
    """Delivers what comes as it comes."""

    declaration = Declaration(
        name="hasty",
        title="",
        source="",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY),
        promises=(Promise.TOTAL_ORDER, Promise.ACYCLIC_ORDER),
    )

    def multicast(self, m: Message) -> None:
        self.send(self.topology.addressees(m.destinations), Ping(m))

    def on_ping(self, sender: ProcessId, ping: Ping) -> None:
        self.deliver(ping.message)

    def pending(self) -> int:
        return 0


class Late(Hasty):
    """The first message is ignored; but it must not come after the second."""

    begun: bool

    def initialise(self) -> None:
        self.begun = False

    def on_ping(self, sender: ProcessId, ping: Ping) -> None:
        assert not self.begun, "too late"
        self.begun = ping.message.id == "c:2"


class Fragile(Hasty):
    def on_ping(self, sender: ProcessId, ping: Ping) -> None:
        assert sender != "d", "nobody listens to d"


@pytest.mark.parametrize("breadth", ["steps", "deviations"])
def test_a_wrong_order_is_found(breadth: str) -> None:
    for groups, broken in ((ONES, Promise.ACYCLIC_ORDER), (TWOS, Promise.TOTAL_ORDER)):
        found = explore(ones("hasty", groups=groups, breadth=breadth), Hasty)
        assert found.violations[0].property in (broken, Promise.ACYCLIC_ORDER)
        assert_replays(found, Hasty)
    assert len(explore(ones("hasty"), Hasty).path) == 6, "by steps, the shortest path: two multicasts, four receipts"


def test_a_failed_assertion_is_found() -> None:
    found = explore(ones("hasty"), Fragile)
    assert found.violations[0].property == "invariant"
    assert "nobody listens to d" in found.violations[0].detail
    assert found.story == ["d multicasts d:1 to a and b", found.story[1]]
    assert_replays(found, Fragile)


def test_a_reduction_that_hides_something_says_so() -> None:
    """An inert frame is taken out of flight at once; here that hides what it would have done later."""

    scope = ones("hasty", plans=(("c", A), ("c", A)))
    found = explore(scope, Late)
    assert [v.property for v in found.violations] == ["reduction"]
    assert not found.complete
    assert [v.property for v in explore(replaced(scope, reduce=False), Late).violations] == ["invariant"]
