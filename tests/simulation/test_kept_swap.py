"""Runs that show what the protocols of swap.txt do not promise."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.checks import check_run
from antiphon.core import Promise
from antiphon.protocols import protocols
from antiphon.simulation import Outcome, random_scenario, simulate

# Found by looking at the seeds from 0 on.
NOT_CAUSAL = [
    ("arrow", "travel", 0),
    ("arrow", "reduction", 0),
    ("combining", "travel", 89),
    ("combining", "reduction", 89),
    ("counting", "arrow", 1),
    ("counting", "combining", 18),
]


def broken(name: str, options: dict[str, str], seed: int, promise: Promise) -> bool:
    whole = {"gaps": "false"} if name != "counting" else {}
    whole |= {"moving": "false"} if name in ("arrow", "combining") else {}
    whole |= {"weights": ""} | ({"over": "channels"} if name != "counting" else {})
    outcome: Outcome = simulate(random_scenario(protocols()[name], seed, {**whole, **options}))
    assert outcome.violations == []
    facts = msgspec.structs.replace(outcome.facts, promises=[promise.value])
    return any(violation.property == promise.value for violation in check_run(facts, outcome.rows))


@pytest.mark.parametrize(("name", "by", "seed"), NOT_CAUSAL)
def test_protocols_by_swap_are_not_causal_across_groups(name: str, by: str, seed: int) -> None:
    assert broken(name, {"by": by}, seed, Promise.CAUSAL)


def test_nor_is_the_hybrid() -> None:
    assert broken("hybrid", {}, 35, Promise.CAUSAL)


@pytest.mark.parametrize("inner", ["2", "4"])
def test_a_hybrid_of_clusters_is_not_fifo(inner: str) -> None:
    assert broken("hybrid", {"inner": inner}, 1135, Promise.FIFO)
