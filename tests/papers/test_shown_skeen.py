"""Skeen's readers see what is delivered before it is durable here, where the clock is not behind (skeen.md, L14)."""

from __future__ import annotations

import pytest

from antiphon.core.events import Delivered
from antiphon.protocols.skeen import Skeen
from mutants.skeen import ShowsThoughItsClockGrows
from papers.disks import Machines


def shown(world: Machines, name: str) -> list[str]:
    return [str(event.id) for event in world[name].shown if isinstance(event, Delivered)]


def passes(world: Machines, source: str, target: str) -> None:
    world.arrive(source, target)
    world.sync(target)


def proposed() -> Machines:
    """a.1 has multicast; all have proposed 1, and a.1 has said that this is final."""
    world = Machines(Skeen, {"a": 3})
    world.multicast("a.1", "a", payload=b"one")
    world.sync("a.1")
    for other in ("a.2", "a.3"):
        passes(world, "a.1", other)
        passes(world, other, "a.1")
    return world


def test_readers_see_it_with_the_final_timestamp_and_it_is_logged_when_that_is_durable() -> None:
    world = proposed()
    world.arrive("a.1", "a.2")
    assert shown(world, "a.2") == ["a.1:1"]
    assert not world["a.2"].delivered
    assert not world["a.2"].host.is_awaited, "nobody waits for that sync"
    world.sync("a.2")
    assert world["a.2"].delivered == ["a.1:1"]
    assert shown(world, "a.2") == ["a.1:1"], "once"


def test_what_was_shown_and_forgotten_comes_again_at_its_place() -> None:
    world = proposed()
    world.arrive("a.1", "a.2")
    world.crash("a.2")
    world.restart("a.2")
    assert not world["a.2"].delivered
    world.multicast("a.3", "a", payload=b"two")
    world.drain()
    assert [world[name].payloads for name in world.machines] == [[b"one", b"two"]] * 3


def test_who_decides_shows_it_at_once_and_says_it_when_it_is_durable() -> None:
    """Should it forget a proposal, it hears the same one again, and decides the same."""
    world = Machines(Skeen, {"a": 3})
    world.multicast("a.1", "a")
    world.sync("a.1")
    for other in ("a.2", "a.3"):
        passes(world, "a.1", other)
        world.arrive(other, "a.1")
    assert shown(world, "a.1") == ["a.1:1"]
    assert not world.under_way.get(("a.1", "a.2")), "its word waits for the disk"
    world.crash("a.1")
    world.restart("a.1")
    world.multicast("a.3", "a")
    world.drain()
    assert [world[name].delivered for name in world.machines] == [["a.1:1", "a.3:1"]] * 3


@pytest.mark.parametrize(("kind", "is_shown"), [(Skeen, False), (ShowsThoughItsClockGrows, True)])
def test_a_clock_that_grows_is_durable_before(kind: type[Skeen], is_shown: bool) -> None:
    """a.2 has proposed 1 for b.1:1, of which a.1 has not heard, and 2 for c.1:1. If a.1 forgets that final timestamp,
    it proposes 2 for b.1:1, which then comes before c.1:1."""
    world = Machines(kind, {"a": 2, "b": 1, "c": 1})
    world.multicast("b.1", "a")
    world.sync("b.1")
    passes(world, "b.1", "a.2")
    world.multicast("c.1", "a")
    world.sync("c.1")
    for member in ("a.1", "a.2"):
        passes(world, "c.1", member)
        passes(world, member, "c.1")
    world.arrive("c.1", "a.1")
    assert bool(shown(world, "a.1")) == is_shown
    world.crash("a.1")
    world.restart("a.1")
    world.arrive("b.1", "a.1")  # before the word that it forgot
    world.sync("a.1")
    world.drain()
    assert world["a.1"].delivered == world["a.2"].delivered == ["b.1:1", "c.1:1"]
