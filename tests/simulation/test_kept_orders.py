"""Declarations are tight: each order that a protocol does not promise is broken by some run."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.checks import check_run
from antiphon.core import Promise
from antiphon.protocols import protocols
from antiphon.simulation import random_scenario, simulate
from antiphon.simulation.search import Scope, explore

# Found by looking at the seeds from 0 on.
KEPT = [
    ("reliable", Promise.FIFO, 0),
    ("reliable", Promise.CAUSAL, 0),
    ("fifo", Promise.CAUSAL, 7),
    ("fifo", Promise.TOTAL_ORDER, 2),
    ("fifo", Promise.ACYCLIC_ORDER, 2),
    ("causal", Promise.TOTAL_ORDER, 0),
    ("causal", Promise.ACYCLIC_ORDER, 0),
    # With gaps: test_behind_a_gap_requests_may_be_in_different_orders.
    ("reliable", Promise.REQUEST_ORDER, 8),
    ("fifo", Promise.REQUEST_ORDER, 6),
    ("causal", Promise.REQUEST_ORDER, 17),
    ("allack", Promise.REQUEST_ORDER, 6),
    ("toto", Promise.REQUEST_ORDER, 0),  # which promises a total order there, of the messages that ask for it
    ("transis", Promise.REQUEST_ORDER, 7),
]
ORDERS = {Promise.FIFO, Promise.CAUSAL, Promise.TOTAL_ORDER, Promise.ACYCLIC_ORDER, Promise.REQUEST_ORDER}


@pytest.mark.parametrize(("name", "promise", "seed"), KEPT)
def test_each_promise_that_is_not_made_is_broken_by_some_run(name: str, promise: Promise, seed: int) -> None:
    outcome = simulate(random_scenario(protocols()[name], seed))
    assert outcome.violations == []
    facts = msgspec.structs.replace(outcome.facts, promises=[promise.value])
    assert {violation.property for violation in check_run(facts, outcome.rows)} == {promise.value}


@pytest.mark.parametrize("name", ["fifo", "causal"])
def test_every_order_is_promised_or_broken(name: str) -> None:
    broken = {promise for protocol, promise, _ in KEPT if protocol == name}
    assert broken | (ORDERS & set(protocols()[name].declaration.promises)) == ORDERS


@pytest.mark.parametrize(
    ("name", "options"), [("fifo", {}), ("causal", {"timestamps": "whole"}), ("causal", {"timestamps": "nearest"})]
)
@pytest.mark.parametrize("groups", [{"a": 1, "b": 1}, {"a": 2, "b": 1}])
@pytest.mark.parametrize("how", [{"shuffle": True}, {"restarts": True}])
def test_all_states_of_a_small_world_keep_the_promises(
    name: str, options: dict[str, str], groups: dict[str, int], how: dict[str, bool]
) -> None:
    """But for causal order, which the search does not judge."""
    plans = (("c", ("a",)), ("c", ("a", "b")), ("a.1", ("a", "b")))
    found = explore(Scope(protocol=name, options=options, groups=groups, plans=plans, **how))
    assert found.complete
    assert found.violations == []
