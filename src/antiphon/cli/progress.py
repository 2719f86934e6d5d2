"""A progress bar on standard error, for people only: a pipe or a log file gets none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def on_stderr() -> Iterator[Console]:
    """Standard error as it is now. While Spark starts, what goes there is kept from people (`session.quiet_session`):
    what still wrote there would stand still, for the seconds in which somebody most wants to see that something moves.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield console
        return
    with os.fdopen(os.dup(2), "w", encoding="utf-8") as file:
        yield Console(file=file)


class StepsBar:
    """Shows which of a few steps a command is at, and is gone when it ends."""

    def __init__(self, count: int) -> None:
        self._open = ExitStack()
        console = self._open.enter_context(on_stderr())
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bar = self._progress.add_task("starting", total=count)
        self._begun = False

    def __enter__(self) -> StepsBar:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._progress.stop()
        self._open.close()

    def next(self, description: str) -> None:
        """The step before is done, this one begins."""
        self._progress.update(self._bar, description=description, advance=1 if self._begun else 0)
        self._begun = True
