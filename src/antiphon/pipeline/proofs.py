"""The few rows of a trace that prove a violation, so that a reader need not look for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from antiphon.core.promises import Promise
from antiphon.pipeline import schema
from antiphon.pipeline.adoption import SOURCE, MemberOfRun, adoptions, with_source
from antiphon.pipeline.local import local_table
from antiphon.pipeline.messages import nobody

PROVED_MAX = 1_000  # violations: each is a few rows
PROOF_EVENTS_MAX = 24  # of one violation: a proof of more is none that anybody reads
SHOWN = ["process", "seq", "time_ns", "kind", "message", "position", "peers", "about", "layer"]
# What these accuse processes of is that they do not deliver something.
OF_MISSING = (
    Promise.VALIDITY,
    Promise.AGREEMENT,
    Promise.UNIFORM_AGREEMENT,
    Promise.VIRTUAL_SYNCHRONY,
    Promise.GRAPH_DELIVERY,
    Promise.FIFO,
    Promise.CAUSAL,
)

_NUMBER = StructField("number", IntegerType(), nullable=False)
_PLACES = StructType([_NUMBER, schema.RUN["run"], *schema.PLACE.fields])
_SUBJECTS = StructType(
    [_NUMBER, schema.RUN["run"], StructField("about_message", StringType()), schema.VIOLATIONS["processes"]]
)


def proved(violations: Sequence[dict[str, Any]], events: DataFrame) -> list[dict[str, Any]]:
    """The violations, of which the first have `events`, the rows that prove them in the order of time, and `missing`,
    the deliveries that are not there."""
    some = list(enumerate(violations[:PROVED_MAX]))
    places = [(n, v["run"], row["process"], row["seq"]) for n, v in some for row in v["rows"]]
    subjects = [(n, v["run"], m, v["processes"]) for n, v in some if not v["rows"] for m in v["messages"]]
    of: dict[int, list[dict[str, Any]]] = {n: [] for n, _ in some}
    adopted = adoptions(events) if some else None
    rows = with_source(events)
    if adopted is not None:
        rows = rows.unionByName(adopted.copies(events))
    for row in _named(rows, places) + _by_subject(rows, subjects):
        of[row.pop("number")].append(row)
    begun = {} if adopted is None else adopted.rows
    return [_told(violation, of.get(n), begun) for n, violation in enumerate(violations)]


def _told(
    violation: dict[str, Any], found: list[dict[str, Any]] | None, begun: Mapping[MemberOfRun, Row]
) -> dict[str, Any]:
    told = {name: value for name, value in violation.items() if name not in ("rows", "missing")}
    if found is None:
        return told
    missing = _missing(violation, found)
    once = {(row["process"], row["seq"]): row for row in _as_they_stand(violation["run"], found, begun)}
    events = sorted(once.values(), key=lambda row: (row["time_ns"], row["process"], row["seq"]))[:PROOF_EVENTS_MAX]
    return {**told, "events": events, "missing": missing}


def _as_they_stand(
    run: str, found: Sequence[dict[str, Any]], begun: Mapping[MemberOfRun, Row]
) -> Iterator[dict[str, Any]]:
    """The rows as the trace has them: what a newcomer took over is its donor's, beside the row that says so."""
    for row in found:
        source, seq = row.pop("source"), row.pop("source_seq")
        if source != row["process"]:
            adoption = begun[run, row["process"]].asDict()
            yield {name: adoption[name] for name in SHOWN}
        yield {**row, "process": source, "seq": seq}


def _missing(violation: dict[str, Any], events: Sequence[dict[str, Any]]) -> list[dict[str, str | None]]:
    if violation["property"] not in OF_MISSING:
        return [{"process": process, "message": None} for process in violation["missing"]]
    there = {(row["process"], row["message"]) for row in events if row["kind"] == "deliver"}
    return [
        {"process": process, "message": message}
        for message in violation["messages"]
        for process in violation["processes"]
        if (process, message) not in there
    ]


def _named(events: DataFrame, places: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """The rows that a check named."""
    if not places:
        return []
    wanted = F.broadcast(local_table(events.sparkSession, places, _PLACES))
    found = events.join(wanted, on=["run", "process", "seq"], how="inner")
    return [row.asDict() for row in found.select("number", *SHOWN, *SOURCE).collect()]


def _by_subject(events: DataFrame, subjects: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Else what these processes did with these messages: how they were multicast and where they are delivered, or the
    frames about them."""
    if not subjects:
        return []
    wanted = F.broadcast(local_table(events.sparkSession, subjects, _SUBJECTS))
    own = F.col("message") == F.col("about_message")
    framed = F.array_contains("about", F.col("about_message")) & F.arrays_overlap(_ends(), "processes")
    of_message = own & ((F.col("kind") == "multicast") | F.array_contains("processes", F.col("process")))
    telling = F.when(F.col("kind").isin("send", "receive"), framed).otherwise(of_message)
    row = F.struct(F.struct("time_ns", "process", "seq").alias("place"), *SHOWN, *SOURCE)
    found = (
        events.filter("kind in ('multicast', 'deliver', 'enter', 'send', 'receive')")
        .join(wanted, on="run", how="inner")
        .filter(telling)
        .groupBy("number")
        .agg(F.slice(F.array_sort(F.collect_set(row)), 1, PROOF_EVENTS_MAX).alias("rows"))
        .select("number", F.inline("rows"))
    )
    return [row.asDict() for row in found.select("number", *SHOWN, *SOURCE).collect()]


def _ends() -> Column:
    return F.array_append(F.coalesce("peers", nobody()), F.col("process"))
