"""Runs that once went wrong under the membership service of Transis, each with what was the matter."""

from __future__ import annotations

from collections import defaultdict

import pytest

from antiphon.checks import RunHistory
from antiphon.protocols import protocol_named
from antiphon.simulation import Outcome, random_scenario, simulate
from antiphon.simulation.values import MILLISECOND


@pytest.mark.parametrize(
    ("protocol", "seed", "most"),
    [
        # 3,398 ms: whoever had asked in vain before asked ever less often for what a new view waited for.
        ("toto", 1, 300),
        ("allack", 180, 600),  # 961 ms: it was as patient as if there were no membership service
    ],
)
def test_a_view_does_not_wait_long_for_what_is_missing(protocol: str, seed: int, most: int) -> None:
    outcome = simulate(random_scenario(protocol_named(protocol), seed, {"membership": "true"}))
    assert outcome.violations == []
    entered = {(row.process, row.message): row.time_ns for row in outcome.rows if row.kind == "enter"}
    waits = [row.time_ns - entered[row.process, row.message] for row in outcome.rows if row.kind == "deliver"]
    assert max(waits) < most * MILLISECOND


def test_who_was_in_another_view_meanwhile_comes_back() -> None:
    """g2.2 left its view for one with g1.2, which crashed then. Back with the others, it did not say that it had been
    away; and they, for whom nobody was missing, did not make a new view."""
    outcome = simulate(random_scenario(protocol_named("toto"), 20372, {"membership": "true"}))
    assert outcome.violations == []
    last = {row.process: row.peers for row in outcome.rows if row.kind == "view"}
    assert last["g1.3"] == last["g2.2"] == ("g1.3", "g2.2"), "the others are down"


@pytest.mark.parametrize("seed", [1005, 1132, 1221, 1379])
def test_those_who_go_on_together_have_the_same_holes(seed: int) -> None:
    """A member believed what the client called settled, and handed on its next request without what was still under
    way: whoever got that one first dropped the rest."""
    outcome = simulate(random_scenario(protocol_named("transis"), seed, {"membership": "true"}))
    assert (outcome.violations, dropped(outcome)) == ([], [])


@pytest.mark.parametrize(
    "seed",
    [
        90229,  # two sides met, and each handed on what it had: who got the later number first dropped the other
        90546,
        90571,
        90605,
        91321,  # a request that was gathered in the turn in which the sides met
    ],
)
def test_no_copy_of_a_request_comes_too_late(seed: int) -> None:
    outcome = simulate(random_scenario(protocol_named("toto"), seed, {"membership": "true"}))
    assert (outcome.violations, dropped(outcome)) == ([], [])


def dropped(outcome: Outcome) -> list[tuple[str, str, int]]:
    """Requests that came to a process in a message and were never delivered there, though nothing later had been when
    the view began: process, client, number."""
    history = RunHistory(outcome.facts, outcome.rows)
    found = []
    for process, rows in history.deliveries.items():
        begins = [row.seq for row in history.views[process]]
        mine: dict[object, dict[int, int]] = defaultdict(dict)  # by client and groups: the numbers, and when
        for row in rows:
            for cell in row.requests or ():
                mine[cell.client, row.destinations][cell.first] = row.seq
        for row in rows:
            begin = max(seq for seq in begins if seq < row.seq)
            for cell in history.multicasts[row.message or ""].row.requests or ():
                numbers = mine[cell.client, row.destinations]
                later = any(number > cell.first and seq < begin for number, seq in numbers.items())
                if cell.first not in numbers and not later and cell.client not in history.processes_as_clients:
                    found.append((process, cell.client, cell.first))
    return found


@pytest.mark.parametrize(("protocol", "seed"), [("toto", 3020276), ("allack", 3005265)])
def test_who_is_amid_a_delivery_delivers_nothing_else(protocol: str, seed: int) -> None:
    """A delivery let a client's next request go, that told all others of a mark, and that note let more be delivered:
    before what was being delivered. Found by one run in twenty thousand."""
    scenario = random_scenario(protocol_named(protocol), seed)
    assert scenario.options == {"membership": "true"}
    assert simulate(scenario).violations == []
