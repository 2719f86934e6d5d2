"""Runs that once went wrong under the membership service of Transis, each with what was the matter."""

from __future__ import annotations

import pytest

from antiphon.protocols import protocol_named
from antiphon.simulation import random_scenario, simulate
from antiphon.simulation.values import MILLISECOND


@pytest.mark.parametrize(
    ("protocol", "seed", "most"),
    [
        # 3,398 ms: whoever had asked in vain before asked ever less often for what a new view waited for.
        ("toto", 1, 300),
        ("toto", 156, 400),  # 1,197 ms: the same
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
    assert last["g1.3"] == last["g2.2"] == ("g1.3", "g2.1", "g2.2")
