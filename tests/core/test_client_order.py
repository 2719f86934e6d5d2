"""A client's order, under every protocol: messages may change places on the way, the client's requests do not."""

from __future__ import annotations

from functools import cache

import pytest

from antiphon.core import Promise
from antiphon.protocols import protocols
from antiphon.simulation import MILLISECOND, Exponential, Outcome, Plan, Scenario, simulate

RUNS = 8
# Those whose messages do change places; the others keep them in order by themselves.
INVERTING = {"ctbroadcast", "mto", "nonminimal", "reliable", "scalatom", "skeen", "tom"}


@cache
def outcomes(name: str) -> list[Outcome]:
    """Two clients, each with many requests under way to one set of groups; no faults, and messages that overtake."""
    assumes = protocols()[name].declaration.assumes
    destinations = ("a",) if assumes.one_group else ("a", "b")
    plans = tuple(Plan(f"c{1 + i % 2}", i * MILLISECOND // 2, destinations, payloads=1 + i % 3) for i in range(24))
    return [
        simulate(
            Scenario(
                protocol=name,
                groups={"a": 3, "b": 2},
                plans=plans,
                latency=Exponential(MILLISECOND // 10, 6 * MILLISECOND),
                fifo=False,
                sent_survives=True,
                through_members=True,
                seed=seed,
            )
        )
        for seed in range(RUNS)
    ]


def inverted_messages(outcome: Outcome) -> int:
    """How often a process delivered a message before an earlier one of the same member to the same groups."""
    newest: dict[tuple[object, ...], int] = {}
    found = 0
    for row in outcome.rows:
        if row.kind == "deliver":
            origin, _, number = (row.message or "").rpartition(":")
            stream = (row.process, origin, row.destinations)
            found += int(number) < newest.get(stream, 0)
            newest[stream] = max(newest.get(stream, 0), int(number))
    return found


@pytest.mark.parametrize("name", sorted(protocols()))
def test_requests_come_in_the_order_in_which_they_were_sent(name: str) -> None:
    for outcome in outcomes(name):
        assert outcome.violations == []
        assert Promise.CLIENT_ORDER in outcome.facts.promises
        expected: dict[tuple[object, ...], int] = {}
        for row in outcome.rows:
            for cell in (row.requests or ()) if row.kind == "deliver" else ():
                session = (row.process, cell.client, row.destinations)
                assert cell.first == expected.get(session, 0), "no hole, no repeat, no inversion"
                expected[session] = cell.first + cell.payloads
        assert len(expected) == 2 * (3 if protocols()[name].declaration.assumes.one_group else 5)
        assert set(expected.values()) == {24}
    # The test can fail: the messages that carry them do change places.
    inverting = sum(inverted_messages(outcome) > 0 for outcome in outcomes(name))
    assert (inverting > 0) == (name in INVERTING)


def test_the_waiting_ones_are_logged_with_the_message_that_they_waited_for() -> None:
    waited = [
        row
        for outcome in outcomes("tom")
        for row in outcome.rows
        if row.kind == "deliver" and len(row.requests or ()) > 1
    ]
    assert waited, "without gathering, a message has one request of its own"
    empty = [row for outcome in outcomes("tom") for row in outcome.rows if row.kind == "deliver" and not row.requests]
    assert empty
