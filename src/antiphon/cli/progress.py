"""A progress bar on standard error, for people only: a pipe or a log file gets none."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class StepsBar:
    """Shows which of a few steps a command is at, and is gone when it ends."""

    def __init__(self, count: int) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._bar = self._progress.add_task("starting", total=count)
        self._begun = False

    def __enter__(self) -> StepsBar:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._progress.stop()

    def next(self, description: str) -> None:
        """The step before is done, this one begins."""
        self._progress.update(self._bar, description=description, advance=1 if self._begun else 0)
        self._begun = True
