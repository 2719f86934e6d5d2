"""Delivery guarantees checked in-process on one run, fast enough to follow every run of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from antiphon.checks.history import FrameRow, RunHistory
from antiphon.checks.violation import VIOLATIONS_MAX, Status, Violation
from antiphon.core.promises import REGISTRY, Promise, load
from antiphon.trace import Row, RunFacts

CHECKS: dict[str, Callable[[RunHistory], list[Violation]]] = {
    str(promise): load(definition.in_process) for promise, definition in REGISTRY.items()
}


def judged(facts: RunFacts) -> list[str]:
    """The properties that can be judged of a run: promised, known, given the time that they need, and, where they
    compare the clocks of processes, told how far these may be apart."""
    promised = set(facts.promises)
    return [
        str(promise)
        for promise, definition in REGISTRY.items()
        if promise in promised
        and (facts.drained or not definition.drained)
        and (facts.clock_error_ns is not None or not definition.timed)
    ]


def check_run(facts: RunFacts, rows: Sequence[Row]) -> list[Violation]:
    """The violations of what the run promises, as far as it can be judged; rows already deduplicated."""
    return check_history(RunHistory(facts, rows))


def check_history(history: RunHistory) -> list[Violation]:
    """The same, of rows that were arranged before."""
    return [violation for name in judged(history.facts) for violation in CHECKS[name](history)]


def verdicts(facts: RunFacts, violations: Iterable[Violation]) -> dict[str, Status]:
    """What is to be said of each property that there is, and of each further one that the run promises."""
    broken = {violation.property for violation in violations}
    promised, checked = set(facts.promises), set(judged(facts))

    def status(name: str) -> Status:
        if name not in promised:
            return Status.NOT_PROMISED
        if name not in checked:
            return Status.UNCHECKED
        if name in broken:
            return Status.BROKEN
        if REGISTRY[Promise(name)].in_part and not facts.drained:
            return Status.UNCHECKED
        return Status.INCOMPLETE if facts.incomplete else Status.HOLDS

    return {name: status(name) for name in dict.fromkeys((*CHECKS, *facts.promises))}


__all__ = [
    "CHECKS",
    "VIOLATIONS_MAX",
    "FrameRow",
    "RunHistory",
    "Status",
    "Violation",
    "check_history",
    "check_run",
    "judged",
    "verdicts",
]
