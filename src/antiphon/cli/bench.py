"""`antiphon bench`: what a cluster reaches."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.table import Table

from antiphon.cli.bench_peers import peers_command
from antiphon.cli.flags import OptionFlag, parse_option_flags
from antiphon.cli.printing import print_table
from antiphon.core.errors import UsageError

if TYPE_CHECKING:
    from antiphon.bench import ClusterFigures


def register(app: typer.Typer) -> None:
    bench = typer.Typer(help="Measure a protocol on real processes.", no_args_is_help=True, rich_markup_mode=None)
    bench.command("cluster")(cluster_command)
    bench.command("peers")(peers_command)
    app.add_typer(bench, name="bench")


def cluster_command(
    protocol: Annotated[str | None, typer.Option(help="The protocol; see `antiphon protocols`.")] = None,
    option: OptionFlag = [],  # noqa: B006 - typer wants a list
    groups: Annotated[str, typer.Option(help="The groups: 2x3, or orders=3,billing=3.")] = "1x3",
    fanout: Annotated[int | None, typer.Option(help="How many groups each request addresses; all by default.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Payloads per request; with 1, single calls.")] = 100,
    size: Annotated[int, typer.Option(min=16, help="Bytes per payload.")] = 100,
    outstanding: Annotated[
        int | None, typer.Option(min=1, help="Requests under way at once; default: 40, or 2000 single calls.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Payloads a second to send; default: as many as possible.")] = None,
    seconds: Annotated[float, typer.Option(min=0.5, help="How long to measure.")] = 5.0,
    directory: Annotated[Path | None, typer.Option("--dir", help="Measure the running cluster in this folder.")] = None,
    journal: Annotated[bool, typer.Option(help="Whether the processes keep journals.")] = True,
    gather: Annotated[
        int, typer.Option(min=1, help="The most requests that a member may put into one message.")
    ] = 4096,
    retain: Annotated[
        str, typer.Option(help="What each member of the bench's own cluster keeps of what it delivered, or `all`.")
    ] = "256MB",
    plot: Annotated[Path | None, typer.Option(help="Draw the rate over time into this SVG or PNG file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")] = False,
) -> None:
    """Measure a cluster: throughput, latency, bytes, CPU time.

    A client sends as much as it may, and a reader of each group reads everything. Members retain a limited size, as a
    cluster does that runs for long: their files are then written again and again, and not taken anew from the disk.

    Example: antiphon bench cluster --protocol skeen --groups 1x3 --batch 100 --seconds 5
    """
    from antiphon.bench import ClusterLoad, measure
    from antiphon.bench.cluster import running
    from antiphon.core import parse_groups
    from antiphon.protocols import DEFAULT_PROTOCOL
    from antiphon.runtime.cluster import ClusterFolder

    load = ClusterLoad(
        batch=batch,
        size=size,
        outstanding=outstanding or (2000 if batch == 1 else 40),
        fanout=fanout,
        rate=rate,
        seconds=seconds,
    )
    load.check()
    if directory is not None:
        if protocol is not None:
            raise UsageError("A running cluster already has a protocol: give --protocol or --dir, not both.")
        measured = measure(ClusterFolder.load(directory), load)
    else:
        with (
            tempfile.TemporaryDirectory(prefix="antiphon-bench-") as temporary,
            running(
                Path(temporary) / "cluster",
                parse_groups(groups),
                protocol=protocol or DEFAULT_PROTOCOL,
                options=parse_option_flags(option),
                journal=journal,
                gather=gather,
                retain=[retain],
            ) as folder,
        ):
            measured = measure(folder, load)
    if plot is not None:
        from antiphon.bench.plot import draw_rate

        draw_rate(measured, plot)
    if json:
        print(msgspec.json.encode(measured).decode())
    else:
        _show_cluster(measured)


def _show_cluster(measured: ClusterFigures) -> None:
    load = measured.load
    kind = f"batches of {load.batch}" if load.batch > 1 else "single calls"
    title = (
        f"{measured.protocol}, {len(measured.destinations)} of {len(measured.groups)} groups, {kind}, "
        f"{load.size} bytes, {load.outstanding} outstanding"
    )
    table = Table(title=title, box=None, show_header=False, title_justify="left")
    cpu = measured.cpu_us_per_message
    for name, value in (
        ("messages a second, at a reader of each group", f"{measured.messages_per_second:,.0f}"),
        ("to the reader, p50 / p99", f"{measured.latency_ms.p50} / {measured.latency_ms.p99} ms"),
        ("to the receipt, p50 / p99", f"{measured.receipt_ms.p50} / {measured.receipt_ms.p99} ms"),
        ("bytes written per payload byte, by a member", f"{measured.bytes_written_per_payload_byte}"),
        ("CPU per message: client", f"{cpu['client']} \N{MICRO SIGN}s"),
        ("CPU per message: member, mean / busiest", f"{cpu['member']} / {cpu['busiest_member']} \N{MICRO SIGN}s"),
        ("CPU per message: reader", f"{cpu['reader']} \N{MICRO SIGN}s"),
    ):
        table.add_row(name, value)
    print_table(table)
