"""The registry of promises: what can be promised has a definition and two checks, and docs/trace.md says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from antiphon.checks import CHECKS
from antiphon.core.promises import REGISTRY, Definition, Promise, load, with_those_of_the_host

PAGE = Path(__file__).parents[2] / "docs" / "trace.md"
WHERE = r"(?:\*\((drained runs|runs that state `clock_error_ns`)\)\* )?"
ROW = re.compile(rf"^\| `(\w+)` \| {WHERE}(.*) \|$", flags=re.MULTILINE)


def complaint(promise: Promise, registry: dict[Promise, Definition]) -> str | None:
    """What is missing of a promise."""
    definition = registry.get(promise)
    if definition is None:
        return f"{promise} has no definition"
    if not definition.meaning:
        return f"{promise} has no meaning"
    for place in (definition.in_process, definition.on_spark):
        try:
            check = load(place)
        except (ImportError, AttributeError, ValueError):
            return f"{promise} has no check at {place}"
        if not callable(check):
            return f"{promise} has no check at {place}"
    return None


@pytest.mark.parametrize("promise", Promise)
def test_a_promise_has_a_definition_and_both_checks(promise: Promise) -> None:
    assert complaint(promise, REGISTRY) is None
    in_process, on_spark = REGISTRY[promise].checks()
    assert in_process.__name__ == on_spark.__name__ == promise.value
    assert CHECKS[promise] is in_process


def test_a_promise_without_its_checks_would_be_found() -> None:
    definition = REGISTRY[Promise.FIFO]
    cases = {
        "fifo has no definition": {},
        "fifo has no meaning": {Promise.FIFO: definition._replace(meaning="")},
        "fifo has no check at antiphon.checks.nowhere:fifo": {
            Promise.FIFO: definition._replace(in_process="antiphon.checks.nowhere:fifo")
        },
        "fifo has no check at antiphon.pipeline.precedence:lifo": {
            Promise.FIFO: definition._replace(on_spark="antiphon.pipeline.precedence:lifo")
        },
        "fifo has no check at antiphon.pipeline.precedence:NEVER": {
            Promise.FIFO: definition._replace(on_spark="antiphon.pipeline.precedence:NEVER")
        },
    }
    for words, registry in cases.items():
        assert complaint(Promise.FIFO, registry) == words


def test_the_registry_has_exactly_the_promises_in_their_order() -> None:
    assert list(REGISTRY) == list(Promise)


def test_the_host_promises_receipts_only_where_agreement_is_uniform() -> None:
    assert with_those_of_the_host((Promise.AGREEMENT,)) == (Promise.AGREEMENT, Promise.CLIENT_ORDER)
    uniform = (Promise.UNIFORM_AGREEMENT,)
    assert with_those_of_the_host(uniform) == (*uniform, Promise.CLIENT_ORDER, Promise.RECEIPTS)


def test_the_host_promises_one_order_of_requests_where_that_of_messages_is_total() -> None:
    total = (Promise.TOTAL_ORDER,)
    assert with_those_of_the_host(total) == (*total, Promise.REQUEST_ORDER, Promise.CLIENT_ORDER)
    assert with_those_of_the_host(total, mixed=True) == (*total, Promise.CLIENT_ORDER)


def test_the_page_has_the_registrys_words() -> None:
    rows = {name: (where, meaning) for name, where, meaning in ROW.findall(PAGE.read_text())}
    found = {name: rows[name] for name in rows if name in set(Promise)}
    where = {promise: "runs that state `clock_error_ns`" if d.timed else "" for promise, d in REGISTRY.items()}
    where |= {promise: "drained runs" for promise, d in REGISTRY.items() if d.drained}
    assert found == {str(promise): (where[promise], d.meaning) for promise, d in REGISTRY.items()}
    assert list(found) == [str(promise) for promise in REGISTRY]
