"""`antiphon sweep`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from antiphon.cli.flags import JsonFlag, MasterFlag, RemoteFlag, master_of
from antiphon.cli.printing import Printer, counted, print_table
from antiphon.cli.progress import on_stderr
from antiphon.cli.session import mounted, need_spark, one_sentence, quiet_session, refuse_elsewhere
from antiphon.core.errors import UsageError
from antiphon.sweep import Sweep, parse_spec
from antiphon.sweep.folder import POINT, SweepFolder
from antiphon.sweep.summary import SHOWN, Summary, summary

ROWS_EXPECTED = 1_000_000  # in a round: Java compiles quickly, and does not divide small work into smaller
POINTS_SHOWN = 40


def register(app: typer.Typer) -> None:
    app.command("sweep")(sweep_command)


def sweep_command(
    spec: Annotated[Path, typer.Argument(help="What to run: seeds, and grids of protocols and parameters, as TOML.")],
    out: Annotated[str, typer.Option(help="The folder of the results; a sweep that was interrupted goes on there.")],
    master: MasterFlag = None,
    remote: RemoteFlag = None,
    json: JsonFlag = False,
) -> None:
    """Run a grid of simulations on Spark.

    Every combination of protocol, parameters and seed is run once. The folder gets a table of figures with one row per
    run, and their trace. Exit code 1: some runs broke a promise or could not be made; their rows say why.

    Example: antiphon sweep grid.toml --out results
    """
    text = _text_of(spec)
    sweep = parse_spec(text, str(spec))
    where = master_of(master, remote)
    refuse_elsewhere(out, where, "--out ")
    folder = SweepFolder.prepare(mounted(out, "A sweep writes into"), sweep, text)
    before, start = folder.done(), time.monotonic()
    with folder.locked():
        if before < sweep.runs or folder.under_way() is not None:
            _run(sweep, folder, where)
    found = summary(folder, sweep)
    if json:
        seconds = round(time.monotonic() - start, 3)
        print(msgspec.json.encode({**msgspec.to_builtins(found), "runs_before": before, "seconds": seconds}).decode())
    else:
        _show(found, folder)
    if found.failed:
        raise typer.Exit(1)


def _text_of(spec: Path) -> str:
    try:
        return spec.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{spec} cannot be read: {why}.") from None


def _run(sweep: Sweep, folder: SweepFolder, master: str | None) -> None:
    need_spark(master)
    with on_stderr() as console, _bar(sweep.runs, console) as update, one_sentence():
        update(folder.done(), "starting Spark")
        spark = quiet_session(ROWS_EXPECTED, master)
        from antiphon.sweep.rounds import run_sweep

        run_sweep(spark, sweep, folder, lambda done: update(done, "simulating"))


@contextmanager
def _bar(runs: int, console: Console) -> Iterator[Callable[[int, str], None]]:
    """It runs to and fro until the first run that was still to be made is done: Spark takes seconds to start."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=runs, start=False)
        before: int | None = None

        def update(done: int, words: str) -> None:
            nonlocal before
            before = done if before is None else before
            progress.update(bar, completed=done, description=words)
            if done > before:
                progress.start_task(bar)

        yield update


def _show(found: Summary, folder: SweepFolder) -> None:
    console = Printer(highlight=False)
    if len(found.by_point) <= POINTS_SHOWN:
        print_table(_points_table(found), console)
    print(f"{counted(found.runs, 'run')} of {counted(found.points, 'point')}, {found.failed:,} failed: {folder.path}")
    for failure in found.failures[:SHOWN]:
        words = f"point {failure.point}, seed {failure.seed}: {failure.error}"
        console.print(escape(" ".join(words.split())), soft_wrap=True)
    if found.failed > SHOWN:
        console.print(f"and {found.failed - SHOWN:,} more: rows of {folder.metrics} whose error is not null.")


def _points_table(found: Summary) -> Table:
    """Each point by what tells it from the others."""
    told = [name for name in POINT.names if len(_values(found, name)) > 1] or ["protocol"]
    table = Table(box=None, pad_edge=False)
    table.add_column("point", justify="right")
    for name in told:
        table.add_column(name)
    for name in ("runs", "failed", "sends", "steps", "p50 ms", "p99 ms"):
        table.add_column(name, justify="right")
    for row in found.by_point:
        figures = (row.sends_per_multicast, row.steps_max, row.latency_ms_p50, row.latency_ms_p99)
        cells = [_cell(row.parameters[name]) for name in told]
        table.add_row(str(row.point), *cells, f"{row.runs:,}", f"{row.failed:,}", *map(_cell, figures))
    return table


def _values(found: Summary, name: str) -> set[str]:
    """Those of the points that have any: of random runs the seed chooses most."""
    return {str(row.parameters[name]) for row in found.by_point if row.parameters[name] is not None}


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else escape(str(value))
