"""What docs/mutants.md says: the first seed at which each mutant shows. Tests look there first, and then everywhere."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "mutants.md"
_ROW = re.compile(r"^\| (\w+) \| (\w+) \| (\d+): (livelock)?", re.MULTILINE)


@cache
def first_seeds() -> dict[tuple[str, str], int]:
    """By protocol and mutant. A page that is out of date makes the tests slow, not wrong.

    A livelock takes the longest to see, so that a look at the seeds after it is quicker.
    """
    return {
        (protocol, mutant): int(seed) + bool(livelock)
        for protocol, mutant, seed, livelock in _ROW.findall(PAGE.read_text())
    }
