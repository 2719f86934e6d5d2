"""`antiphon bench peers`: Antiphon beside others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.table import Table

from antiphon.cli.printing import print_table
from antiphon.cli.progress import StepsBar
from antiphon.core.errors import Unavailable, UsageError

if TYPE_CHECKING:
    from antiphon.bench.peers import Work
    from antiphon.bench.peers.compare import PeerComparison, PeerRow

WORKS = ("rate", "idle", "wide")


def peers_command(
    names: Annotated[list[str] | None, typer.Argument(metavar="[PEER]...", help="Which; all by default.")] = None,
    protocol: Annotated[
        list[str] | None, typer.Option(help="Antiphon's protocol; may be given several times. Default: the default.")
    ] = None,
    work: Annotated[
        list[str] | None, typer.Option(help="rate, idle or wide; may be given several times. Default: all three.")
    ] = None,
    batch: Annotated[int, typer.Option(min=2, help="Payloads per batch.")] = 100,
    size: Annotated[int, typer.Option(min=16, help="Bytes per payload.")] = 100,
    outstanding: Annotated[int, typer.Option(min=1, help="Batches under way at once.")] = 40,
    seconds: Annotated[float, typer.Option(min=0.2, help="How long to measure each.")] = 3.0,
    rounds: Annotated[int, typer.Option(min=1, help="How often to measure all of them in turn.")] = 1,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Where temporary folders are made: on a disk, or syncs cost nothing.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the figures into this SVG or PNG file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")] = False,
) -> None:
    """Measure Antiphon beside etcd, Redis and others.

    All do the same work in one run: as much as they can (rate), one message at a time (idle), and every message to
    three groups (wide). Each is started in a temporary folder and ended. What is not installed is skipped.

    Example: antiphon bench peers etcd redis --seconds 3 --rounds 3
    """
    from antiphon.bench.peers import PEERS, Antiphon, named
    from antiphon.bench.peers.compare import compare, works
    from antiphon.protocols import DEFAULT_PROTOCOL, protocol_named

    others = [named(name) for name in dict.fromkeys(names or PEERS)]
    for name in protocol or ():
        protocol_named(name)
    own = [Antiphon(name) for name in dict.fromkeys(protocol or [DEFAULT_PROTOCOL])]
    asked = works(batch=batch, size=size, outstanding=outstanding, seconds=seconds)
    unknown = [name for name in work or () if name not in WORKS]
    if unknown:
        raise UsageError(f"{unknown[0]!r} is not a kind of work: there are {', '.join(WORKS)}.")
    asked = [each for each in asked if not work or each.name in work]
    with StepsBar(rounds * len(asked) * (len(own) + len(others))) as bar:
        found = compare([*own, *others], asked, rounds=rounds, place=directory, told=bar.next)
    if not found.rows:
        raise Unavailable(found.left[0].reason)
    if plot is not None:
        from antiphon.bench.peers.plot import draw

        draw(found, plot)
    if json:
        print(msgspec.json.encode(found).decode())
    else:
        _show(found)


def _show(found: PeerComparison) -> None:
    for each in found.works:
        rows = found.of(each.name)
        if rows:
            print(_title(each))
            print_table(_idle_table(rows) if each.name == "idle" else _rate_table(rows))
            print()
    for left in found.left:
        why = f"{left.title} is skipped" if left.work is None else f"{left.title} failed ({left.work})"
        print(f"{why}: {left.reason.rstrip('.')}.")
    before, after = found.load_average
    print(f"{found.cores} cores, {found.machine}; load average {before:.1f} before, {after:.1f} after.")


def _title(work: Work) -> str:
    if work.name == "idle":
        return f"{work.name}: one log, {work.size} bytes, one message at a time, milliseconds"
    where = "one log" if work.groups == 1 else f"every message to {work.groups} groups, at the slowest of their readers"
    return f"{work.name}: {where}, {work.size} bytes, {work.outstanding} batches outstanding"


def _rate_table(rows: list[PeerRow]) -> Table:
    table = Table(box=None)
    table.add_column("system")
    for heading in ("processes", "batch", "messages/s", "Antiphon/this"):
        table.add_column(heading, justify="right")
    table.add_column("kept when acknowledged")
    ours = rows[0].figures.messages_per_second
    for row in rows:
        rate = row.figures.messages_per_second
        words = (f"{row.processes}", f"{row.batch}", f"{rate:,.0f}", f"{ours / rate:.2f}")
        table.add_row(row.title, *words, row.keeps)
    return table


def _idle_table(rows: list[PeerRow]) -> Table:
    table = Table(box=None)
    table.add_column("system")
    for heading in ("acknowledged p50", "p99", "Antiphon/this", "read p50", "p99", "Antiphon/this"):
        table.add_column(heading, justify="right")
    table.add_column("kept when acknowledged")
    ours = rows[0].figures
    for row in rows:
        words = []
        for mine, its in ((ours.receipt_ms, row.figures.receipt_ms), (ours.latency_ms, row.figures.latency_ms)):
            ratio = f"{mine.p50 / its.p50:.2f}" if its.p50 else ""
            words += [f"{its.p50:.2f}", f"{its.p99:.2f}", ratio]
        table.add_row(row.title, *words, row.keeps)
    return table
