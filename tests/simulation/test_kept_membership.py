"""Runs that once went wrong under the membership service of Transis, each with what was the matter."""

from __future__ import annotations

import pytest

from antiphon.protocols import protocol_named
from antiphon.simulation import random_scenario, simulate
from antiphon.simulation.values import MILLISECOND


@pytest.mark.parametrize(
    ("protocol", "seed", "most"),
    [
        (
            "toto",
            1,
            100,
        ),  # 3,398 ms: whoever had asked in vain before asked for what a new view waited for ever less often
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
