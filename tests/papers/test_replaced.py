"""A member of primcast's is replaced: what its pages say, and schedules that seeds do not find."""

from __future__ import annotations

from contextlib import suppress

import pytest

from antiphon.core.errors import UsageError
from antiphon.core.inputs import Recover
from antiphon.protocols.primcast import Primcast, Retry
from antiphon.services.epochs import Patience
from antiphon.services.retention import SayDelivered
from antiphon.simulation import (
    MILLISECOND,
    Crash,
    Depose,
    Exponential,
    Plan,
    Replace,
    Scenario,
    Slow,
    simulate,
)
from mutants.foretold import GoesOnWithItsPupils
from mutants.replaced import (
    AnnouncesNothingAgain,
    CountsPromisesOfPupils,
    CountsThoughSomebodyLags,
    DoesNotSayThatItCounts,
    DoesNotSayWhatItHas,
    ForgetsEarlyElections,
    GivesWhatItHasAtOnce,
    HandsOverToThoseWhoHaveNothing,
    KeepsNothingForThoseWhoLag,
    StandsWhileItLearns,
    TakesWhatIsHandedFirst,
    VouchesForNothingAgain,
)
from papers.test_primcast import LOGICAL, WEIGHT, agree, delivered, flow, lose, ring
from papers.wires import Wires


def one_is_lost(kind: type[Primcast], **options: str) -> Wires:
    """a.1 and a.3 have delivered c:1; a.2 has nothing, and is gone."""
    wires = Wires(kind, {"a": 3}, "c", options={**LOGICAL, **options})
    wires.multicast("c", "a")
    wires.drain("c", "a.1", "a.3")
    assert delivered(wires, "a.1") == delivered(wires, "a.3") == ["c:1"]
    return wires


def counts(wires: Wires, process: str) -> bool:
    return wires.processes[process].protocol.counts


def test_a_newcomer_goes_on_behind_what_the_others_delivered() -> None:
    wires = one_is_lost(Primcast)
    assert wires.replace("a.2") == "a.4"
    assert not counts(wires, "a.4")
    wires.install("c", "a.1", "a.3")
    wires.drain("a.1", "a.3", "a.4")
    assert counts(wires, "a.4")
    assert wires.processes["a.4"].state.position == 1
    wires.multicast("c", "a")
    wires.drain("c", "a.1", "a.3", "a.4")
    assert delivered(wires, "a.1") == delivered(wires, "a.3") == ["c:1", "c:2"]
    assert delivered(wires, "a.4") == ["c:2"]


def test_who_has_learnt_stands_for_the_majority_that_is_gone() -> None:
    """a.4 and a.1 are left: what was delivered by a.2 and a.3 alone, they have."""
    wires = one_is_lost(Primcast)
    wires.replace("a.2")
    wires.install("c", "a.1", "a.3")
    wires.drain("a.1", "a.3", "a.4")
    wires.multicast("c", "a")
    wires.drain("c", "a.3", "a.4")  # a.3 leads: in the first epoch it is a.4's turn, which does not count
    assert delivered(wires, "a.4") == ["c:2"]
    lose(wires, "a.3")
    for member in ("a.1", "a.4"):
        wires.suspect(member, "a.3")
    wires.drain("c", "a.1", "a.4")
    wires.multicast("c", "a")
    wires.drain("c", "a.1", "a.4")
    assert delivered(wires, "a.1") == ["c:1", "c:2", "c:3"]
    assert delivered(wires, "a.4") == ["c:2", "c:3"]


def all_who_had_it_are_gone(kind: type[Primcast]) -> Wires:
    """a.2 and a.1 alone have c:1, and both are gone: nobody may go on without it. a.4 takes the place of a.2."""
    wires = Wires(kind, {"a": 3}, "c", "d", options=LOGICAL)
    wires.multicast("c", "a")
    wires.drain("c", "a.1", "a.2")
    assert delivered(wires, "a.1") == delivered(wires, "a.2") == ["c:1"]
    lose(wires, "c", "a.1", "a.2")
    wires.replace("a.2")
    wires.install("d", "a.3")
    return wires


@pytest.mark.parametrize(("kind", "waits"), [(Primcast, True), (CountsPromisesOfPupils, False)])
def test_who_has_nothing_counts_in_no_majority(kind: type[Primcast], waits: bool) -> None:
    wires = all_who_had_it_are_gone(kind)
    wires.suspect("a.3", "a.1")
    wires.multicast("d", "a")
    wires.drain("d", "a.3", "a.4")
    assert delivered(wires, "a.3") == ([] if waits else ["d:1"])
    assert counts(wires, "a.4") != waits


@pytest.mark.parametrize(("kind", "leads"), [(Primcast, False), (StandsWhileItLearns, True)])
def test_who_has_nothing_stands_for_no_epoch(kind: type[Primcast], leads: bool) -> None:
    """a.4 is the first to hear that there is something to lead. With the promise of a.3 it would be two of three."""
    wires = all_who_had_it_are_gone(kind)
    wires.suspect("a.4", "a.1")
    wires.multicast("d", "a")
    wires.arrive("d", "a.4")
    flow(wires, "a.4", "a.3")
    wires.drain("d", "a.3", "a.4")
    assert wires.processes["a.4"].protocol.leads == leads
    assert delivered(wires, "a.3") == (["d:1"] if leads else [])
    assert agree(wires, "a.1", "a.3") != leads


def test_a_call_that_comes_before_the_topology_is_answered_with_it() -> None:
    """a.3 knows of a.4, and calls a.1, which does not: it goes on as it did, and answers when it knows."""
    wires = one_is_lost(Primcast)
    wires.replace("a.2")
    wires.suspect("a.3", "a.1")
    wires.install("c", "a.3")
    wires.drain("a.3", "a.1")
    assert not wires.under_way.get(("a.1", "a.3")), "no promise"
    wires.install("a.1")
    wires.drain("a.1", "a.3", "a.4")
    assert counts(wires, "a.4")


@pytest.mark.parametrize(("kind", "ignores"), [(Primcast, True), (TakesWhatIsHandedFirst, False)])
def test_who_is_to_take_over_takes_nothing_that_is_handed(kind: type[Primcast], ignores: bool) -> None:
    """a.4 holds c:2, and asks its mates whether it is behind, before anybody has called it."""
    wires = one_is_lost(kind)
    wires.replace("a.2")
    wires.install("c", "a.1", "a.3")
    wires.multicast("c", "a")
    flow(wires, "c", "a.4")
    ring(wires, "a.4", Retry)
    flow(wires, "a.4", "a.1")
    flow(wires, "a.1", "a.4")
    assert delivered(wires, "a.4") == ([] if ignores else ["c:1"])
    if ignores:
        wires.drain("c", "a.1", "a.3", "a.4")
        assert delivered(wires, "a.1") == delivered(wires, "a.3") == ["c:1", "c:2"]
        assert wires.processes["a.4"].state.position == 2
    else:
        with pytest.raises(AssertionError, match="goes on behind that"):
            wires.drain("c", "a.1", "a.3", "a.4")


@pytest.mark.parametrize(("kind", "keeps"), [(Primcast, True), (HandsOverToThoseWhoHaveNothing, False)])
def test_nothing_is_let_go_before_a_newcomer_has_said_how_far_it_is(kind: type[Primcast], keeps: bool) -> None:
    """There is room for one delivery. Who it is handed to may have to take it over from somebody else."""
    wires = one_is_lost(kind, kept=str(3 * WEIGHT // 2))
    wires.replace("a.2")
    wires.install("c", "a.1", "a.3")
    wires.drain("a.1", "a.3")
    for _ in range(3):
        wires.multicast("c", "a")
        wires.drain("c", "a.1", "a.3")
        for member in ("a.1", "a.3"):
            ring(wires, member, SayDelivered)
        wires.drain("a.1", "a.3")
    assert delivered(wires, "a.1") == ["c:1", "c:2", "c:3", "c:4"]
    assert (wires.processes["a.1"].protocol.cut == 0) == keeps
    if keeps:
        wires.drain("c", "a.1", "a.3", "a.4")
        wires.multicast("c", "a")
        wires.drain("c", "a.1", "a.3", "a.4")
        assert agree(wires, "a.1", "a.3")
        assert delivered(wires, "a.4")[-1] == "c:5"


def tick(wires: Wires, *processes: str) -> None:
    """Time goes by: timers ring, and all that is under way among these arrives."""
    for _ in range(5):
        for process in processes:
            for kind in (Retry, SayDelivered, Patience):
                with suppress(ValueError):  # it is not set
                    ring(wires, process, kind)
        wires.drain(*processes)


@pytest.mark.parametrize(("kind", "keeps"), [(Primcast, True), (KeepsNothingForThoseWhoLag, False)])
def test_a_newcomer_keeps_what_a_slow_member_lacks(kind: type[Primcast], keeps: bool) -> None:
    """a.1 and a.2 have delivered its message. a.1 is replaced by a.4, which takes over from a.2 and counts; a.3 has
    promised, and is slow. Then a.2 is lost."""
    wires = Wires(kind, {"a": 3}, "c", options=LOGICAL)
    wires.multicast("a.1", "a")
    wires.drain("a.1", "a.2")
    lose(wires, "a.1")
    wires.replace("a.1")
    wires.install("c", "a.2", "a.3")
    flow(wires, "a.2", "a.3")
    flow(wires, "a.3", "a.2")
    wires.drain("a.2", "a.4")
    assert counts(wires, "a.4")
    ring(wires, "a.4", SayDelivered)
    lose(wires, "a.2")
    for member in ("a.3", "a.4"):
        wires.suspect(member, "a.2")
    tick(wires, "a.3", "a.4")
    wires.multicast("c", "a")
    wires.drain("c", "a.3", "a.4")
    tick(wires, "a.3", "a.4")
    assert delivered(wires, "a.3") == (["a.1:1", "c:1"] if keeps else [])


def a_pupil_waits(kind: type[Primcast]) -> Wires:
    """a.1 and a.2 have delivered c:1, and b has cut it. a.1 is replaced, and a.3 leads, which has yet to deliver it:
    b will not tell its timestamp again."""
    wires = Wires(kind, {"a": 3, "b": 3}, "c", options=LOGICAL)
    b = ("b.1", "b.2", "b.3")
    wires.multicast("c", "a", "b")
    wires.arrive("c", "a.3")
    wires.drain("c", "a.1", "a.2", *b)
    tick(wires, "a.1", "a.2", *b)
    lose(wires, "a.1")
    wires.replace("a.1")
    wires.install("c", "a.3", "a.2", *b)
    wires.suspect("a.3", "a.2")
    for _ in range(2):
        flow(wires, "a.3", "a.2")
        flow(wires, "a.2", "a.3")
    wires.drain("a.3", "a.4")
    assert delivered(wires, "a.3") == []
    return wires


@pytest.mark.parametrize(("kind", "waits"), [(Primcast, True), (GivesWhatItHasAtOnce, False)])
def test_a_newcomer_takes_over_what_the_farthest_has_delivered(kind: type[Primcast], waits: bool) -> None:
    wires = a_pupil_waits(kind)
    assert counts(wires, "a.4") != waits
    if waits:
        tick(wires, "a.2", "a.3", "a.4", "b.1", "b.2", "b.3")
        assert counts(wires, "a.4")
        assert delivered(wires, "a.3") == ["c:1"]


@pytest.mark.parametrize("kind", [Primcast, GoesOnWithItsPupils])
def test_who_has_resigned_gives_a_newcomer_nothing(kind: type[Primcast]) -> None:
    """a.3 is back, and delivers what its pupil waits for: in an epoch in which it may have forgotten an entry, with a
    clock that says more than it may acknowledge there."""
    wires = a_pupil_waits(kind)
    epoch = wires.processes["a.3"].protocol.epoch
    wires.step("a.3", Recover(0, 0))
    assert wires.processes["a.3"].protocol.resigned
    for _ in range(2):  # it asks one mate after the other
        ring(wires, "a.3", Retry)
        wires.drain("a.2", "a.3")
    assert delivered(wires, "a.3") == ["c:1"]
    ring(wires, "a.3", SayDelivered)
    wires.drain("a.3", "a.4")
    assert (wires.processes["a.4"].protocol.epoch == epoch) == (kind is not Primcast)
    tick(wires, "a.2", "a.3", "a.4")
    assert counts(wires, "a.4")
    assert wires.processes["a.4"].protocol.epoch > epoch


@pytest.mark.parametrize(("kind", "stands"), [(Primcast, True), (ForgetsEarlyElections, False)])
def test_who_is_asked_to_stand_before_it_knows_the_topology_stands_then(kind: type[Primcast], stands: bool) -> None:
    """a.3 asks a.2, which has nothing to lead, and has yet to hear that a.1 was replaced. Nobody asks again."""
    wires = Wires(kind, {"a": 3}, options=LOGICAL)
    wires.multicast("a.1", "a")
    wires.drain("a.1", "a.3")
    lose(wires, "a.1")
    wires.replace("a.1")
    wires.install("a.3")
    wires.drain("a.2", "a.3", "a.4")
    wires.install("a.2")
    tick(wires, "a.2", "a.3", "a.4")
    assert counts(wires, "a.4") == stands
    assert delivered(wires, "a.2") == (["a.1:1"] if stands else [])


@pytest.mark.parametrize("kind", [Primcast, AnnouncesNothingAgain, VouchesForNothingAgain])
def test_newcomers_hear_what_another_group_said_before_they_came(kind: type[Primcast]) -> None:
    """Of b's timestamp nobody in a has heard yet. a.1 is replaced by a.4, and then a.2 by a.5, who have the message
    from a.3; and then a.3 is lost."""
    wires = Wires(kind, {"a": 3, "b": 3}, "c", options=LOGICAL)
    b = ("b.1", "b.2", "b.3")
    wires.multicast("c", "a", "b")
    wires.drain("c", *b)
    for member, left in (("a.1", ("a.2", "a.3")), ("a.2", ("a.3", "a.4"))):
        lose(wires, member)
        newcomer = wires.replace(member)
        wires.install("c", *left, *b)
        wires.drain("c", *left, newcomer)
        tick(wires, *left, newcomer)
        assert counts(wires, newcomer)
    assert not any(delivered(wires, p) for p in ("a.3", "a.4", "a.5"))
    lose(wires, "a.3")
    for member in ("a.4", "a.5"):
        wires.suspect(member, "a.3")
    tick(wires, "a.4", "a.5", *b)
    assert all(delivered(wires, p) == ["c:1"] for p in b)
    assert all(delivered(wires, p) == (["c:1"] if kind is Primcast else []) for p in ("a.4", "a.5"))


def one_is_far_behind(kind: type[Primcast]) -> Wires:
    """All but a.5 have delivered c:1, and keep it no more: for a.5 it lies in its channels. a.2 is lost, and replaced;
    a.3 leads, and a.6 has taken over from it."""
    wires = Wires(kind, {"a": 5}, "c", options={**LOGICAL, "kept": "0"})
    wires.multicast("c", "a")
    wires.drain("c", "a.1", "a.2", "a.3", "a.4")
    lose(wires, "a.2", "c")
    wires.replace("a.2")
    wires.install("c", "a.1", "a.3", "a.4")
    wires.drain("a.1", "a.3", "a.4")
    wires.drain("a.3", "a.6")
    for member in ("a.1", "a.4"):
        flow(wires, member, "a.6")
    assert wires.processes["a.6"].state.position == 1
    return wires


def comes_back(wires: Wires) -> None:
    """a.5 gets what is in its channels, and only then hears that a.2 was replaced."""
    for member in ("a.1", "a.3", "a.4"):
        flow(wires, member, "a.5")
    assert delivered(wires, "a.5") == ["c:1"]
    tick(wires, "a.5")
    wires.install("a.5")
    flow(wires, "a.5", "a.6")


@pytest.mark.parametrize("kind", [Primcast, CountsThoughSomebodyLags, DoesNotSayWhatItHas])
def test_a_newcomer_counts_when_all_others_have_what_it_cannot_give_them(kind: type[Primcast]) -> None:
    wires = one_is_far_behind(kind)
    assert counts(wires, "a.6") == (kind is CountsThoughSomebodyLags)
    comes_back(wires)
    assert counts(wires, "a.6") == (kind is not DoesNotSayWhatItHas)


def test_a_newcomer_counts_though_one_is_down_that_lacks_nothing_of_it() -> None:
    """a.5 has said before what it has; and so has everybody."""
    wires = Wires(Primcast, {"a": 5}, "c", options=LOGICAL)
    wires.multicast("c", "a")
    everybody = [str(p) for p in wires.topology.processes]
    wires.drain("c", *everybody)
    tick(wires, *everybody)
    assert wires.processes["a.3"].protocol.cut == 1
    lose(wires, "a.2")
    wires.replace("a.2")
    wires.install("c", "a.1", "a.3", "a.4")
    wires.drain("a.1", "a.3", "a.4", "a.6")
    assert counts(wires, "a.6")


@pytest.mark.parametrize(("kind", "says"), [(Primcast, True), (DoesNotSayThatItCounts, False)])
def test_who_has_promised_while_it_learnt_says_when_it_counts(kind: type[Primcast], says: bool) -> None:
    """a.1 stands, and a.6 promises as one who learns; then a.5 is back, and a.6 counts. a.3 and a.5 are lost: with a.4
    these are three of five."""
    wires = one_is_far_behind(kind)
    assert not counts(wires, "a.6")
    for suspected in ("a.4", "a.5", "a.3"):
        wires.suspect("a.1", suspected)
    wires.multicast("c", "a")
    flow(wires, "c", "a.1")
    with suppress(ValueError):
        ring(wires, "a.1", Patience)
    wires.drain("a.1", "a.6")
    comes_back(wires)
    assert counts(wires, "a.6")
    wires.drain("a.1", "a.4", "a.6")
    assert wires.processes["a.1"].protocol.leads == says


def test_who_is_replaced_takes_no_topology_without_itself() -> None:
    wires = one_is_lost(Primcast)
    wires.replace("a.3")
    wires.install("a.3")
    assert wires.processes["a.3"].topology.epoch == 0


# Kept runs -----------------------------------------------------------------------------------------------------------

KEPT = (
    # A newcomer counted in memory only when the next member was lost.
    Scenario(
        protocol="primcast",
        options=LOGICAL,
        groups={"g1": 3, "g2": 1},
        plans=(Plan("c2", 0, ("g1", "g2"), payloads=2),),
        faults=(
            Replace("g1.1", 6190389, 20 * MILLISECOND, then="g1.2"),
            Depose("g1", 9825715, 6981686, "crash"),
            Slow("g1.4", 26347904, 10958584, 2692104),
            Crash("g1.4", 28937589, 18383027),
        ),
        journal=True,
        sync_ns=50_000,
        seed=9102754,
    ),
    # A member was called by one who knew of the next topology, stood with its own, and never called the newcomer.
    Scenario(
        protocol="primcast",
        groups={"g1": 3, "g2": 3},
        plans=(Plan("c1", 24303600, ("g2",), payloads=2),),
        faults=(Replace("g2.2", 15460214, 20 * MILLISECOND, then="g2.3"),),
        sync_ns=500_000,
        through_members=True,
        seed=9000006,
    ),
    # One who was replaced and lingered heard of the topology after the next.
    Scenario(
        protocol="primcast",
        options=LOGICAL,
        groups={"g1": 5},
        plans=tuple(Plan("c1", at * MILLISECOND, ("g1",)) for at in range(30)),
        faults=(
            Replace("g1.5", 5 * MILLISECOND, 40 * MILLISECOND, lingers=True),
            Replace("g1.4", 10 * MILLISECOND, 5 * MILLISECOND),
        ),
        latency=Exponential(200_000, 2 * MILLISECOND),
        journal=True,
        seed=19,
    ),
)


@pytest.mark.parametrize("scenario", KEPT, ids=lambda scenario: str(scenario.seed))
def test_runs_that_failed_once(scenario: Scenario) -> None:
    assert simulate(scenario).violations == []


def test_only_what_can_be_replaced_is() -> None:
    def refused(protocol: str, groups: dict[str, int], process: str) -> str:
        scenario = Scenario(protocol=protocol, groups=groups, plans=(), faults=(Replace(process, 5, 5),))
        with pytest.raises(UsageError) as refusal:
            simulate(scenario)
        return str(refusal.value)

    assert refused("tom", {"g1": 3}, "g1.1") == "With tom no member can be replaced."
    assert "no group whose majority" in refused("primcast", {"g1": 2}, "g1.1")
    assert "no group whose majority" in refused("primcast", {"g1": 3}, "c1")


def test_a_group_in_which_nothing_ever_happened_stays_silent() -> None:
    scenario = Scenario(protocol="primcast", groups={"g1": 3, "g2": 3}, plans=(), faults=(Replace("g1.2", 5, 5),))
    outcome = simulate(scenario)
    assert (outcome.violations, outcome.messages_sent) == ([], 0)
