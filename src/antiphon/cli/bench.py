"""`antiphon bench`: the papers' measurements on real processes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from antiphon.core.errors import UsageError


def register(app: typer.Typer) -> None:
    bench = typer.Typer(help="Measure a protocol on real processes.", no_args_is_help=True, rich_markup_mode=None)
    bench.command("tom")(tom_command)
    app.add_typer(bench, name="bench")


def tom_command(
    messages: Annotated[int, typer.Option(min=100, help="Multicasts of one point.")] = 10_000,
    seconds: Annotated[
        float, typer.Option(min=1.0, help="A slow point has only what can be sent in this time.")
    ] = 100.0,
    samples: Annotated[int, typer.Option(min=10, help="Messages behind each mean delivery time.")] = 500,
    size: Annotated[list[int], typer.Option(help="Bytes of payload; may be repeated.")] = [10, 500, 1000],  # noqa: B006 - typer
    figures: Annotated[Path | None, typer.Option(help="Write the figures and the numbers into this folder.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")] = False,
) -> None:
    """TOM on three groups of three real processes: Figures 2 and 3 and Table 2 of tom.txt.

    Example: antiphon bench tom --messages 2000 --seconds 5 --figures out
    """
    from antiphon.reproduce import tom

    if any(each < 0 or each > 1 << 20 for each in size):
        raise UsageError("A payload has 0 to 1048576 bytes.")
    console = Console(stderr=True)

    def say(point: tom.Point) -> None:
        kind = "sets" if point.sets else "single"
        note = f", {point.crashed} coordinators killed" if point.crashed else ", journal on" if point.journal else ""
        asked = f"{point.sent_per_s:g}/s" if point.sent_per_s else "as fast as possible"
        console.print(
            f"{kind:6} {point.size:5} bytes, sent {asked:>19}: delivered {point.delivered_per_s:8.1f}/s, "
            f"{point.consensus} consensus executions for {point.messages} messages{note}",
            soft_wrap=True,
            highlight=False,
        )

    with tempfile.TemporaryDirectory(prefix="antiphon-bench-") as folder:
        place = Path(folder) / "cluster"
        result = tom.reproduce(place, messages=messages, seconds=seconds, samples=samples, sizes=size, say=say)
    if figures is not None:
        from antiphon.reproduce.tom_figures import draw

        figures.mkdir(parents=True, exist_ok=True)
        (figures / "tom.json").write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1))
        draw(result, figures)
    if json:
        print(msgspec.json.encode(result).decode())
    else:
        _show(result)
    if not result.best(sets=True, size=10):
        console.print("The ratio at 10 bytes was not measured.")
    missed = tom.check(result)
    for sentence in missed:
        console.print(f"Not reached: {sentence}")
    if missed:
        raise typer.Exit(1)


def _show(result: object) -> None:
    from antiphon.reproduce.tom import Reproduction

    assert isinstance(result, Reproduction)
    console = Console()
    best = Table("bytes", "single, messages/s", "sets, messages/s", "ratio", title="Highest delivery rate", box=None)
    for size in sorted({point.size for point in result.points}):
        single, sets = result.best(sets=False, size=size), result.best(sets=True, size=size)
        if single:
            best.add_row(str(size), f"{single:,.0f}", f"{sets:,.0f}", f"{sets / single:.1f}")
    console.print(best)
    table = Table("bytes", "groups", "mean ms", "p99 ms", "paper's mean ms", title="Delivery time", box=None)
    for each in result.delivery_times:
        table.add_row(str(each.size), str(each.groups), str(each.mean_ms), str(each.p99_ms), str(each.paper_ms))
    console.print(table)
