"""primcast with order=realtime: what its page counts, two counter-examples, and who speaks when somebody is gone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from antiphon.checks import check_run
from antiphon.core.inputs import AnyInput, Multicast
from antiphon.core.promises import Promise
from antiphon.protocols.primcast import Primcast, Retry
from antiphon.simulation import MILLISECOND, Outcome, Plan, Scenario, random_scenario, simulate
from antiphon.trace import Row, RunFacts
from mutants import realtime as mutants
from mutants.realtime import IsReadyBeforeWhatIsAhead
from papers.test_primcast import LOGICAL, Unmarked, delivered, lose, messages, one, ring
from papers.wires import Wires

REAL_TIME = {**LOGICAL, "order": "realtime"}
BY_NAME = {mutant.__name__: mutant for mutant in mutants.MUTANTS}


def and_mutants(*names: str) -> pytest.MarkDecorator:
    """The protocol passes, and each of these, all of which show here, does not."""
    caught.update(names)
    return pytest.mark.parametrize(("kind", "passes"), [(Primcast, True), *((BY_NAME[name], False) for name in names)])


caught: set[str] = set()


# Counts ------------------------------------------------------------------------------------------------------------


def run(d: int, n: int, *plans: Plan, options: Mapping[str, str] = REAL_TIME) -> Outcome:
    groups = {f"g{i}": n for i in range(1, d + 2)}  # one of them is never addressed
    scenario = Scenario(
        protocol="primcast", options=dict(options), groups=groups, plans=plans, steps=True, limit_ns=1000 * MILLISECOND
    )
    outcome = simulate(scenario, Unmarked)
    assert outcome.violations == []
    return outcome


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", range(1, 6))
def test_the_primary_of_each_group_tells_every_member_of_the_others(d: int, n: int) -> None:
    more = d * (d - 1) * n
    assert [messages(d, 3) + d * (d - 1) * 3 for d in (1, 2, 3)] == [7, 38, 93]
    assert run(d, n, one(d, "c1")).messages_sent == messages(d, n) - d + d * n + more
    assert run(d, n, one(d, "c1"), options=LOGICAL).messages_sent == messages(d, n) - d + d * n
    if n > 1:
        assert run(d, n, one(d, "g1.2")).messages_sent == messages(d, n) + more


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_several_groups_deliver_after_four_steps(d: int, uneven: bool) -> None:
    before = [Plan("g1.2", k * MILLISECOND, ("g1",)) for k in range(5)] if uneven else []
    outcome = run(d, 3, *before, one(d, "g1.2"))
    name = f"g1.2:{len(before) + 1}"
    steps = {row.process: row.step for row in outcome.rows if row.kind == "deliver" and row.message == name}
    assert len(steps) == 3 * d
    if d == 1:
        assert steps == {"g1.1": 3, "g1.2": 2, "g1.3": 2}, "as without the option"
    else:
        assert set(steps.values()) == {4}


def test_groups_of_one_deliver_after_three_steps() -> None:
    assert run(2, 1, one(2, "g1.1")).steps_max == 3


# The two counter-examples ------------------------------------------------------------------------------------------


class Clocked(Wires):
    """One moment after the other, and a trace of them."""

    def __init__(self, kind: type[Primcast], groups: Mapping[str, int], *outside: str, order: str) -> None:
        self.now = 0
        self.rows: list[Row] = []
        super().__init__(kind, groups, *outside, options={**LOGICAL, "order": order})

    def step(self, at: str, happened: AnyInput) -> list[str]:
        self.now += 1
        if isinstance(happened, Multicast):
            name = f"{at}:{self.processes[at].state.multicasts + 1}"
            self.rows.append(Row(at, len(self.rows), self.now, "multicast", name, happened.destinations))
        found = super().step(at, happened)
        self.rows += [Row(at, len(self.rows) + k, self.now, "deliver", name) for k, name in enumerate(found)]
        return found

    def broken(self) -> set[str]:
        facts = RunFacts(
            run="by hand",
            driver="simulation",
            protocol="primcast",
            groups={group: [*map(str, members)] for group, members in self.topology.groups.items()},
            promises=["acyclic_order", "real_time_order"],
            drained=False,
            clock_error_ns=0,
        )
        return {violation.property for violation in check_run(facts, self.rows)}


def timestamps_apart(wires: Wires, *groups: str) -> None:
    """d has sent five messages to each of these groups, whose clocks are ahead now."""
    for group in groups:
        for _ in range(5):
            wires.multicast("d", group)
        wires.drain("d", f"{group}.1")


def later_to_one_of_the_groups(kind: type[Primcast], order: str) -> Clocked:
    """m1 = c:1 to g and h; g delivers it, if it may, before h hears of g's timestamp; then e:1 is multicast to h."""
    wires = Clocked(kind, {"g": 1, "h": 1}, "c", "d", "e", order=order)
    timestamps_apart(wires, "g")
    wires.multicast("c", "g", "h")
    wires.drain("c", "h.1")
    wires.drain("c", "g.1")
    wires.arrive("h.1", "g.1")
    wires.multicast("e", "h")
    wires.drain("e", "h.1")
    wires.drain("g.1", "h.1")
    assert sorted(delivered(wires, "h.1")) == ["c:1", "e:1"]
    assert delivered(wires, "g.1")[-1] == "c:1"
    return wires


def by_way_of_a_third_group(kind: type[Primcast], order: str, *, asks: bool = False) -> Clocked:
    """m3 = b:1 to h and k is on its way to k. m1 = c:1 to g and h, which h puts behind m3; then m2 = e:1 to k alone.

    ``asks``: g asks before that whether h is ready."""
    wires = Clocked(kind, {"g": 1, "h": 1, "k": 1}, "b", "c", "d", "e", order=order)
    timestamps_apart(wires, "g")
    wires.multicast("b", "h", "k")
    wires.drain("b", "h.1")
    wires.multicast("c", "g", "h")
    wires.drain("c", "h.1")
    wires.drain("c", "g.1")
    wires.drain("g.1", "h.1")
    if asks:
        ring(wires, "g.1", Retry)  # this timer was set before c:1 came
        ring(wires, "g.1", Retry)
        wires.drain("g.1", "h.1")
    wires.multicast("e", "k")
    wires.drain("e", "k.1")
    wires.drain("b", "k.1")
    wires.drain("g.1", "h.1", "k.1")
    assert sorted(delivered(wires, "h.1")) == ["b:1", "c:1"]
    assert sorted(delivered(wires, "k.1")) == ["b:1", "e:1"]
    assert delivered(wires, "g.1")[-1] == "c:1"
    return wires


@pytest.mark.parametrize("example", [later_to_one_of_the_groups, by_way_of_a_third_group])
def test_the_order_of_real_time_needs_the_option(example) -> None:
    assert example(Primcast, "total").broken() == {"real_time_order"}
    assert example(Primcast, "realtime").broken() == set()


def test_it_is_not_enough_that_the_clocks_of_all_groups_have_come_so_far() -> None:
    """The half measure: a group says that it is ready as soon as it gives no lower timestamp any more."""
    assert later_to_one_of_the_groups(IsReadyBeforeWhatIsAhead, "realtime").broken() == set()
    assert by_way_of_a_third_group(IsReadyBeforeWhatIsAhead, "realtime").broken() == {"real_time_order"}


def test_a_random_run_in_which_it_matters() -> None:
    """g3.1 delivers g3.3:2 before g1.1 multicasts g1.1:4, which g1.1 delivers first."""
    outcome = simulate(random_scenario(Primcast, 500_086, {"hybrid": "false", "order": "total"}))
    assert Promise.REAL_TIME_ORDER not in outcome.facts.promises
    outcome.facts.promises = [Promise.REAL_TIME_ORDER.value]
    assert {violation.property for violation in check_run(outcome.facts, outcome.rows)} == {"real_time_order"}
    with_it = simulate(random_scenario(Primcast, 500_086, {"hybrid": "false", "order": "realtime"}))
    assert Promise.REAL_TIME_ORDER in with_it.facts.promises
    assert with_it.violations == []


@and_mutants("LeavesOutReady", "CountsItself")
def test_a_group_waits_for_the_other(kind: type[Primcast], passes: bool) -> None:
    assert later_to_one_of_the_groups(kind, "realtime").broken() == (set() if passes else {"real_time_order"})


@and_mutants("LeavesOutReady", "IsReadyBeforeWhatIsAhead", "CountsItself")
def test_a_group_is_ready_when_all_ahead_is_delivered(kind: type[Primcast], passes: bool) -> None:
    assert by_way_of_a_third_group(kind, "realtime").broken() == (set() if passes else {"real_time_order"})


@and_mutants("AnswersBeforeItIsReady")
def test_who_is_asked_says_no_more_than_what_is_true(kind: type[Primcast], passes: bool) -> None:
    wires = by_way_of_a_third_group(kind, "realtime", asks=True)
    assert wires.broken() == (set() if passes else {"real_time_order"})


@and_mutants("OneIsEnough")
def test_each_of_the_other_groups_has_to_be_ready(kind: type[Primcast], passes: bool) -> None:
    """c:1 to g, h and k. g and k are ready; h is not, when e:1 is multicast to it."""
    wires = Clocked(kind, {"g": 1, "h": 1, "k": 1}, "c", "d", "e", order="realtime")
    timestamps_apart(wires, "g")
    wires.multicast("c", "g", "h", "k")
    wires.drain("c", "h.1")
    wires.drain("c", "g.1")
    wires.drain("c", "k.1")
    wires.arrive("h.1", "g.1")
    wires.arrive("h.1", "k.1")
    wires.drain("g.1", "k.1")
    assert delivered(wires, "k.1") == ([] if passes else ["c:1"])
    wires.multicast("e", "h")
    wires.drain("e", "h.1")
    wires.drain("g.1", "h.1", "k.1")
    assert all(delivered(wires, p)[-1] == "c:1" for p in ("g.1", "h.1", "k.1"))
    assert wires.broken() == (set() if passes else {"real_time_order"})


# Who speaks, and when somebody is gone -------------------------------------------------------------------------------

MEMBERS = [f"{group}.{n}" for group in "ab" for n in (1, 2, 3)]
FOLLOWERS = [member for member in MEMBERS if not member.endswith("1")]


def multicast_to_both(kind: type[Primcast], *silent: str) -> Wires:
    """c:1 to a and b, of three each. All arrives but what these primaries say in the end: that they are ready."""
    wires = Wires(kind, {"a": 3, "b": 3}, "c", options=REAL_TIME)
    wires.multicast("c", "a", "b")
    for member in MEMBERS:
        wires.arrive("c", member)
    for primary in ("a.1", "b.1"):
        for member in MEMBERS:
            if member != primary:
                wires.arrive(primary, member)  # an entry, or a timestamp
    speaking = [way for way in wires.under_way if way[0] not in silent or way[0][0] == way[1][0]]
    while ways := [way for way in speaking if wires.under_way[way]]:
        wires.arrive(*ways[0])
    lose(wires, *silent)
    return wires


@and_mutants("SpeaksWhenItDelivers", "SpeaksToPrimariesOnly")
def test_the_primary_speaks_as_soon_as_it_is_ready_and_to_all(kind: type[Primcast], passes: bool) -> None:
    """No timer rings here."""
    wires = multicast_to_both(kind)
    assert all(delivered(wires, p) == ["c:1"] for p in MEMBERS) is passes


@and_mutants("KeepsWhatIsDelivered")
def test_what_is_delivered_is_forgotten(kind: type[Primcast], passes: bool) -> None:
    wires = multicast_to_both(kind)
    left = [wires.processes[p].protocol.real_time.ready for p in MEMBERS]  # type: ignore[attr-defined]
    assert (left == [{}] * 6) is passes


@and_mutants("DropsWhatComesFirst")
def test_the_word_of_a_group_may_come_before_the_message(kind: type[Primcast], passes: bool) -> None:
    """a.3 hears that b is ready when it knows nothing of the message. No timer rings here."""
    wires = Wires(kind, {"a": 3, "b": 1}, "c", options=REAL_TIME)
    wires.multicast("c", "a", "b")
    wires.drain("c", "a.1", "a.2", "b.1")
    wires.drain("b.1", "a.3")
    assert delivered(wires, "a.3") == []
    wires.drain("a.1", "a.2", "a.3")
    assert delivered(wires, "a.3") == (["c:1"] if passes else [])


@and_mutants("NewPrimariesAreSilent")
def test_a_new_primary_speaks_for_its_group(kind: type[Primcast], passes: bool) -> None:
    """a.1 and b.1 die before they could. No timer rings here."""
    wires = multicast_to_both(kind, "a.1", "b.1")
    assert not any(delivered(wires, p) for p in FOLLOWERS)
    for group in "ab":
        wires.suspect(f"{group}.2", f"{group}.1")
    wires.drain(*FOLLOWERS)
    assert all(delivered(wires, p) == ["c:1"] for p in FOLLOWERS) is passes


@and_mutants("NeverAsks", "NeverAnswers", "AnswersOnlyOfWhatComesNext")
def test_who_waits_for_long_asks_all_members_of_the_other_group(kind: type[Primcast], passes: bool) -> None:
    """a.1 dies with what it had to say to b. The others of a have delivered, and nothing more is multicast."""
    wires = multicast_to_both(kind, "a.1")
    assert [delivered(wires, p) for p in MEMBERS] == [["c:1"]] * 3 + [[]] * 3
    for member in MEMBERS[3:]:
        ring(wires, member, Retry)
    wires.drain(*MEMBERS[1:])
    assert all(delivered(wires, p) == ["c:1"] for p in MEMBERS[3:]) is passes


@and_mutants("NeverAsks", "NeverAnswers", "AnswersOnlyOfWhatIsDelivered")
def test_any_member_that_is_ready_answers(kind: type[Primcast], passes: bool) -> None:
    """Neither primary is heard of again, and nobody suspects them."""
    wires = multicast_to_both(kind, "a.1", "b.1")
    for member in FOLLOWERS:
        ring(wires, member, Retry)
    wires.drain(*FOLLOWERS)
    assert all(delivered(wires, p) == ["c:1"] for p in FOLLOWERS) is passes


def test_every_mutant_is_caught_by_a_schedule() -> None:
    assert caught == set(BY_NAME)
