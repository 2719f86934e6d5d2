"""`antiphon soak`: a real cluster under load and under faults of all kinds, judged by Spark and by its clients."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from antiphon.checks import Status
from antiphon.cli.flags import JsonFlag, OptionFlag, parse_option_flags
from antiphon.cli.session import check_trace, collected, need_spark, one_sentence, quiet_session
from antiphon.core import parse_groups
from antiphon.core.errors import UsageError
from antiphon.pipeline.masters import HERE

if TYPE_CHECKING:
    from antiphon.soak import SoakReport, SoakSettings


def register(app: typer.Typer) -> None:
    app.command("soak")(soak_command)


def soak_command(
    minutes: Annotated[float, typer.Option(min=0.05, help="How long faults strike.")] = 5.0,
    protocol: Annotated[str | None, typer.Option(help="Which protocol; see `antiphon protocols`.")] = None,
    option: OptionFlag = [],  # noqa: B006 - typer wants a list
    groups: Annotated[str, typer.Option(help="The groups: 2x3, or orders=3,billing=3.")] = "2x3",
    clients: Annotated[int, typer.Option(min=1, max=100, help="Client processes that multicast all the time.")] = 3,
    seed: Annotated[int, typer.Option(help="The same seed gives the same episodes of faults.")] = 1,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Work in this new folder, and leave it there.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Break a real cluster in every way, and see what holds.

    Its processes are killed, paused, cut off and left without room, under load.

    Exit code 0: nothing was found. 1: something was; each finding names the seed and the episode.

    Example: antiphon soak --minutes 5 --seed 1
    """
    from antiphon.protocols import DEFAULT_PROTOCOL
    from antiphon.soak import SoakSettings

    if not isfinite(minutes):
        raise UsageError("A soak takes a number of minutes.")
    settings = SoakSettings(
        protocol=protocol or DEFAULT_PROTOCOL,
        options=parse_option_flags(option),
        groups=parse_groups(groups),
        seed=seed,
        minutes=minutes,
        clients=clients,
    )
    need_spark(HERE)
    console = Console(stderr=json, highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="antiphon-soak-") as temporary:
        report = run_soak(directory or Path(temporary) / "cluster", settings, console, keep=directory is not None)
    if json:
        print(msgspec.json.encode(report).decode())
    else:
        show(console, report)
    if not report.holds:
        raise typer.Exit(1)


def run_soak(path: Path, settings: SoakSettings, console: Console, *, keep: bool) -> SoakReport:
    import uvloop

    from antiphon.soak import Soak, create

    soak = Soak(create(path, settings), settings, lambda line: console.print(line, markup=False))
    try:
        report = uvloop.run(soak.run())
        if report.came_to_its_end:
            with one_sentence(), console.status("Spark judges the trace"):
                judge_trace(path / "trace", report)
    finally:
        soak.leave(keep=keep)
    return report


def judge_trace(trace: Path, report: SoakReport) -> None:
    """Let Spark check every promise, as `antiphon verify` does; what does not hold is a finding."""
    check_trace(trace, HERE)
    spark = quiet_session(trace, HERE)
    from antiphon.pipeline.read import read_events, read_runs
    from antiphon.pipeline.verify import verdicts, verify

    events, runs = read_events(spark, trace), read_runs(spark, trace)
    violations = verify(events, runs)
    take_verdicts(report, collected(verdicts(violations, runs)), collected(violations))


def take_verdicts(report: SoakReport, judged: Sequence[dict[str, Any]], broken: Sequence[dict[str, Any]]) -> None:
    for row in judged:
        report.verdicts[row["property"]] = row["status"]
        if row["status"] in (Status.INCOMPLETE, Status.UNCHECKED):
            report.add("trace", f"{row['property']} is {row['status']}.")
    for row in broken:
        report.add("trace", f"{row['property']} is broken: {row['detail']}")


def show(console: Console, report: SoakReport) -> None:
    settings = report.settings
    table = Table(box=None, show_header=False, pad_edge=False)
    delivered = sorted(e.delivery_seconds for e in report.episodes if e.delivery_seconds is not None)
    heard = sorted(e.clients_seconds for e in report.episodes if e.clients_seconds is not None)
    grown = [m.growth for m in report.memory.values() if m.growth is not None]
    growth = f"grew by {max(grown):.0f} MiB at most" if grown else "the time was too short to see it grow"
    peak = max((m.peak for m in report.memory.values()), default=0.0)
    for name, value in (
        ("soak", f"{settings.protocol}, seed {settings.seed}, {report.seconds:.0f} s"),
        ("episodes", f"{len(report.episodes)}"),
        ("faults", _counted(report.faults)),
        ("of these came to nothing", _counted(report.unfelt) or "none"),
        ("receipts", f"{report.receipts:,} payloads ({report.unknown:,} sent without one)"),
        ("delivered", ", ".join(f"{count:,} by {group}" for group, count in report.delivered.items())),
        ("deliveries on after", _middle_and_last(delivered)),
        ("all clients on after", _middle_and_last(heard)),
        ("memory", f"{peak:.0f} MiB at most; {growth}"),
        ("promises", ", ".join(f"{name} {status}" for name, status in report.verdicts.items()) or "not judged"),
    ):
        table.add_row(name, value)
    console.print(table)
    for sentence in report.skipped:
        console.print(sentence, markup=False)
    for finding in report.findings:
        where = f"episode {finding.episode}" if finding.episode else "the end"
        console.print(f"FOUND {finding.kind} (seed {finding.seed}, {where}): {finding.sentence}", markup=False)
    if report.holds:
        flat = "memory flat" if grown else "of the memory only its peak was judged"
        console.print(f"Nothing lost, doubled or out of order; no client wedged; {flat}.")


def _counted(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())


def _middle_and_last(seconds: list[float]) -> str:
    if not seconds:
        return "never"
    return f"{seconds[len(seconds) // 2]:.1f} s (median), {seconds[-1]:.1f} s (longest)"
