"""`antiphon reproduce`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from antiphon.cli.printing import Printer
from antiphon.cli.progress import on_stderr
from antiphon.cli.session import need_spark, one_sentence, quiet_session
from antiphon.pipeline.masters import HERE

ROWS_EXPECTED = {True: 500_000, False: 10_000_000}  # by whether it is quick


def register(app: typer.Typer) -> None:
    app.command("reproduce")(reproduce_command)


def reproduce_command(
    what: Annotated[list[str] | None, typer.Argument(help="r1 to r9, or all, which is the default.")] = None,
    out: Annotated[Path, typer.Option(help="The folder of the results; what was interrupted goes on there.")] = Path(
        "antiphon-reproduction"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter runs: two minutes, and not hours.")] = False,
) -> None:
    """Make the papers' tables and figures again.

    Each is set beside the paper's numbers, with the deviation and with the bounds of docs/papers.md, as Markdown, CSV,
    JSON and pictures; index.html shows all of them. Exit code 1: a bound was missed, and a sentence says which.

    Example: antiphon reproduce all --quick --out papers
    """
    from antiphon import reproduce

    names = reproduce.wanted(what or [])
    reproduce.prepare(out, quick=quick)
    if reproduce.need_spark(names):
        need_spark(HERE)

    @cache
    def spark() -> Any:
        return quiet_session(ROWS_EXPECTED[quick], HERE)  # some of it is measured on real processes of this machine

    console = Printer(highlight=False)
    missed: list[str] = []
    with on_stderr() as progress, progress.status("") as status, one_sentence():
        if not progress.is_terminal:
            status.stop()
        lab = reproduce.Lab(out, spark, quick=quick, say=lambda words: status.update(escape(words)))
        for result in reproduce.reproduce(lab, names):
            words = f"{result.name}  {result.source}: {reproduce.verdict(result)} ({result.seconds:.0f} s)"
            console.print(escape(words), soft_wrap=True)
            missed += result.missed
    for sentence in missed:
        console.print(escape(f"Missed: {sentence}"), soft_wrap=True)
    console.print(escape(f"The page: {out / 'index.html'}"), soft_wrap=True)
    if missed:
        raise typer.Exit(1)
