"""`antiphon demo`: real processes, a real kill -9, and then Spark looks at everything that happened."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from antiphon.cli import tables
from antiphon.cli.demo_clients import DemoClients, DemoTally
from antiphon.cli.printing import Printer, print_table
from antiphon.cli.session import collected, need_spark, one_sentence, quiet_session
from antiphon.core.errors import UsageError
from antiphon.pipeline.masters import HERE
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

DEMO_GROUPS = {"orders": 3, "billing": 3, "shipping": 3}
VICTIM = "billing.2"
KILL_AT = 0.4  # of the messages
DOWN_SECONDS = 0.5  # before the restart begins
ROWS_PER_MESSAGE = 5  # at most, as far as was seen: members gather messages
MARK = ".antiphon-demo"  # a folder with this file in it is ours to replace


class DemoOutcome(msgspec.Struct, kw_only=True):
    """What came of a demo; its JSON."""

    holds: bool  # no promise broken, and every accepted message delivered once by every addressed member
    accepted: int
    deliveries: dict[str, int]  # expected, missing, doubled, unexpected
    readers_saw_all: bool
    drained: bool = False
    verdicts: dict[str, str]
    violations: list[dict[str, Any]]
    by_groups: list[dict[str, Any]]
    seconds: float = 0.0
    report: str


def run_demo(path: Path, messages: int, report: Path, *, quiet: bool) -> DemoOutcome:
    begun = time.monotonic()
    console = Printer(quiet=quiet, highlight=False)
    need_spark(HERE)
    _prepare(path)
    _check_report(report)
    spark = _in_background(
        lambda: _warm_session(messages)
    )  # the JVM takes seconds to start: let it do so beside the cluster
    folder = cluster.create(path / "cluster", DEMO_GROUPS, run="demo")
    try:
        tally = _run_cluster(console, folder, messages)
    except BaseException:  # nobody will look at what they have done
        for process in folder.config.processes:
            cluster.kill(folder, process)
        raise
    drained = cluster.stop(folder)
    done = "everything was delivered" if drained else "some messages are still under way"
    console.print(f"The cluster is down; {done}.")
    with one_sentence():
        outcome = _judge(console, spark, folder, tally, report)
    outcome.drained = drained
    outcome.holds = outcome.holds and drained
    outcome.seconds = round(time.monotonic() - begun, 1)
    _conclude(console, outcome)
    return outcome


def _prepare(path: Path) -> None:
    """Make an empty folder for the demo; only an earlier demo is thrown away for it."""
    if (path / MARK).is_file():
        if ClusterFolder.exists(path / "cluster"):
            cluster.stop(ClusterFolder.load(path / "cluster"), drain_seconds=0.0)
        for each in path.iterdir():
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each)
            elif each.name != MARK:  # it stays ours, should this be interrupted
                each.unlink()
    elif path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} is neither empty nor an earlier demo: choose another folder with --dir.")
    path.mkdir(parents=True, exist_ok=True)
    (path / MARK).touch()


def _check_report(report: Path) -> None:
    if report.is_dir() or not report.parent.is_dir():
        raise UsageError(f"The report cannot be written to {report}.")


# The cluster ----------------------------------------------------------------------------------------------------


def _run_cluster(console: Console, folder: ClusterFolder, messages: int) -> DemoTally:
    import uvloop

    cluster.start(folder)
    console.print(f"{len(folder.config.processes)} processes are running in the groups {', '.join(DEMO_GROUPS)}.")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("two clients multicast", total=messages)
        story = _Story(folder, messages, lambda done: progress.update(bar, completed=done), progress.console.print)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(story.run())


class _Story:
    """The clients at work, and what happens to one process meanwhile."""

    def __init__(
        self, folder: ClusterFolder, messages: int, on_accepted: Callable[[int], None], tell: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._kill_after = int(messages * KILL_AT)
        self._on_accepted = on_accepted
        self._tell = tell
        self._middle = asyncio.Event()
        self._messages = messages

    async def run(self) -> DemoTally:
        clients = DemoClients(self._folder.path, list(DEMO_GROUPS), self._messages, self._accepted)
        begun = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(clients.run())
            tasks.create_task(self._kill_and_restart())
        seconds = time.monotonic() - begun
        tally = running.result()
        self._tell(f"{len(tally.accepted):,} messages were accepted and read back in {seconds:.1f} s.")
        return tally

    def _accepted(self, count: int) -> None:
        self._on_accepted(count)
        if count >= self._kill_after:
            self._middle.set()

    async def _kill_and_restart(self) -> None:
        await self._middle.wait()
        pid = cluster.alive(self._folder)[self._folder.config.known(VICTIM)]
        await asyncio.to_thread(cluster.kill, self._folder, VICTIM)
        begun = time.monotonic()
        self._tell(f"kill -9 {pid}: {VICTIM} is gone, after {self._kill_after:,} messages.")
        await asyncio.sleep(DOWN_SECONDS)
        await asyncio.to_thread(cluster.start, self._folder, [VICTIM])
        self._tell(f"{VICTIM} is back after {time.monotonic() - begun:.1f} s, from its journal.")


# Spark's part ---------------------------------------------------------------------------------------------------


def _in_background(work: Callable[[], Any]) -> Future[Any]:
    """Unlike an executor's, this thread keeps nobody waiting who wants to leave."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _warm_session(messages: int) -> Any:
    """Start Spark and let it load what every query needs."""
    spark = quiet_session(messages * ROWS_PER_MESSAGE, HERE)
    spark.range(100).selectExpr("id % 7 as key").groupBy("key").count().collect()
    return spark


def _judge(
    console: Console, starting: Future[Any], folder: ClusterFolder, tally: DemoTally, report: Path
) -> DemoOutcome:
    spark = starting.result()
    from antiphon.pipeline.read import read_events, read_runs
    from antiphon.pipeline.receipts import compare
    from antiphon.pipeline.report import write_report
    from antiphon.pipeline.verify import verdicts, verify_and_measure

    with console.status("Spark reads the trace"):
        events, runs = read_events(spark, folder.trace).cache(), read_runs(spark, folder.trace)
        count = events.count()
    console.print(f"Spark reads {count:,} events:\n")
    with console.status("Spark checks every promise, and measures"):
        violations, measured = verify_and_measure(events, runs)
        judged = collected(verdicts(violations, runs))
        broken = collected(violations)
    print_table(tables.verdict_table(judged), console)
    tables.explain_violations(console, broken)
    with console.status("Spark counts"):
        (counted,) = collected(compare(_receipts(spark, folder, tally), events, runs))
        by_groups = collected(measured.by_groups)
    console.print("\nlatency by number of destination groups")
    print_table(tables.group_metrics(by_groups), console)
    with console.status("drawing the report"):
        write_report(report, events, runs, violations, judged, measured)
    whole = not (broken or counted["missing"] or counted["doubled"] or counted["unexpected"])
    return DemoOutcome(
        holds=whole and tally.all_read,
        accepted=len(tally.accepted),
        deliveries=counted,
        readers_saw_all=tally.all_read,
        verdicts={row["property"]: row["status"] for row in judged},
        violations=broken,
        by_groups=by_groups,
        report=str(report),
    )


def _receipts(spark: Any, folder: ClusterFolder, tally: DemoTally) -> Any:
    from antiphon.pipeline import schema
    from antiphon.pipeline.local import local_table

    rows = [(folder.config.run, client, list(groups), number, 1) for client, groups, number in tally.accepted]
    return local_table(spark, rows, schema.RECEIPTS)


def _conclude(console: Console, outcome: DemoOutcome) -> None:
    counted = outcome.deliveries
    lines = [
        f"\n{outcome.accepted:,} messages accepted, {counted['expected']:,} deliveries due: "
        f"{counted['missing']} missing, {counted['doubled']} doubled, {counted['unexpected']} stray."
    ]
    if not outcome.readers_saw_all:
        lines.append("[red]A subscriber did not read every message of its group exactly once.[/]")
    lines.append("[green]Every promise was kept.[/]" if outcome.holds else "[red]A promise was broken.[/]")
    lines.append(f"The report: {outcome.report} ({outcome.seconds:.0f} s in all)")
    for line in lines:
        console.print(line, soft_wrap=True)
