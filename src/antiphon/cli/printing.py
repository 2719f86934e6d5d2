"""What commands print on a terminal, into a pipe or into a file."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.measure import Measurement

WIDTH_MAX = 10_000


class Printer(Console):
    """Rich's console, which leaves it to the program what to do when nobody reads any more."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def print_table(table: RenderableType, console: Console | None = None, *, wrap: bool = False) -> None:
    """Print a table as wide as it is, without blanks at the ends of its lines.

    Rich would cut cells until the table fits: a name or a figure that has lost its end is worth nothing, least of all
    in a pipe, where rich takes the width for 80. A line that is too long for a terminal goes on in the next one.
    ``wrap``: the cells are sentences, which may be divided.
    """
    console = console or Printer()
    before = console.width
    if not wrap:
        natural = Measurement.get(console, console.options.update(max_width=WIDTH_MAX), table).maximum
        console.width = max(before, natural)
    try:
        with console.capture() as capture:
            console.print(table)
    finally:
        console.width = before
    console.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def counted(count: int, noun: str) -> str:
    """A number and what it counts: 1 run, 2,000 runs."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
