"""What docs/mutants.md says: the first seed at which each mutant shows. Tests look there first, and then everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from antiphon.checks import Violation
from antiphon.simulation import ERROR

PAGE = Path(__file__).parent.parent.parent / "docs" / "mutants.md"
_ROW = re.compile(r"^\| (\w+) \| (\w+) \| (?:[^|]*\| )?(\d+): (livelock)?[^|]*\|", re.MULTILINE)


def is_caught(violations: Iterable[Violation]) -> bool:
    """Whether a mutant shows. That it dies of any exception is not enough: a name that it does not find would do."""
    return any(violation.property != ERROR for violation in violations)


@cache
def first_seeds() -> dict[tuple[str, str], int]:
    """By protocol and mutant: where a checked property is broken, if any is.

    A page that is out of date makes the tests slow, not wrong. A livelock takes the longest to see, so that
    a look at the seeds after it is quicker.
    """
    return {
        (protocol, mutant): int(seed) + bool(livelock)
        for protocol, mutant, seed, livelock in _ROW.findall(PAGE.read_text())
    }
