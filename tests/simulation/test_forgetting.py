"""Every schedule of three members whose disks forget: primcast breaks nothing, and mistakes show within a few steps."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from antiphon.protocols.primcast import Primcast
from antiphon.simulation.forgetting import ForgettingScope, search_forgetting
from mutants import foretold, hearsay, shown
from mutants.host import Slip

CONFIGURATIONS = 300  # of an honest search here; all of them: benchmarks/forgetting.py
FOUND_WITHIN = 3_000


def scope(kind: type[Primcast] = Primcast, *crashing: str, early: bool = True, at: str = "a.1") -> ForgettingScope:
    options = {"hybrid": "false", "early": str(early).lower()}
    who = crashing or ("a.1",)
    return ForgettingScope(kind, {"a": 3}, options, [(at, ("a",))], crashes=len(who), crashing=who)


@pytest.mark.parametrize("crashing", [("a.1",), ("a.1", "a.2"), ("a.2",)])
@pytest.mark.parametrize("at", ["a.1", "a.2"])
@pytest.mark.parametrize("early", [True, False])
def test_nothing_is_lost_where_disks_forget(crashing: tuple[str, ...], at: str, early: bool) -> None:
    found = search_forgetting(scope(Primcast, *crashing, early=early, at=at), CONFIGURATIONS)
    assert found.violation is None, found.path
    assert found.configurations >= CONFIGURATIONS


@pytest.mark.parametrize(
    ("mistake", "crashing", "early", "steps"),
    [
        (foretold.LeadsOn, ("a.1",), True, 4),
        (foretold.GivesLabelsAgain, ("a.1",), True, 4),
        (foretold.CountsTheEarlyAppend, ("a.1",), True, 4),
        (foretold.LeavesItToTheOthers, ("a.1",), True, 2),
        (foretold.DoesNotHearThatOthersHaveMore, ("a.1",), True, 4),
        (foretold.GivesNamesAgain, ("a.1",), True, 9),
        (foretold.CountsEarlyVotes, ("a.1", "a.2"), True, 7),
        (foretold.AnswersWithTheAppend, ("a.1", "a.2"), False, 7),
        (shown.ShowsWithItsOwnVote, ("a.1", "a.2"), False, 7),
        (shown.SHOWS_THOUGH_MORE_WAITS, ("a.1", "a.2"), True, 6),
    ],
    ids=lambda value: value.name if isinstance(value, Slip) else getattr(value, "__name__", None),
)
def test_mistakes_show_by_the_fewest_steps(
    mistake: type[Primcast] | Slip, crashing: tuple[str, ...], early: bool, steps: int
) -> None:
    kind = Primcast if isinstance(mistake, Slip) else mistake
    with mistake.made() if isinstance(mistake, Slip) else nullcontext():
        found = search_forgetting(scope(kind, *crashing, early=early), FOUND_WITHIN)
    assert found.violation is not None
    assert len(found.path) == steps, found.path


def two_groups_of_one(kind: type[Primcast] = Primcast, *, early: bool) -> ForgettingScope:
    """Two frames may come in one turn."""
    requests = [("b.1", ("a", "b")), ("a.1", ("a",))]
    options = {"hybrid": "false", "early": str(early).lower()}
    return ForgettingScope(kind, {"a": 1, "b": 1}, options, requests, crashing=("a.1",), together=True)


@pytest.mark.parametrize("early", [True, False])
def test_nothing_is_lost_where_frames_come_together(early: bool) -> None:
    found = search_forgetting(two_groups_of_one(early=early), CONFIGURATIONS)
    assert found.violation is None, found.path


def test_a_timestamp_that_is_forgotten_as_hearsay_shows() -> None:
    """It is given, and the other group's is heard, in one turn; without that the end of the turn stands between."""
    mistake = hearsay.TakesAnyStartForHearsay
    found = search_forgetting(two_groups_of_one(mistake, early=False), FOUND_WITHIN)
    assert found.violation is not None
    assert len(found.path) == 7, found.path
    apart = two_groups_of_one(mistake, early=False)._replace(together=False)
    assert search_forgetting(apart, CONFIGURATIONS).violation is None
