"""`antiphon verify | metrics | report | demo`: what needs Spark, which is loaded only when one of them runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from antiphon.checks import Status
from antiphon.cli import tables
from antiphon.cli.flags import JsonFlag, MasterFlag, RemoteFlag, master_of
from antiphon.cli.printing import Printer, print_table
from antiphon.cli.progress import StepsBar
from antiphon.cli.session import (
    as_far_as_readable,
    check_trace,
    collected,
    placed,
    refuse_elsewhere,
)
from antiphon.core.errors import TraceError, UsageError
from antiphon.core.promises import Promise
from antiphon.trace import read_facts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from antiphon.pipeline.metrics import Metrics
    from antiphon.pipeline.read import Trace
    from antiphon.trace.survey import Survey

TraceArgument = Annotated[
    str,
    typer.Argument(
        help="A trace's folder or address (hdfs://..., s3a://...), or the folder of a cluster that is down."
    ),
]


EXIT_BROKEN, EXIT_INCOMPLETE = 1, 3  # 2 is bad input


def register(app: typer.Typer) -> None:
    app.command("verify")(verify_command)
    app.command("metrics")(metrics_command)
    app.command("report")(report_command)
    app.command("demo")(demo_command)


def verify_command(
    dir: TraceArgument,
    json: JsonFlag = False,
    draw: Annotated[
        Path | None, typer.Option(help="Write a space-time diagram of each violation shown into this folder, as SVG.")
    ] = None,
    master: MasterFlag = None,
    remote: RemoteFlag = None,
) -> None:
    """Check everything that the runs of a trace promise.

    Exit code 0: every promise that can be checked was kept; 1: a promise was broken; 2: there is nothing here to judge;
    3: nothing that is here breaks a promise, but not everything could be judged, as rows are missing, or Spark failed.

    Example: antiphon verify runs, after antiphon simulate --seed 7 --trace runs
    """
    where = master_of(master, remote)
    trace = find_trace(dir, where)
    found = check_trace(trace, where)
    if draw is not None:
        _make_folder(draw)
    with StepsBar(3) as steps:
        (judged, broken), survey = as_far_as_readable(trace, found, steps, where, partial(_judge, steps))
    if draw is not None:
        _draw(draw, broken)
    code = exit_code(judged, _unjudged(survey))
    if json:
        holds = code == 0 and any(row["status"] == Status.HOLDS for row in judged)  # not where nothing was checked
        told = {"holds": holds, "verdicts": judged, "violations": broken, "refused": _refused(survey)}
        print(msgspec.json.encode(told).decode())
    else:
        console = Printer()
        print_table(tables.verdict_table(judged), console)
        tables.explain_violations(console, broken)
        tables.explain_unchecked(console, judged, survey.facts)
        tables.explain_refused(console, _refused(survey))
    if code:
        raise typer.Exit(code)


def _judge(steps: StepsBar, trace: Trace) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The verdicts, and the violations with what proves them."""
    from antiphon.pipeline.proofs import proved
    from antiphon.pipeline.verify import verdicts, verify

    steps.next("checking every promise")
    violations = verify(trace.events, trace.runs, scan=trace.scan)
    judged = collected(verdicts(violations, trace.runs))
    broken = collected(violations)
    return judged, proved(broken, trace.events) if broken else []


def _make_folder(folder: Path) -> None:
    """Before anything is judged: afterwards it would be too late to say that nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--draw cannot make the folder {folder}: {error.strerror}.") from None


def _draw(folder: Path, broken: Sequence[dict[str, Any]]) -> None:
    from antiphon.pipeline.diagram import diagram

    for number, violation in enumerate(broken[: tables.VIOLATIONS_PRINTED], start=1):
        name = f"{number:02d}-{violation['run']}-{violation['property']}.svg"
        (folder / name).write_text(diagram(violation), encoding="utf-8")


def exit_code(judged: Sequence[dict[str, Any]], unjudged: Collection[str] = ()) -> int:
    """What `verify` ends with: a broken promise outranks what could not be judged."""
    statuses = {row["status"] for row in judged}
    if Status.BROKEN in statuses:
        return EXIT_BROKEN
    return EXIT_INCOMPLETE if unjudged or Status.INCOMPLETE in statuses else 0


def _unjudged(survey: Survey) -> set[str]:
    """What is wrong with runs that cannot be read, and promises that nobody can check: they are not known here, or
    compare clocks of which nothing is known.

    That a promise needs a drained run and this one was not is no failure: it was not due.
    """
    unknown = {name for run in survey.facts for name in run.promises}.difference(Promise)
    return unknown.union(survey.complaints, *map(tables.untimed, survey.facts))


def _refused(survey: Survey) -> list[dict[str, Any]]:
    nameless = [{"run": None, "reason": reason} for reason in survey.nameless]
    return [{"run": run, "reason": reason} for run, reason in survey.refused.items()] + nameless


def metrics_command(
    dir: TraceArgument,
    out: Annotated[
        str | None,
        typer.Option(
            help="Write all tables into this folder, as Parquet: also load, rates over time, what is held back."
        ),
    ] = None,
    json: JsonFlag = False,
    master: MasterFlag = None,
    remote: RemoteFlag = None,
) -> None:
    """Measure the runs of a trace.

    Messages, bytes, steps, latency and throughput, and the latency by number of destination groups. Of protocols with a
    causal graph, also for how many machines a message waits, and the latency that this predicts.

    Example: antiphon metrics runs, after antiphon simulate --seed 7 --trace runs
    """
    where = master_of(master, remote)
    trace = find_trace(dir, where)
    tables_at = None if out is None else _new_folder(out, where)
    found = check_trace(trace, where)
    with StepsBar(3) as steps, _whole_or_gone(tables_at) as begun:
        measure = partial(_measure, steps, tables_at, begun, json)
        figures, survey = as_far_as_readable(trace, found, steps, where, measure)
    if json:
        told = figures | ({"refused": _refused(survey)} if survey.complaints else {})
        print(msgspec.json.encode(told).decode())
    else:
        console = Printer()
        print_table(tables.run_metrics(figures["runs"]), console)
        console.print("\nby number of destination groups")
        print_table(tables.group_metrics(figures["by_groups"]), console)
        if "latency_index" in figures:
            console.print("\nfor how many machines a message waits, while all are sending")
            print_table(tables.index_metrics(figures["latency_index"]), console)
        tables.explain_clocks(console, figures["runs"], figures["clocks_set_back"])
        tables.explain_refused(console, _refused(survey))
    if survey.complaints:
        raise typer.Exit(EXIT_INCOMPLETE)


def _measure(steps: StepsBar, tables_at: str | None, begun: set[str], in_full: bool, trace: Trace) -> dict[str, Any]:
    """The figures that are shown, or all of them; and all tables, written where somebody wants them."""
    from antiphon.pipeline.clocks import set_back
    from antiphon.pipeline.metrics import metrics

    steps.next("measuring")
    measured = metrics(trace.events, trace.runs, scan=trace.scan)
    shown = {"runs": measured.runs, "by_groups": measured.by_groups}
    shown |= {"by_size": measured.by_size, "by_layer": measured.by_layer} if in_full else {}
    told = {name: collected(table) for name, table in shown.items()}
    told["clocks_set_back"] = collected(set_back(trace.events))
    index = collected(measured.index.runs) if measured.index else []
    told |= {"latency_index": index} if index else {}
    told |= {"tau_omega": collected(measured.index.pairs)} if measured.index and index and in_full else {}
    if tables_at is not None:  # when most has been read once: damage in the rest begins them again
        _write_tables(measured, trace.events, tables_at, begun)
    return told


def _new_folder(out: str, master: str | None) -> str:
    """As Spark writes to it. What is there on another file system, Spark itself refuses to write over."""
    refuse_elsewhere(out, master, "--out ")
    if "://" in out:
        return out.rstrip("/")
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{out} is there already: give a new folder with --out.")
    return str(folder.absolute())


@contextmanager
def _whole_or_gone(out: str | None) -> Iterator[set[str]]:
    """The tables that were begun; of a path, none of them stays unless all are written."""
    begun: set[str] = set()
    try:
        yield begun
    except BaseException:
        for name in begun if out and "://" not in out else ():
            rmtree(f"{out}/{name}", ignore_errors=True)
        raise


def _write_tables(measured: Metrics, events: DataFrame, out: str, begun: set[str]) -> None:
    """Each into a folder of its own: docs/metrics.md. One that was `begun` here is ours, and written over."""
    from antiphon.pipeline.work import work

    for name, table in {**measured.tables(), **work(events)}.items():
        mode = "overwrite" if name in begun else "errorifexists"
        begun.add(name)
        table.write.mode(mode).parquet(f"{out}/{name}")


def report_command(
    dir: TraceArgument,
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("report.html"),
    run: Annotated[
        str | None, typer.Option(help="The run to draw; default: the first broken one, or the first.")
    ] = None,
    master: MasterFlag = None,
    remote: RemoteFlag = None,
) -> None:
    """Write a page about a trace, to be explored in a browser.

    One file that needs nothing from the network: the verdict, deliveries and latencies over time, in which you can
    zoom, what each promise means, the figures, and a few messages on their way. Exit codes are those of verify.

    Example: antiphon report runs --out report.html, after antiphon simulate --seed 7 --trace runs
    """
    where = master_of(master, remote)
    trace = find_trace(dir, where)
    found = check_trace(trace, where)
    if not out.parent.is_dir():
        raise UsageError(f"There is no folder {out.parent} to write the page into.")
    with StepsBar(4) as steps:
        judged, survey = as_far_as_readable(trace, found, steps, where, partial(_draw_page, steps, out, run))
    print(f"The report: {out}")
    tables.explain_refused(Printer(), _refused(survey))
    code = exit_code(judged, _unjudged(survey))
    if code:
        raise typer.Exit(code)


def _draw_page(steps: StepsBar, out: Path, run: str | None, trace: Trace) -> list[dict[str, Any]]:
    from antiphon.pipeline.report import write_report
    from antiphon.pipeline.verify import verdicts, verify_and_measure

    steps.next("checking every promise, and measuring")
    violations, measured = verify_and_measure(trace.events, trace.runs, scan=trace.scan)
    judged = collected(verdicts(violations, trace.runs))
    steps.next("drawing")
    write_report(out, trace.events, trace.runs, violations, judged, measured, run=run)
    return judged


def demo_command(
    dir: Annotated[Path, typer.Option("--dir", help="Where to work; an earlier demo there is replaced.")] = Path(
        "antiphon-demo"
    ),
    messages: Annotated[int, typer.Option(min=10, max=1_000_000, help="The number of multicasts in all.")] = 10_000,
    report: Annotated[Path | None, typer.Option(help="Where to write the report; default: DIR/report.html.")] = None,
    json: JsonFlag = False,
) -> None:
    """Run nine real processes, kill one, and let Spark judge.

    Two clients multicast to three groups, `kill -9` ends a process in the middle and it returns, and Spark gives its
    verdict on everything that happened.

    Example: antiphon demo --messages 10000
    """
    from antiphon.cli.demo import run_demo

    outcome = run_demo(dir, messages, report or dir / "report.html", quiet=json)
    if json:
        print(msgspec.json.encode(outcome).decode())
    if not outcome.holds:
        raise typer.Exit(1)


def find_trace(place: str, master: str | None = None) -> Path | str:
    """The trace itself, or the one inside a cluster's folder, once every process has written all that it saw.

    A cluster's folder is looked for on this machine only.
    """
    folder = placed(place, master)
    return _traced(folder) if isinstance(folder, Path) else folder


def _traced(folder: Path) -> Path:
    from antiphon.runtime import cluster
    from antiphon.runtime.cluster import ClusterFolder

    home = next((path for path in (folder, folder.resolve().parent) if ClusterFolder.exists(path)), None)
    if home is None:
        return folder
    found = ClusterFolder.load(home)
    if not found.config.trace:
        raise UsageError(
            f"The cluster in {home} records no trace (it was made with --no-trace), so there is nothing to read."
        )
    if any(pid is not None for pid in cluster.alive(found).values()):
        raise UsageError(f"The cluster in {home} is running: end it with `antiphon down --dir {home}` first.")
    admitted = _incomplete(found.trace, found.config.run)  # what `down` could not complete, it says
    killed = [process for process in cluster.untraced(found) if process not in admitted]
    if killed:
        raise UsageError(
            f"The trace lacks the last rows of {' and '.join(killed)}, killed before they were written: "
            f"`antiphon down --dir {home}` takes them from the journal, if the cluster keeps journals."
        )
    return found.trace if home == folder else folder


def _incomplete(trace: Path, run: str) -> list[str]:
    """The processes whose rows are not all in a trace, by the facts of the run, if these are there."""
    try:
        return next((facts.incomplete for facts in read_facts(trace) if facts.run == run), [])
    except TraceError:
        return []
