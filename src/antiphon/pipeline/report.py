"""One self-contained HTML page to explore: the verdict, pictures of a run, what each promise means, the figures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import msgspec
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from antiphon.checks import Status
from antiphon.core.errors import UsageError
from antiphon.core.promises import REGISTRY, Promise
from antiphon.pipeline.diagram import diagram
from antiphon.pipeline.messages import PROPERTIES
from antiphon.pipeline.metrics import Metrics
from antiphon.pipeline.proofs import proved
from antiphon.pipeline.scenes import scenes

# What reaches the driver stays small, however long the trace is.
RUNS_SHOWN = 20
VIOLATIONS_SHOWN = 20

Counts = Mapping[tuple[str, str], int]  # by property and status: of how many runs that is said

PAGE = Path(__file__).with_name("page")  # plain HTML, CSS and JavaScript, nothing fetched from anywhere


def write_report(
    path: Path | str,
    events: DataFrame,
    runs: DataFrame,
    violations: DataFrame,
    judged: Sequence[Mapping[str, str]],
    measured: Metrics,
    *,
    run: str | None = None,
) -> None:
    """Write the report of a trace; the pictures show `run`, or else the first broken run, or else the first.

    `judged`: what `verdicts` says of each run and property.
    """
    counts = Counter((row["property"], row["status"]) for row in judged)
    some = violations.orderBy("run", "property").limit(VIOLATIONS_SHOWN).collect()
    broken = proved([row.asDict(recursive=True) for row in some], events)
    facts = _drawn(runs, run or (broken[0]["run"] if broken else None))
    drawn = facts.run
    groups = dict(sorted(facts.groups.items()))
    part = events.filter(F.col("run") == drawn)
    shown = scenes(groups, part)
    page = Template(_text("report.html")).substitute(
        style=_text("report.css"),
        script=_text("report.js"),
        headline=_headline(counts, len({row["run"] for row in judged})),
        facts=_facts(facts),
        properties=_properties(counts),
        violations=_violations(broken),
        metrics=_metrics(measured),
        run=escape(drawn),
        backwards=_backwards(shown["latency"]["backwards"]),
        data=msgspec.json.encode(shown).decode().replace("</", r"<\/"),  # no name ends the script
    )
    Path(path).write_text(page, encoding="utf-8")


def _text(file: str) -> str:
    return (PAGE / file).read_text(encoding="utf-8").rstrip()


def _drawn(runs: DataFrame, name: str | None) -> Row:
    facts = (runs if name is None else runs.filter(F.col("run") == name)).orderBy("run").first()
    if facts is None:
        raise UsageError("There is no run to report." if name is None else f"The trace has no run {name!r}.")
    return facts


# ---- tables


def _headline(counts: Counts, runs: int) -> str:
    by_status: dict[str, set[str]] = defaultdict(set)
    for property_, status in counts:
        by_status[status].add(property_)
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


def _properties(counts: Counts) -> str:
    runs: dict[str, dict[str, int]] = defaultdict(dict)
    for (property_, status), number in counts.items():
        runs[property_][status] = number
    one = all(sum(statuses.values()) == 1 for statuses in runs.values())
    lines, others = [], []
    for name in (*PROPERTIES, *sorted(set(runs) - set(PROPERTIES))):
        cells = [
            f'<span class="status {status.replace(" ", "-")}">{status}{"" if one else f" in {number:,}"}</span>'
            for status, number in sorted(runs[name].items())
        ]
        if set(runs[name]) == {Status.NOT_PROMISED}:
            others.append(_named(name))
        else:
            lines.append(f"<tr><td>{_named(name)}</td><td>{' '.join(cells)}</td></tr>")
    table = "\n".join(['<table class="properties">', *lines, "</table>"])
    return table + (f'\n<p class="soft others">Not promised: {", ".join(others)}.</p>' if others else "")


def _backwards(deliveries: int) -> str:
    if not deliveries:
        return ""
    return f" {deliveries:,} deliveries that seem to precede their multicast, by clocks that are apart, are left out."


def _named(property_: str) -> str:
    """Its name, which tells what it means to whoever points at it."""
    if property_ not in list(Promise):
        return escape(property_)
    meaning = escape(REGISTRY[Promise(property_)].meaning, quote=True)
    return f'<span tabindex="0" data-tip="{meaning}">{escape(property_)}</span>'


def _violations(broken: Sequence[dict[str, Any]]) -> str:
    """What is broken, each with a picture of the events that prove it; that of the first is open."""
    if not broken:
        return ""
    items = "\n".join(
        f"<li><b>{escape(v['run'])}</b> {escape(v['property'])}: {escape(v['detail'])}."
        f"<details{'' if place else ' open'}><summary>the events</summary>"
        f'<div class="wide">{diagram(v)}</div></details></li>'
        for place, v in enumerate(broken)
    )
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
