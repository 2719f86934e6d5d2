"""What Spark found, as tables for a terminal."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from antiphon.cli.printing import counted
from antiphon.core.promises import REGISTRY, Promise
from antiphon.trace import RunFacts

STYLES = {
    "holds": "green",
    "broken": "bold red",
    "incomplete": "yellow",
    "unchecked": "yellow",
    "not promised": "dim",
}
RUNS_SIDE_BY_SIDE = 4
RUNS_PRINTED = 20
VIOLATIONS_PRINTED = 12
NAMES_WIDTH = 96  # of a line of names

Rows = Sequence[dict[str, Any]]


def verdict_table(judged: Rows) -> RenderableType:
    """One line per property that some run promises, one column per run; with many runs, how many of them have each
    status. What nobody promises is only named."""
    by_run: dict[str, dict[str, str]] = {}
    for row in judged:
        by_run.setdefault(row["run"], {})[row["property"]] = row["status"]
    properties = list(dict.fromkeys(row["property"] for row in judged))
    promised = [name for name in properties if any(statuses[name] != "not promised" for statuses in by_run.values())]
    left = [name for name in properties if name not in promised]
    table = _verdicts(by_run, promised)
    if not left:
        return table
    names = textwrap.fill(", ".join(left), NAMES_WIDTH, initial_indent="not promised: ", subsequent_indent=" " * 14)
    return Group(table, Text(names, style=STYLES["not promised"]))


def _verdicts(by_run: dict[str, dict[str, str]], properties: list[str]) -> Table:
    if len(by_run) > RUNS_SIDE_BY_SIDE:
        return _counted(by_run, properties)
    table = Table("property", *by_run, box=None, pad_edge=False)
    for name in properties:
        table.add_row(name, *(_status(statuses[name]) for statuses in by_run.values()))
    return table


def _counted(by_run: dict[str, dict[str, str]], properties: list[str]) -> Table:
    """Which runs broke a promise is told with the violations."""
    counts = {name: Counter(statuses[name] for statuses in by_run.values()) for name in properties}
    found = [status for status in STYLES if any(count[status] for count in counts.values())]
    table = Table(f"{len(by_run):,} runs", box=None, pad_edge=False)
    for status in found:
        table.add_column(status, justify="right")
    for name in properties:
        table.add_row(name, *(_count(counts[name][status], status) for status in found))
    return table


def _count(runs: int, status: str) -> Text:
    return Text(f"{runs:,}", style=STYLES[status]) if runs else Text("-", style="dim")


def _status(status: str) -> Text:
    return Text(status, style=STYLES[status])


def explain_violations(console: Console, broken: Rows) -> None:
    for row in broken[:VIOLATIONS_PRINTED]:
        console.print()
        console.print(f"[bold red]{row['property']}[/] is broken in {row['run']}", highlight=False)
        console.print(Text(f"  {row['detail']}"))
        if row["processes"]:
            console.print(Text(f"  processes: {', '.join(row['processes'])}"))
        if row["messages"]:
            console.print(Text(f"  messages:  {', '.join(row['messages'])}"))
        _explain_events(console, row)
    if len(broken) > VIOLATIONS_PRINTED:
        console.print(f"\nand {len(broken) - VIOLATIONS_PRINTED} more: --json lists them.")


def _explain_events(console: Console, violation: dict[str, Any]) -> None:
    """The rows that prove it, from the first of them on."""
    events = violation.get("events") or []
    start = min((event["time_ns"] for event in events), default=0)
    for event in events:
        position = "" if event["position"] is None else f", position {event['position']}"
        ends = f" with {', '.join(event['peers'])}" if event["kind"] in ("send", "receive") and event["peers"] else ""
        what = " ".join(filter(None, (event["kind"], event["message"])))
        after = f"+{(event['time_ns'] - start) / 1e6:.3f} ms"
        console.print(Text(f"    {event['process']} {what}{ends}: seq {event['seq']}{position}, {after}"))
    for event in violation.get("missing") or []:
        console.print(Text(f"    {event['process']} deliver {event['message'] or 'the request'}: missing"))


def explain_unchecked(console: Console, judged: Rows, facts: Sequence[RunFacts]) -> None:
    """Say why something was not judged: the run did not come to its end, rows are missing, nobody knows the promise, or
    how far the clocks may be apart."""
    statuses: dict[str, set[str]] = {}
    for row in judged:
        statuses.setdefault(row["run"], set()).add(row["status"])
    for run in facts:
        found = statuses.get(run.run, set())
        if "unchecked" in found and not run.drained:
            were = "was" if len(run.faulty) == 1 else "were"
            away = f" ({', '.join(run.faulty)} {were} down)" if run.faulty else ""
            console.print(f"\n{run.run} ended before everything was delivered{away}.", highlight=False)
        if run.incomplete:
            console.print(f"\nRows of {', '.join(run.incomplete)} are missing in {run.run}.", highlight=False)
        timed = untimed(run)
        if timed:
            told = f"{run.run} does not say how far its clocks may be apart: {', '.join(timed)} cannot be judged"
            console.print(f"\n{told}.", highlight=False)
        unknown = [name for name in run.promises if name not in tuple(Promise)]
        if unknown:
            console.print(f"\nNothing here checks {', '.join(unknown)}, which {run.run} promises.", highlight=False)


def untimed(run: RunFacts) -> list[str]:
    """What the run promises and nobody can judge, since it says nothing of its clocks."""
    compared = {str(promise) for promise, definition in REGISTRY.items() if definition.timed}
    return [name for name in run.promises if name in compared and run.clock_error_ns is None]


def explain_clocks(console: Console, by_run: Rows, turned_back: Rows) -> None:
    """What clocks that are apart, or were set back, make of the figures."""
    for row in by_run:
        if row["backwards"]:
            console.print(
                f"\nRun {row['run']}: {row['backwards']:,} deliveries seem to precede their multicast, by clocks that "
                "are apart; they are left out of the latencies.",
                soft_wrap=True,
            )
    for row in turned_back[:RUNS_PRINTED]:
        console.print(
            f"\nRun {row['run']}: the clock of {row['process']} went back by at least {row['back_ns'] / 1e6:,.3f} ms: "
            "figures that have to do with time are not to be trusted.",
            soft_wrap=True,
        )


def explain_refused(console: Console, refused: Rows) -> None:
    """Say of which runs nothing can be said, and why."""
    for row in refused[:RUNS_PRINTED]:
        whose = "A run" if row["run"] is None else row["run"]
        console.print(Text(f"\n{whose} could not be judged: {row['reason']}"), soft_wrap=True)
    if len(refused) > RUNS_PRINTED:
        console.print(f"\nand {len(refused) - RUNS_PRINTED} more could not be judged: --json lists them.")


# Metrics --------------------------------------------------------------------------------------------------------

_RUN_LINES = {
    "multicasts": "multicasts",
    "deliveries": "deliveries",
    "payloads": "payloads delivered",
    "sends": "messages between processes",
    "sends_per_multicast": "  per multicast",
    "bytes": "bytes between processes",
    "bytes_per_multicast": "  per multicast",
    "steps_max": "steps to the last delivery",
    "latency_ms_p50": "latency ms, median",
    "latency_ms_p99": "latency ms, p99",
    "latency_ms_max": "latency ms, largest",
    "first_ms_p50": "  to the first delivery, median",
    "last_ms_p50": "  to the last delivery, median",
    "seconds": "seconds",
    "deliveries_per_second": "deliveries a second",
    "payloads_per_second": "payloads a second",
}
_RUN_COLUMNS = {
    "run": "run",
    "multicasts": "multicasts",
    "deliveries": "deliveries",
    "sends_per_multicast": "sends",
    "steps_max": "steps",
    "latency_ms_p50": "p50 ms",
    "latency_ms_p99": "p99 ms",
    "latency_ms_max": "max ms",
    "payloads_per_second": "payloads/s",
}
_GROUP_COLUMNS = {
    "run": "run",
    "groups": "groups",
    "messages": "messages",
    "deliveries": "deliveries",
    "latency_ms_p50": "p50 ms",
    "latency_ms_p90": "p90 ms",
    "latency_ms_p99": "p99 ms",
    "latency_ms_max": "max ms",
    "last_ms_p50": "last p50",
    "last_ms_p99": "last p99",
}

_INDEX_COLUMNS = {
    "run": "run",
    "deliveries": "deliveries",
    "tau": "index τ",
    "omega": "width ω",
    "latency_ms": "ms at the sender",
    "periodic_ms": "periodic model",
    "rho_periodic": "ρ",
    "poisson_ms": "Poisson model",
    "rho_poisson": "ρ",
}


def run_metrics(measured: Rows) -> RenderableType:
    """One line per figure and one column per run; many runs stand below one another, with the most telling figures."""
    if len(measured) > RUNS_SIDE_BY_SIDE:
        return _lines(measured, _RUN_COLUMNS, RUNS_PRINTED)
    table = Table("", box=None, pad_edge=False)
    for row in measured:
        table.add_column(row["run"], justify="right")
    for name, label in _RUN_LINES.items():
        table.add_row(label, *(_number(row[name]) for row in measured))
    return table


def group_metrics(measured: Rows) -> RenderableType:
    """Latency by the number of destination groups: what it costs to send to more of them."""
    return _lines(measured, _GROUP_COLUMNS)


def index_metrics(measured: Rows) -> RenderableType:
    """The index of latency, and what the model of toto.txt makes of it, for either kind of source."""
    return _lines(measured, _INDEX_COLUMNS)


def _lines(measured: Rows, columns: dict[str, str], most: int = 3 * RUNS_PRINTED) -> RenderableType:
    one_run = len({row["run"] for row in measured}) <= 1
    names = [name for name in columns if name != "run" or not one_run]
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(columns[name], justify="left" if name == "run" else "right")
    for row in measured[:most]:
        table.add_row(*(_number(row[name]) for name in names))
    left = len(measured) - most
    return Group(table, f"and {counted(left, 'more line')}: --json has all") if left > 0 else table


def _number(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
