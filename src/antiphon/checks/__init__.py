"""Delivery guarantees checked in-process on one run, fast enough to follow every run of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from antiphon.checks.delivery import agreement, integrity, uniform_agreement, validity
from antiphon.checks.genuineness import genuineness
from antiphon.checks.history import History
from antiphon.checks.locality import locality
from antiphon.checks.order import acyclic_order, total_order
from antiphon.checks.precedence import causal, fifo
from antiphon.checks.violation import VIOLATIONS_MAX, Violation
from antiphon.trace import Row, RunFacts

CHECKS: dict[str, Callable[[History], list[Violation]]] = {
    "integrity": integrity,
    "validity": validity,
    "agreement": agreement,
    "uniform_agreement": uniform_agreement,
    "total_order": total_order,
    "acyclic_order": acyclic_order,
    "fifo": fifo,
    "causal": causal,
    "genuineness": genuineness,
    "locality": locality,
}


def check_run(facts: RunFacts, rows: Sequence[Row]) -> list[Violation]:
    """The violations of what the run promises, as far as a check stands here for it; rows already deduplicated."""
    history = History(facts, rows)
    promised = set(facts.promises)
    return [violation for name, check in CHECKS.items() if name in promised for violation in check(history)]


__all__ = ["CHECKS", "VIOLATIONS_MAX", "History", "Violation", "check_run"]
