"""primcast where inputs that only bring the word of others hold nothing up (docs/protocols/primcast.md, L36).

In each schedule a mistake lets a reader see what rests on something that its member has not on its disk.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from antiphon.core.events import Delivered
from antiphon.core.inputs import Multicast
from antiphon.protocols.primcast import Primcast
from mutants.hearsay import (
    ANSWERS_ARE_HEARSAY,
    LOOKS_NO_FURTHER,
    NOBODY_WAITS,
    ONCE_HEARSAY_ALWAYS_HEARSAY,
    OVERTAKES_WHAT_IS_NOT_EARLY,
    REQUESTS_ARE_HEARSAY,
    STOPS_ONCE,
    THE_END_OF_A_TURN_IS_HEARSAY,
    WHAT_IT_TELLS_ITSELF_IS_HEARSAY,
    GivesTheTimeItself,
    TakesAnyAnnouncementForHearsay,
    TakesAnyAppendForHearsay,
    TakesAnyStartForHearsay,
    TakesAnyTime,
    TakesItsOwnTimeOnly,
    TakesTheBeginningOfAnEpochForHearsay,
    TakesTheEarlyAppendForHearsay,
    TakesTheEarlyStartForHearsay,
    TakesWhatIsHandedForHearsay,
)
from mutants.host import Slip
from papers.disks import Machines

LOGICAL = {"hybrid": "false"}
LATE = {**LOGICAL, "early": "false"}  # nothing is foretold
MILLISECOND = 1_000_000


def shown(world: Machines, name: str) -> list[str]:
    return [str(event.id) for event in world[name].shown if isinstance(event, Delivered)]


def made(slip: Slip | None) -> AbstractContextManager[Any]:
    return nullcontext() if slip is None else slip.made()


def ahead(kind: type[Primcast], groups: dict[str, int], options: dict[str, str], at: str, count: int = 5) -> Machines:
    """The group of this one has the higher timestamps."""
    world = Machines(kind, groups, options)
    for _ in range(count):
        world.multicast(at, at[0])
    world.drain(*world.topology.members(at[0]))  # type: ignore[arg-type]
    for machine in world.machines.values():
        machine.shown.clear()
    return world


# Nothing waits for hearsay -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slip", "is_shown"), [(None, True), (LOOKS_NO_FURTHER, False)])
def test_what_rests_on_the_word_of_others_does_not_wait_for_other_such_words(slip: Slip | None, is_shown: bool) -> None:
    """a.3 acknowledges first, before a.2: its word is not needed twice, and not on a.1's disk."""
    world = Machines(Primcast, {"a": 3, "b": 3}, LATE)
    world.multicast("a.1", "a", "b")
    world.drain("a.1", "a.2", "a.3")  # a has decided
    world.arrive("a.1", "b.1")
    world.drain("b.1", "b.2", "b.3")
    world.arrive("b.1", "a.1")  # b's clock is the lower one, so that this raises nothing
    with made(slip):
        world.arrive("b.2", "a.1")
    assert world["a.1"].host.held == 2
    assert bool(shown(world, "a.1")) == is_shown
    assert not world["a.1"].delivered


def test_what_was_shown_and_forgotten_with_all_that_it_rests_on_comes_again_at_its_place() -> None:
    """Two messages, on six words of others, none of which a.1 remembers."""
    world = Machines(Primcast, {"a": 3, "b": 3}, LOGICAL)
    for payload in (b"one", b"two"):
        world.multicast("a.1", "a", "b", payload=payload)
    world.sync("a.1")
    for other in ("a.2", "a.3", "b.1"):
        world.arrive("a.1", other)
        world.sync(other)
    world.drain("b.1", "b.2", "b.3")
    world.drain("a.2", "a.3")
    for other in ("a.2", "a.3", "b.1", "b.2", "b.3"):
        world.arrive(other, "a.1")
    assert shown(world, "a.1") == ["a.1:1", "a.1:2"]
    assert not world["a.1"].delivered
    world.crash("a.1")
    world.restart("a.1")
    assert not world["a.1"].delivered
    world.multicast("b.2", "a", "b", payload=b"three")
    world.drain()
    world.ring(*world.machines)
    world.drain()
    assert [world[name].payloads for name in world.machines] == [[b"one", b"two", b"three"]] * 6


@pytest.mark.parametrize("is_gone", [False, True])
def test_what_was_shown_on_a_timestamp_that_everybody_forgot_who_said_or_heard_it_stays_true(is_gone: bool) -> None:
    """b.1 gives it early to a.1 and to its followers, and forgets it; a.1 shows the message on their word, and forgets
    that, too. b.1 is back, or gone for good."""
    world = ahead(Primcast, {"a": 3, "b": 3}, LOGICAL, "a.1")
    before = [b"x"] * 5
    world.submit("a.1", "a", "b", payload=b"shown")
    world.drain("a.1", "a.2", "a.3")
    world.arrive("a.1", "b.1")
    for name in ("b.2", "b.3"):
        world.arrive("b.1", name)
        world.sync(name)
    for name in ("b.1", "b.2", "b.3"):
        world.arrive(name, "a.1")
    assert shown(world, "a.1") == ["a.1:6"]
    assert world["a.1"].assured, "and whoever asked for it has a receipt"
    assert not world["a.1"].delivered[5:]
    for name in ("a.1", "b.1"):
        world.crash(name)
        world.drop(name)
    others = [name for name in world.machines if name != "b.1"]
    world.restart("a.1")
    if not is_gone:
        world.restart("b.1")
        others.append("b.1")
    else:
        for name in ("b.2", "b.3"):
            world.suspect(name, "b.1")
    world.multicast("b.3", "a", "b", payload=b"next")
    for _ in range(4):
        world.drain(*others)
        world.ring(*others)
    world.drain(*others)
    for name in others:
        assert world[name].payloads == [*(before if name[0] == "a" else []), b"shown", b"next"]


# What is more than hearsay -------------------------------------------------------------------------------------------


def its_own_vote(kind: type[Primcast]) -> Machines:
    """a.2 hears of a message, and that b has decided on it, in one turn: it would be the second of a's majority."""
    world = ahead(kind, {"a": 3, "b": 1}, LATE, "a.1")
    world.multicast("a.1", "a", "b")
    world.sync("a.1")
    world.arrive("a.1", "b.1")
    world.sync("b.1")
    world.arrive_together("a.2", "a.1", "b.1")
    return world


def its_own_early_vote(kind: type[Primcast]) -> Machines:
    """a.2 hears of the message early, and in the same turn that a.1 has it on its disk."""
    world = Machines(kind, {"a": 3}, LOGICAL)
    world.multicast("a.1", "a")
    world.sync("a.1")
    world.arrive_together("a.2", "a.1")
    return world


def its_own_clock(kind: type[Primcast]) -> Machines:
    """a.2 hears, in one turn, of a timestamp that raises its clock, and that it is decided: without its clock, only
    a.1's keeps later messages behind it."""
    world = ahead(kind, {"a": 3, "b": 3}, LATE, "b.1")
    world.multicast("a.1", "a", "b")
    world.drain("a.1", "a.2", "a.3")  # a has decided
    world.arrive("a.1", "b.1")
    world.drain("b.1", "b.2", "b.3")
    world.arrive("b.1", "a.1")
    world.sync("a.1")
    world.arrive("a.1", "a.2")
    world.sync("a.2")
    world.arrive_together("a.2", "b.1", "b.2")
    return world


def its_own_timestamp(kind: type[Primcast], options: dict[str, str] = LATE) -> Machines:
    """a.1, alone in its group, gives the message a timestamp, and hears of b's, in one turn."""
    world = ahead(kind, {"a": 1, "b": 1}, options, "a.1")
    world.multicast("b.1", "a", "b")
    world.sync("b.1")
    world.arrive_together("a.1", "b.1")
    return world


def its_own_early_timestamp(kind: type[Primcast]) -> Machines:
    return its_own_timestamp(kind, LOGICAL)


def its_own_epoch(kind: type[Primcast]) -> Machines:
    """a.3 adopts a log with the message, and hears that b has decided on it, in one turn: it would be the second that
    has adopted it."""
    world = ahead(kind, {"a": 3, "b": 1}, LATE, "a.1")
    world.multicast("a.1", "a", "b")
    world.sync("a.1")
    world.arrive("a.1", "b.1")
    world.sync("b.1")
    world.arrive("a.1", "a.2")
    world.sync("a.2")
    world.drop("a.1")
    for name in ("a.2", "a.3"):
        world.suspect(name, "a.1")
        world.sync(name)
    world.drop("a.2", "b.1")
    world.arrive("a.2", "a.3")
    world.sync("a.3")
    world.arrive("a.3", "a.2")
    world.sync("a.2")
    world.arrive_together("a.3", "a.2", "b.1")
    return world


@pytest.mark.parametrize(
    ("kind", "schedule", "is_wrong"),
    [
        (kind, schedule, kind is not Primcast)
        for wrong, schedule in (
            (TakesAnyAppendForHearsay, its_own_vote),
            (TakesTheEarlyAppendForHearsay, its_own_early_vote),
            (TakesAnyAnnouncementForHearsay, its_own_clock),
            (TakesAnyStartForHearsay, its_own_timestamp),
            (TakesTheEarlyStartForHearsay, its_own_early_timestamp),
            (TakesTheBeginningOfAnEpochForHearsay, its_own_epoch),
        )
        for kind in (Primcast, wrong)
    ],
)
def test_what_this_member_adds_itself_is_durable_before(
    kind: type[Primcast], schedule: Callable[[type[Primcast]], Machines], is_wrong: bool
) -> None:
    world = schedule(kind)
    at = {its_own_timestamp: "a.1", its_own_early_timestamp: "a.1", its_own_epoch: "a.3"}.get(schedule, "a.2")
    assert bool(shown(world, at)) == is_wrong
    before = len(world[at].delivered)
    world.sync(at)
    assert len(world[at].delivered) == before + 1


@pytest.mark.parametrize("slip", [None, STOPS_ONCE, ONCE_HEARSAY_ALWAYS_HEARSAY], ids=lambda slip: slip and slip.name)
def test_each_time_it_stops_at_what_is_more_than_hearsay(slip: Slip | None) -> None:
    with made(slip):
        world = its_own_vote(Primcast)
        world["a.2"].host.release_early()
    assert bool(shown(world, "a.2")) == (slip is not None)


def requested() -> Machines:
    """a.2 votes for what a.1 has foretold."""
    world = Machines(Primcast, {"a": 3}, LOGICAL)
    world.submit("a.1", "a")
    world.sync("a.1", 1)  # the request, and not that it was given a timestamp at the end of the turn
    world.arrive("a.1", "a.2")
    world.sync("a.2")
    return world


@pytest.mark.parametrize("slip", [None, THE_END_OF_A_TURN_IS_HEARSAY], ids=lambda slip: slip and slip.name)
def test_the_end_of_a_turn_is_more_than_hearsay(slip: Slip | None) -> None:
    """With it a.1 appends what clients asked for in the turn."""
    with made(slip):
        world = requested()
        world.arrive("a.2", "a.1")
    assert bool(shown(world, "a.1")) == (slip is not None)


@pytest.mark.parametrize("slip", [None, REQUESTS_ARE_HEARSAY], ids=lambda slip: slip and slip.name)
def test_a_request_is_more_than_hearsay(slip: Slip | None) -> None:
    """It is sent again; but who sends it is told first that it was taken."""
    with made(slip):
        world = requested()
        world.sync("a.1")
        world.submit("a.1", "a")  # nothing comes of it but an answer
        world.arrive("a.2", "a.1")
    assert bool(shown(world, "a.1")) == (slip is not None)


@pytest.mark.parametrize("slip", [None, ANSWERS_ARE_HEARSAY], ids=lambda slip: slip and slip.name)
def test_what_makes_a_process_say_something_is_more_than_hearsay(slip: Slip | None) -> None:
    """With each delivery a.1 hands something over."""
    world = Machines(Primcast, {"a": 3}, {**LOGICAL, "kept": "0"})
    for _ in range(2):
        world.multicast("a.1", "a")
    world.arrive("a.1", "a.2")  # early, so that a.2 delivers nothing itself
    world.sync("a.2")
    world.sync("a.1")
    one, two = world.under_way["a.2", "a.1"]
    with made(slip):
        for frame in (one, two):
            world.under_way["a.2", "a.1"] = [frame]
            world.arrive("a.2", "a.1")
    assert shown(world, "a.1") == (["a.1:1"] if slip is None else ["a.1:1", "a.1:2"])


def handed(kind: type[Primcast]) -> Machines:
    """a.3 has two messages, and lacks b's word of both: it is handed the first, and hears of the second."""
    world = ahead(kind, {"a": 3, "b": 3}, LATE, "a.1")
    for _ in range(2):
        world.multicast("a.1", "a", "b")
        world.drain("a.1", "a.2", "a.3")
        world.arrive("a.1", "b.1")
        world.drain("b.1", "b.2", "b.3")
        if ("b.1", "a.1") in world.under_way and not world["a.1"].delivered[5:]:
            world.arrive("b.1", "a.1")
            world.arrive("b.2", "a.1")
            world.sync("a.1")
    assert world["a.1"].delivered[5:] == ["a.1:6"]
    world.drop("a.3", "b.1", "b.2", "b.3")
    world.ring("a.3")  # it takes too long
    world.sync("a.3")
    for mate in ("a.2", "a.1"):
        world.ring("a.3")
        world.sync("a.3")
        world.arrive("a.3", mate)
        world.sync(mate)
    world.arrive("b.1", "a.3")
    world.sync("a.3")
    world["a.3"].shown.clear()
    world.arrive_together("a.3", "a.1", "b.2")
    return world


@pytest.mark.parametrize(
    ("kind", "slip", "is_shown"),
    [
        (Primcast, None, False),
        (TakesWhatIsHandedForHearsay, None, False),
        (TakesWhatIsHandedForHearsay, OVERTAKES_WHAT_IS_NOT_EARLY, True),
    ],
)
def test_nothing_is_shown_before_a_delivery_that_waits_for_its_input(
    kind: type[Primcast], slip: Slip | None, is_shown: bool
) -> None:
    with made(slip):
        world = handed(kind)
    assert shown(world, "a.3") == (["a.1:7"] if is_shown else [])
    world.sync("a.3")
    assert world["a.3"].delivered[5:] == ["a.1:6", "a.1:7"]


@pytest.mark.parametrize("slip", [None, WHAT_IT_TELLS_ITSELF_IS_HEARSAY], ids=lambda slip: slip and slip.name)
def test_what_a_process_tells_itself_is_no_hearsay(slip: Slip | None) -> None:
    """a.1, alone and back from its journal, begins an epoch when it multicasts, and proposes the message there.
    Then it hears from itself of a message that has one."""
    world = Machines(Primcast, {"a": 1}, LOGICAL)
    world.crash("a.1")
    world.restart("a.1")
    world.sync("a.1")
    process = world["a.1"].host.process
    with made(slip):
        world["a.1"].host.take(Multicast(0, world.topology.destinations(("a",)), (b"x",)))
    assert process.is_hearsay == (slip is not None)


# Somebody waits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slip", [None, NOBODY_WAITS], ids=lambda slip: slip and slip.name)
def test_what_waits_behind_an_input_of_which_nothing_came_is_awaited(slip: Slip | None) -> None:
    """a.1's clock is raised for a message of which it has not heard; then it hears that it could show another one."""
    world = ahead(Primcast, {"a": 3, "b": 1}, LOGICAL, "b.1")
    world.multicast("a.1", "a")
    world.sync("a.1")
    world.arrive("a.1", "a.2")
    world.sync("a.2")
    world.multicast("b.1", "a", "b")
    world.under_way["b.1", "a.1"] = world.under_way["b.1", "a.1"][1:]  # what is foretold can be lost: here START
    world.arrive("b.1", "a.1")
    assert not world["a.1"].host.is_awaited
    with made(slip):
        world.arrive("a.2", "a.1")
    assert shown(world, "a.1") == []
    assert world["a.1"].host.is_awaited == (slip is None)
    world.sync("a.1", 1)
    assert shown(world, "a.1") == ["a.1:1"]
    assert not world["a.1"].host.is_awaited


# The time when a message was sent ------------------------------------------------------------------------------------


def at_both(kind: type[Primcast], hours: int = 0) -> tuple[int, int]:
    """The clocks of two groups after a message that one of their members sent when it was 50 ms past, and so many hours
    by its own clock; the other one had it a millisecond later."""
    world = Machines(kind, {"a": 1, "b": 1}, {"early": "false"})
    world.multicast("a.1", "a", "b", now=50 * MILLISECOND + hours * 3600 * 1000 * MILLISECOND)
    world.sync("a.1")
    world.under_way["a.1", "b.1"] = world.under_way["a.1", "b.1"][:1]  # START
    world.arrive("a.1", "b.1", now=51 * MILLISECOND)
    return world.protocol("a.1").clock, world.protocol("b.1").clock


@pytest.mark.parametrize(("kind", "clock"), [(Primcast, 50_000), (TakesItsOwnTimeOnly, 51_000)])
def test_all_groups_take_the_time_when_it_was_sent(kind: type[Primcast], clock: int) -> None:
    assert at_both(kind) == (50_000, clock)


@pytest.mark.parametrize(("kind", "is_bounded"), [(Primcast, True), (TakesAnyTime, False)])
def test_nobody_takes_a_time_that_is_far_from_its_own(kind: type[Primcast], is_bounded: bool) -> None:
    assert (at_both(kind, hours=1)[1] == 51_000) == is_bounded


@pytest.mark.parametrize(("kind", "clocks"), [(Primcast, [50_000, 50_001]), (GivesTheTimeItself, [50_000, 50_000])])
def test_what_was_sent_at_one_time_gets_timestamps_of_its_own(kind: type[Primcast], clocks: list[int]) -> None:
    world = Machines(kind, {"a": 3}, {})
    for _ in range(2):
        world.multicast("a.1", "a", now=50 * MILLISECOND)
    assert [logged.timestamp for logged in world.protocol("a.1").log.entries] == clocks
