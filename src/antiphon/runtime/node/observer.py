"""Who watches a process from within: told once of all that a release let out, and asked before a snapshot counts.

The driver has one, and treats all alike. This one watches nothing; the recorder of the trace is one that does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from antiphon.core.host import Turn

Then = Callable[[bool], None]


class TurnObserver:
    wants_records = False  # whether the process is to say what is in no other effect

    def __init__(self) -> None:
        self.on_done: Callable[[Future[None]], None] = lambda done: None  # told, on some thread, of each thing done

    @property
    def state(self) -> str:
        """What is wrong with it; empty: nothing."""
        return ""

    @property
    def is_behind(self) -> bool:
        """Whether it has so much to do that the process should take nothing more."""
        return False

    @property
    def is_of_this_life(self) -> bool:
        """Whether the process, as it is, has seen all that was seen of it before."""
        return True

    def on_turns(self, turns: Sequence[Turn], *, replayed: bool) -> None:
        """What was just released; or, after a crash, what was."""

    def write(self, then: Then) -> None:
        """Keep all that was seen, durably; ``then`` is told, on some thread, whether no replay need show it again."""
        then(True)

    def finish(self, seconds: float | None = None) -> bool:
        """Keep all that was seen, and wait for it. False: a replay has to show it again."""
        return True

    def close(self) -> None:
        """Nothing more is to be seen."""
