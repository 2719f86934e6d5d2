"""One self-contained HTML page: the verdict, the figures, and three pictures of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from antiphon.checks.violation import Status
from antiphon.core.errors import UsageError
from antiphon.pipeline import pictures
from antiphon.pipeline.messages import PROPERTIES
from antiphon.pipeline.metrics import EACH, PER_OCTAVE, Metrics, timeline
from antiphon.pipeline.page import PAGE
from antiphon.pipeline.verify import verdicts

# What reaches the driver stays small, however long the trace is.
RUNS_SHOWN = 20
VIOLATIONS_SHOWN = 20
PROCESSES_DRAWN = 40
CANDIDATES = 200  # multicasts among which the diagram's messages are chosen
MESSAGES_DRAWN = 3
ROWS_DRAWN = 2_000
BINS_PER_OCTAVE = 16


def write_report(
    path: Path | str,
    events: DataFrame,
    runs: DataFrame,
    violations: DataFrame,
    measured: Metrics,
    *,
    run: str | None = None,
) -> None:
    """Write the report of a trace; the pictures show `run`, or else the first broken run, or else the first."""
    judged = verdicts(violations, runs)
    counts = judged.groupBy("property", "status").agg(F.countDistinct("run").alias("runs")).collect()
    broken = violations.orderBy("run", "property").limit(VIOLATIONS_SHOWN).collect()
    facts = _drawn(runs, run or (broken[0].run if broken else None))
    drawn = facts.run
    groups = dict(sorted(facts.groups.items()))
    part = events.filter(F.col("run") == drawn)
    page = PAGE.substitute(
        headline=_headline(counts, runs.count()),
        facts=_facts(facts),
        properties=_properties(counts),
        violations=_violations(broken),
        metrics=_metrics(measured),
        run=escape(drawn),
        timeline=pictures.svg(_timeline(groups, part)),
        latencies=pictures.svg(_latencies(measured, drawn)),
        space_time=pictures.svg(_space_time(groups, part)),
    )
    Path(path).write_text(page, encoding="utf-8")


def _drawn(runs: DataFrame, name: str | None) -> Row:
    facts = (runs if name is None else runs.filter(F.col("run") == name)).orderBy("run").first()
    if facts is None:
        raise UsageError("There is no run to report." if name is None else f"The trace has no run {name!r}.")
    return facts


# ---- tables


def _headline(counts: Sequence[Row], runs: int) -> str:
    by_status: dict[str, set[str]] = defaultdict(set)
    for row in counts:
        by_status[row.status].add(row.property)
    of = "the run" if runs == 1 else f"all {runs:,} runs"
    if by_status[Status.BROKEN]:
        names = ", ".join(sorted(by_status[Status.BROKEN]))
        return f'<p class="verdict bad">A promise is broken: {escape(names)}.</p>'
    if by_status[Status.INCOMPLETE]:
        return '<p class="verdict open">No promise is broken by what is here, but rows are missing.</p>'
    if not by_status[Status.HOLDS]:
        return '<p class="verdict open">Nothing that was promised could be checked.</p>'
    whole = not by_status[Status.UNCHECKED]
    words = f"Every promise holds in {of}." if whole else f"Every promise that could be checked holds in {of}."
    return f'<p class="verdict good">{words}</p>'


def _facts(facts: Row) -> str:
    members = sum(len(names) for names in facts.groups.values())
    parts = [
        f"protocol <b>{escape(facts.protocol)}</b>",
        f"{members} processes in {len(facts.groups)} groups",
        escape(facts.driver) + (f", seed {facts.seed}" if facts.seed is not None else ""),
        *(f"{escape(name)}={escape(value)}" for name, value in sorted((facts.options or {}).items())),
    ]
    return " · ".join(parts)


def _properties(counts: Sequence[Row]) -> str:
    runs: dict[str, dict[str, int]] = defaultdict(dict)
    for row in counts:
        runs[row.property][row.status] = row.runs
    one = all(sum(statuses.values()) == 1 for statuses in runs.values())
    lines = []
    for name in (*PROPERTIES, *sorted(set(runs) - set(PROPERTIES))):
        cells = [
            f'<span class="status {status.replace(" ", "-")}">{status}{"" if one else f" in {number:,}"}</span>'
            for status, number in sorted(runs[name].items())
        ]
        lines.append(f"<tr><td>{escape(name)}</td><td>{' '.join(cells)}</td></tr>")
    return "\n".join(lines)


def _violations(broken: Sequence[Row]) -> str:
    if not broken:
        return ""
    items = "\n".join(f"<li><b>{escape(v.run)}</b> {escape(v.property)}: {escape(v.detail)}.</li>" for v in broken)
    return f"<h2>Violations</h2><ul>{items}</ul>"


_FIGURES = {
    "multicasts": ("multicasts", ",.0f"),
    "deliveries": ("deliveries", ",.0f"),
    "payloads": ("payloads", ",.0f"),
    "payloads_per_second": ("payloads/s", ",.0f"),
    "sends_per_multicast": ("frames per multicast", ",.1f"),
    "bytes_per_multicast": ("bytes per multicast", ",.0f"),
    "steps_mean": ("steps, mean", ".2f"),
    "steps_max": ("steps, max", ".0f"),
    "latency_ms_p50": ("p50 ms", ",.1f"),
    "latency_ms_p90": ("p90 ms", ",.1f"),
    "latency_ms_p99": ("p99 ms", ",.1f"),
    "latency_ms_max": ("max ms", ",.1f"),
}


def _metrics(measured: Metrics) -> str:
    rows = measured.runs.limit(RUNS_SHOWN).collect()
    if len(rows) == 1:
        return _cards(rows[0])
    head = "".join(f"<th>{escape(label)}</th>" for label, _ in _FIGURES.values())
    body = "\n".join(
        f"<tr><td>{escape(row.run)}</td>"
        + "".join(f"<td>{_figure(row[name], form)}</td>" for name, (_, form) in _FIGURES.items())
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table class="figures"><tr><th>run</th>{head}</tr>{body}</table></div>'


def _cards(row: Row) -> str:
    cards = [
        f"<div><b>{_figure(row[name], form)}</b><span>{escape(label)}</span></div>"
        for name, (label, form) in _FIGURES.items()
        if row[name] is not None
    ]
    return f'<div class="cards">{"".join(cards)}</div>'


def _figure(value: float | None, form: str) -> str:
    return "–" if value is None else format(float(value), form)


# ---- pictures


def _timeline(groups: dict[str, list[str]], events: DataFrame) -> Any:
    drawn = [p for members in groups.values() for p in members][:PROCESSES_DRAWN]
    rows = timeline(events.filter(F.col("process").isin(drawn))).collect()
    counts: dict[str, list[tuple[float, int]]] = defaultdict(list)
    marks = []
    for row in rows:
        if row.kind == "deliver":
            counts[row.process].append((row.bucket * row.width_ns / 1e9, row["count"]))
        else:
            marks.append((row.process, row.kind, row.first_ns / 1e9))
    slice_s = rows[0].width_ns / 1e9 if rows else 1.0
    lanes = {group: [p for p in members if p in drawn] for group, members in groups.items()}
    return pictures.deliveries_over_time(lanes, dict(counts), marks, slice_s)


def _latencies(measured: Metrics, run: str) -> Any:
    mine = (F.col("run") == run) & (F.col("measure") == EACH) & (F.col("bucket") >= 0)
    step = PER_OCTAVE // BINS_PER_OCTAVE
    rows = (
        measured.latencies.filter(mine)
        .groupBy("groups", F.floor(F.col("bucket") / step).alias("bin"))
        .agg(F.sum("count").alias("count"))
        .collect()
    )
    shares: dict[int, list[tuple[float, float, int]]] = defaultdict(list)
    for row in rows:
        low = 2.0 ** (row.bin / BINS_PER_OCTAVE) / 1e6
        shares[row.groups].append((low, low * 2.0 ** (1 / BINS_PER_OCTAVE), row["count"]))
    by_groups = measured.by_groups.filter(F.col("run") == run).collect()
    marks = {row.groups: {"p50": row.latency_ms_p50, "p99": row.latency_ms_p99} for row in by_groups}
    return pictures.latencies(dict(shares), marks)


def _space_time(groups: dict[str, list[str]], events: DataFrame) -> Any:
    chosen = _overlapping(events)
    # A row for each message that an event is about, and for each other process: an arrow each.
    names = F.array(*(F.lit(name) for name in chosen)).cast("array<string>")
    subjects = F.array_intersect(F.coalesce("about", F.array("message")), names)
    rows = (
        events.select("kind", "process", "seq", "time_ns", "layer", "peers", F.explode(subjects).alias("message"))
        .select("*", F.explode_outer("peers").alias("peer"))
        .limit(ROWS_DRAWN)
        .collect()
    )
    of: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.process, row.seq)):
        of[row.kind].append(row)
    return pictures.space_time(
        groups,
        pictures.matched(
            [(r.process, r.peer, r.message, r.layer or "", r.time_ns) for r in of["send"] if r.peer],
            [(r.peer, r.process, r.message, r.layer or "", r.time_ns) for r in of["receive"] if r.peer],
        ),
        [(r.process, r.message, r.time_ns) for r in of["multicast"]],
        [(r.process, r.message, r.time_ns) for r in of["deliver"]],
    )


def _overlapping(events: DataFrame) -> list[str]:
    """A few consecutive messages that are under way at the same time, to several groups each if there are such."""
    early = events.filter("kind = 'multicast'").orderBy("time_ns", "process", "seq").limit(CANDIDATES).collect()
    first = {row.message: row for row in reversed(early)}
    ends = (
        events.filter((F.col("kind") == "deliver") & F.col("message").isin(list(first)))
        .groupBy("message")
        .agg(F.max("time_ns").alias("end_ns"))
        .collect()
    )
    end = {row.message: row.end_ns for row in ends}
    names = [name for name in dict.fromkeys(row.message for row in early) if name in end]
    wide = [name for name in names if len(first[name].destinations) > 1]
    pool = wide if len(wide) >= MESSAGES_DRAWN else names

    def telling(some: Sequence[str]) -> tuple[int, bool, int]:
        """Of different senders, most of the time together under way, and soon over."""
        starts, stops = [first[name].time_ns for name in some], [end[name] for name in some]
        whole = max(stops) - min(starts)
        return len({first[name].process for name in some}), 2 * (min(stops) - max(starts)) > whole, -whole

    windows = [pool[i : i + MESSAGES_DRAWN] for i in range(len(pool) - MESSAGES_DRAWN + 1)]
    return max(windows, key=telling, default=pool)
