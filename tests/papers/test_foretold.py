"""primcast where something leaves before it is durable, and is forgotten (docs/protocols/primcast.md)."""

from __future__ import annotations

import pytest

from antiphon.core.errors import JournalBehind
from antiphon.protocols.primcast import Primcast
from mutants.foretold import (
    BEFORE_ITS_LIFE_IS_DURABLE,
    SAYS_WHEN_IT_RETURNED,
    AcknowledgesThoughItResigned,
    AnswersTheEarlyAppend,
    AnswersWithTheAppend,
    CountsEarlyVotes,
    CountsTheEarlyAppend,
    DoesNotHearThatOthersHaveMore,
    DoesNotSayItAgain,
    GivesLabelsAgain,
    GivesNamesAgain,
    HeedsEarlyWordOfALaterEpoch,
    LeadsOn,
    LeavesItToTheOthers,
    WaitsThoughItStood,
)
from papers.disks import BACK, Machines

LOGICAL = {"hybrid": "false"}
ONE = {"a": 3}


def agree(world: Machines, *names: str) -> bool:
    logs = [world[name].payloads for name in names]
    return all(log == logs[0] for log in logs)


def test_a_majority_has_it_after_one_sync_on_the_way() -> None:
    """a.1 has not synced, and a.2 has acknowledged; the receipt leaves as soon as a.1 has."""
    world = Machines(Primcast, ONE, LOGICAL)
    world.multicast("a.1", "a")
    assert world.arrive("a.1", "a.2") == 1
    world.sync("a.2")
    world.arrive("a.2", "a.1")
    assert not world["a.1"].delivered
    world.sync("a.1")
    assert world["a.1"].delivered == ["a.1:1"]
    assert world.arrive("a.1", "a.3") == 2, "the copy, and the frame itself"


def test_without_it_nothing_leaves_before_it_is_durable() -> None:
    world = Machines(Primcast, ONE, {**LOGICAL, "early": "false"})
    world.multicast("a.1", "a")
    assert world.arrive("a.1", "a.2") == 0
    world.sync("a.1")
    assert world.arrive("a.1", "a.2") == 1


@pytest.mark.parametrize(("groups", "frames", "copies"), [("a", 7, 3), ("ab", 32, 12), ("abc", 75, 27)])
def test_each_start_append_and_announcement_has_one_copy(groups: str, frames: int, copies: int) -> None:
    for early in (True, False):
        world = Machines(Primcast, dict.fromkeys(groups, 3), {**LOGICAL, "early": str(early).lower()})
        world.multicast("a.2", *groups)
        world.drain()
        assert all(machine.delivered for machine in world.machines.values())
        sent = [(machine.frames, machine.copies) for machine in world.machines.values()]
        assert tuple(map(sum, zip(*sent, strict=True))) == (frames, copies if early else 0)


@pytest.mark.parametrize(("kind", "delivers"), [(Primcast, False), (CountsTheEarlyAppend, True)])
def test_what_a_primary_has_not_on_disk_is_not_its_vote(kind: type[Primcast], delivers: bool) -> None:
    world = Machines(kind, ONE, LOGICAL)
    world.multicast("a.1", "a")
    world.arrive("a.1", "a.2")
    world.sync("a.2")
    assert bool(world["a.2"].delivered) == delivers


def forgets(kind: type[Primcast], *heard: str, options: dict[str, str] = LOGICAL) -> Machines:
    """a.1 multicasts, these hear of it and have it on disk, and a.1 forgets it."""
    world = Machines(kind, ONE, options)
    world.multicast("a.1", "a", payload=b"forgotten")
    for name in heard:
        world.arrive("a.1", name)
        world.sync(name)
    world.crash("a.1")
    world.drop("a.1")
    return world


@pytest.mark.parametrize("heard", [("a.2",), ("a.2", "a.3")])
def test_what_it_has_forgotten_is_delivered_where_anybody_heard_of_it(heard: tuple[str, ...]) -> None:
    world = forgets(Primcast, *heard)
    world.restart("a.1")
    world.multicast("a.1", "a", payload=b"next")
    world.drain()
    assert world["a.1"].payloads == [b"forgotten", b"next"]
    assert agree(world, "a.1", "a.2", "a.3")
    assert world["a.1"].delivered == ["a.1:1", "a.1:4294967297"], "no name is given twice"


def said_again(kind: type[Primcast]) -> list[tuple[str, int | None]]:
    world = forgets(kind, "a.2")
    world["a.1"].told.clear()
    world.restart("a.1")
    world.drain()
    return [(str(row.message), row.time_ns) for row in world["a.1"].told if row.kind == "multicast"]


def test_it_says_again_that_it_multicast_it_and_no_later_than_it_did() -> None:
    assert said_again(Primcast) == [("a.1:1", 0)]
    assert said_again(DoesNotSayItAgain) == []
    with SAYS_WHEN_IT_RETURNED.made():
        assert said_again(Primcast) == [("a.1:1", BACK)]


def test_where_nobody_heard_of_it_it_is_gone() -> None:
    world = forgets(Primcast)
    world.restart("a.1")
    world.drain()
    assert not any(world[name].delivered for name in world.machines)
    world.multicast("a.2", "a")
    world.drain()
    assert world["a.1"].delivered == ["a.2:1"]


@pytest.mark.parametrize("kind", [Primcast, LeadsOn, GivesNamesAgain, GivesLabelsAgain])
def test_it_says_nothing_else_in_the_place_of_what_it_has_forgotten(kind: type[Primcast]) -> None:
    """a.2 has the one at the log's first place, and is cut off while a.1 and a.3 go on."""
    world = forgets(kind, "a.2")
    world.restart("a.1")
    world.suspect("a.1", "a.2")
    world.suspect("a.3", "a.2")
    try:
        world.multicast("a.1", "a", payload=b"other")
        world.drain("a.1", "a.3")
        world.multicast("a.3", "a", payload=b"last")
        world.drain()
        world.ring(*world.machines)
        world.drain()
    except AssertionError:
        assert kind is not Primcast
        return
    fine = agree(world, *world.machines) and sorted(world["a.1"].payloads) == [b"forgotten", b"last", b"other"]
    assert fine == (kind is Primcast)


@pytest.mark.parametrize("kind", [Primcast, AcknowledgesThoughItResigned])
def test_it_acknowledges_nothing_more_in_that_epoch(kind: type[Primcast]) -> None:
    """The forgotten one has a lower timestamp than what a.1 and a.3 would deliver, if a.1 told of its clock."""
    world = Machines(kind, {"a": 3, "b": 1}, LOGICAL)
    for _ in range(5):
        world.multicast("b.1", "b")  # so that its timestamps are the higher ones
    world.drain("b.1")
    world.multicast("a.3", "a", "b", payload=b"both")
    world.drain("a.1", "a.2", "a.3")
    world.multicast("a.1", "a", payload=b"forgotten")
    world.arrive("a.1", "a.2")
    world.sync("a.2")
    world.crash("a.1")
    world.drop("a.1")
    world.restart("a.1")
    try:
        world.drain("a.1", "a.3", "b.1")
        world.drain()
        world.suspect("a.3", "a.1")
        world.suspect("a.2", "a.1")
        world.drain()
        world.ring(*world.machines)
        world.drain()
    except AssertionError:
        assert kind is not Primcast
        return
    fine = agree(world, "a.1", "a.2", "a.3") and len(world["a.1"].payloads) == 2
    assert fine == (kind is Primcast)


@pytest.mark.parametrize("kind", [Primcast, LeavesItToTheOthers, DoesNotHearThatOthersHaveMore])
def test_who_has_forgotten_all_that_there_was_to_lead_hears_of_it(kind: type[Primcast]) -> None:
    """a.2 alone has the message, and waits for a.1, whom nobody suspects: it was back too soon."""
    world = forgets(kind, "a.2")
    world.restart("a.1")
    world.drain()
    assert bool(world["a.3"].delivered) == (kind is Primcast)


@pytest.mark.parametrize("kind", [Primcast, WaitsThoughItStood])
def test_who_stood_and_has_nothing_makes_way(kind: type[Primcast]) -> None:
    """a.1 gave the message a timestamp, and told nobody before it crashed. So it asks a.2 to stand, which hears of an
    epoch and of nothing to lead in it, and was back too soon for anybody to suspect it."""
    world = Machines(kind, ONE, LOGICAL)
    world.multicast("a.1", "a")
    world.sync("a.1", 1)
    world.crash("a.1")
    world.drop("a.1")
    world.restart("a.1")
    world.sync("a.1")
    world.arrive("a.1", "a.2")
    world.sync("a.2")
    world.crash("a.2")
    world.restart("a.2")
    world.drain()
    for _ in range(3):
        world.ring(*world.machines)
        world.drain()
    assert all(bool(world[name].delivered) == (kind is Primcast) for name in world.machines)


@pytest.mark.parametrize(
    ("kind", "option", "early"),
    [
        (Primcast, "true", False),
        (AnswersTheEarlyAppend, "true", True),
        (Primcast, "false", False),
        (AnswersWithTheAppend, "false", True),
    ],
)
def test_a_receipt_waits_for_the_own_vote(kind: type[Primcast], option: str, early: bool) -> None:
    """a.2 hears late of what a.1 appended: a.3 has acknowledged it, and a.2 would be the second."""
    world = Machines(kind, ONE, {**LOGICAL, "early": option})
    world.multicast("a.2", "a")
    world.sync("a.2")
    world.arrive("a.2", "a.1")
    world.sync("a.1" if option == "false" else "a.3")
    world.arrive("a.1", "a.3")
    world.sync("a.3")
    world.arrive("a.3", "a.2")
    world.sync("a.2")
    assert not world["a.2"].host.held
    receipts: list[bool] = []
    stamp = world.protocol("a.2").assure
    world.protocol("a.2").assure = lambda m, t, *, early=False: (receipts.append(early), stamp(m, t, early=early))
    world.arrive("a.1", "a.2")
    assert receipts == [early]


@pytest.mark.parametrize(("kind", "kept"), [(Primcast, True), (CountsEarlyVotes, False)])
def test_a_follower_votes_with_what_is_on_its_disk(kind: type[Primcast], kept: bool) -> None:
    """a.1 delivers with the vote of a.2, and is gone; a.2 had nothing on disk."""
    world = Machines(kind, ONE, LOGICAL)
    world.multicast("a.1", "a")
    world.arrive("a.1", "a.2")
    world.sync("a.1")
    world.arrive("a.2", "a.1")
    world.sync("a.1")
    world.crash("a.2")
    world.drop("a.2")
    world.drop("a.1")
    delivered = bool(world["a.1"].delivered)
    assert delivered == (not kept)


@pytest.mark.parametrize(("kind", "is_epoch"), [(Primcast, 0), (HeedsEarlyWordOfALaterEpoch, 1)])
def test_nothing_that_is_foretold_begins_an_epoch(kind: type[Primcast], is_epoch: int) -> None:
    """b.1, alone in its group, begins the next one, and forgets that."""
    world = Machines(kind, {"a": 1, "b": 1}, LOGICAL)
    world.multicast("a.1", "a", "b")
    world.drain()
    world.crash("b.1")
    world.restart("b.1")  # it begins an epoch of its own
    world.sync("b.1")
    world.multicast("b.1", "a", "b")
    foretold = [each for each in world.under_way["b.1", "a.1"] if each[0]]
    world.under_way["b.1", "a.1"] = foretold
    world.arrive("b.1", "a.1")
    assert world.protocol("a.1").learner("b").epoch == is_epoch


def returns_twice() -> list[list[bytes]]:
    """The first return is forgotten, with what it multicast then. Returns what each member delivers."""
    world = Machines(Primcast, ONE, LOGICAL)
    for payload in (b"forgotten", b"next"):
        world.crash("a.2")
        world.restart("a.2")
        world.multicast("a.2", "a", payload=payload)
        world.arrive("a.2", "a.1")
    world.drain()
    world.ring(*world.machines)
    world.drain()
    return [machine.payloads for machine in world.machines.values()]


def test_nothing_is_foretold_in_a_life_that_may_be_forgotten() -> None:
    """What it would foretell has the names of what it does in the next one."""
    assert returns_twice() == [[b"next"]] * 3
    with BEFORE_ITS_LIFE_IS_DURABLE.made():
        assert returns_twice() == [[b"forgotten"], [b"next"], [b"forgotten"]], "two messages of one name"


def test_an_old_copy_of_a_journal_is_refused_whatever_was_foretold() -> None:
    world = Machines(Primcast, ONE, LOGICAL)
    world.multicast("a.1", "a")
    world.drain()
    del world["a.1"].disk.inputs[1:]
    world["a.1"].disk.durable = 1
    world.crash("a.1")
    with pytest.raises(JournalBehind):
        world.restart("a.1")


def test_the_whole_group_at_once_keeps_what_it_acknowledged() -> None:
    world = Machines(Primcast, ONE, LOGICAL)
    world.multicast("a.1", "a", payload=b"one")
    world.arrive("a.1", "a.2")
    world.sync("a.2")
    world.arrive("a.2", "a.1")
    world.sync("a.1")
    assert world["a.1"].payloads == [b"one"]
    world.multicast("a.1", "a", payload=b"two")
    for at in ("a.1", "a.2", "a.3"):
        world.arrive("a.1", at)
        world.crash(at)
    world.under_way.clear()
    for at in ("a.3", "a.1", "a.2"):
        world.restart(at)
    world.drain()
    world.multicast("a.3", "a", payload=b"three")
    world.drain()
    assert world["a.3"].payloads == [b"one", b"three"]
    assert agree(world, *world.machines)
