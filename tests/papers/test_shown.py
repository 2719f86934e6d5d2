"""primcast where readers see what is delivered before it is durable here (docs/protocols/primcast.md, L35)."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from antiphon.core.events import Delivered
from antiphon.protocols.primcast import Primcast
from mutants.shown import SHOWS_THOUGH_MORE_WAITS, ShowsWithItsOwnClock, ShowsWithItsOwnVote
from papers.disks import Machines

LOGICAL = {"hybrid": "false"}


def shown(world: Machines, name: str) -> list[str]:
    return [str(event.id) for event in world[name].shown if isinstance(event, Delivered)]


def voted() -> Machines:
    """a.1 and a.2 have it on disk, and a.1 hears so."""
    world = Machines(Primcast, {"a": 3}, LOGICAL)
    world.multicast("a.1", "a", payload=b"one")
    world.sync("a.1")
    world.arrive("a.1", "a.2")
    world.sync("a.2")
    world.arrive("a.2", "a.1")
    return world


def test_readers_see_it_when_a_majority_has_it_and_it_is_logged_when_it_is_durable() -> None:
    world = voted()
    assert shown(world, "a.1") == ["a.1:1"]
    assert not world["a.1"].delivered
    assert not world["a.1"].host.is_awaited, "nobody waits for that sync"
    world.sync("a.1")
    assert world["a.1"].delivered == ["a.1:1"]
    assert shown(world, "a.1") == ["a.1:1"], "once"


def test_what_was_shown_and_forgotten_comes_again_at_its_place() -> None:
    world = voted()
    world.crash("a.1")
    world.restart("a.1")
    assert not world["a.1"].delivered
    world.multicast("a.3", "a", payload=b"two")
    world.drain()
    world.ring(*world.machines)
    world.drain()
    assert [world[name].payloads for name in world.machines] == [[b"one", b"two"]] * 3


def test_what_was_shown_by_one_that_never_returns_is_what_the_others_deliver() -> None:
    world = voted()
    world.crash("a.1")
    world.drop("a.1")
    for name in ("a.2", "a.3"):
        world.suspect(name, "a.1")
    world.multicast("a.3", "a", payload=b"two")
    world.drain("a.2", "a.3")
    world.ring("a.2", "a.3")
    world.drain("a.2", "a.3")
    assert [world[name].payloads for name in ("a.2", "a.3")] == [[b"one", b"two"]] * 2


@pytest.mark.parametrize(("kind", "is_shown"), [(Primcast, False), (ShowsWithItsOwnVote, True)])
def test_its_own_vote_is_durable_before(kind: type[Primcast], is_shown: bool) -> None:
    """a.2 would be the second of a majority: if it forgets that, and a.1 is gone, a.3 has never heard of it."""
    world = Machines(kind, {"a": 3}, {**LOGICAL, "early": "false"})
    world.multicast("a.1", "a")
    world.sync("a.1")
    world.arrive("a.1", "a.2")
    assert bool(shown(world, "a.2")) == is_shown
    world.sync("a.2")
    assert world["a.2"].delivered == ["a.1:1"]


@pytest.mark.parametrize(("kind", "is_shown"), [(Primcast, False), (ShowsWithItsOwnClock, True)])
def test_its_own_clock_is_durable_before(kind: type[Primcast], is_shown: bool) -> None:
    """b's timestamp is the greater one, and raises a.2's clock: only a.1's, and that, keep later messages behind it. If
    a.2 forgets its clock, and a.1 is gone, a.2 and a.3 would give lower timestamps to others."""
    world = Machines(kind, {"a": 3, "b": 1}, {**LOGICAL, "early": "false"})
    for _ in range(5):
        world.multicast("b.1", "b")
    world.drain("b.1")
    world.multicast("a.1", "a", "b")
    world.drain("a.1", "a.2", "a.3")  # a has decided
    world.sync("a.1")
    world.arrive("a.1", "b.1")
    world.sync("b.1")
    world.arrive("b.1", "a.1")
    world.sync("a.1")
    world.arrive("a.1", "a.2")
    world.sync("a.2")
    world.arrive("b.1", "a.2")
    assert bool(shown(world, "a.2")) == is_shown
    world.sync("a.2")
    assert world["a.2"].delivered == ["a.1:1"]


@pytest.mark.parametrize("is_wrong", [False, True])
def test_all_inputs_before_it_are_durable(is_wrong: bool) -> None:
    """a.2's word comes while a.1 has yet to hear that its own entry is on its disk."""
    world = Machines(Primcast, {"a": 3}, LOGICAL)
    world.multicast("a.1", "a")
    world["a.1"].disk.begin_sync()
    world.arrive("a.1", "a.2")
    world.sync("a.2")
    with SHOWS_THOUGH_MORE_WAITS.made() if is_wrong else nullcontext():
        world.arrive("a.2", "a.1")
    assert bool(shown(world, "a.1")) == is_wrong
    if not is_wrong:
        world["a.1"].host.durable(world["a.1"].disk.sync_done())
        assert shown(world, "a.1") == ["a.1:1"]
        assert not world["a.1"].delivered, "its own input waits for the next sync"


def test_with_the_order_of_real_time_readers_wait() -> None:
    world = Machines(Primcast, {"a": 3}, {**LOGICAL, "order": "realtime"})
    world.multicast("a.1", "a")
    world.drain()
    assert world["a.1"].delivered == ["a.1:1"]
    assert not any(shown(world, name) for name in world.machines)
