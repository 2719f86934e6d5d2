"""All promised properties of all runs of a trace in one go: violations, and a verdict per run and property."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from antiphon.checks import Status
from antiphon.core.promises import REGISTRY, load
from antiphon.pipeline import schema
from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.local import kept, local_table
from antiphon.pipeline.messages import IN_PART, NEEDS_DRAINED, PROPERTIES, TIMED
from antiphon.pipeline.metrics import Metrics, metrics_of
from antiphon.pipeline.scan import Scan
from antiphon.pipeline.violations import together

SHOWN = 5  # violations kept of each property of each run: one disproves it, a few help to understand it


def verify(events: DataFrame, runs: DataFrame, *, fast: bool = True, scan: Scan | None = None) -> DataFrame:
    """The violations (run, property, processes, messages, detail), a few of each property of each run.

    `events` has each event once, as `read_events` gives it. Unless `fast`, nothing is proved by bits and keys and all
    is checked the long way, which must give the same properties. `scan`: the same events, where there
    is a quicker way to read them.
    """
    return _violations(Evidence(events, runs, fast=fast, scan=scan))


def verify_and_measure(events: DataFrame, runs: DataFrame, *, scan: Scan | None = None) -> tuple[DataFrame, Metrics]:
    """What `verify` and `metrics` say: the first look at the trace serves both."""
    evidence = Evidence(events, runs, scan=scan, measured=True)
    return _violations(evidence), metrics_of(evidence.figures, events, runs)


def _violations(evidence: Evidence) -> DataFrame:
    evidence.look()
    checks = [load(definition.on_spark) for promise, definition in REGISTRY.items() if promise in evidence.asked]
    every = together(*(check(evidence) for check in checks))
    if every is None:
        return local_table(evidence.events.sparkSession, [], schema.VIOLATIONS)
    return kept(every.transform(_few).select(*schema.VIOLATIONS.names))


def _few(found: DataFrame) -> DataFrame:
    """Keep a few rows per run and property. Spark cuts before it shuffles, so a broken giant costs no more."""
    telling = Window.partitionBy("run", "property").orderBy("rank", "messages", "processes")
    return found.withColumn("place", F.row_number().over(telling)).filter(F.col("place") <= SHOWN).drop("place")


def verdicts(violations: DataFrame, runs: DataFrame) -> DataFrame:
    """(run, property, status): a row for each run and each property that there is or that some run promises."""
    known = F.array(*(F.lit(name) for name in PROPERTIES))
    property_ = F.col("property")
    broken = violations.select("run", "property").distinct().withColumn("broken", F.lit(True))
    early = property_.isin(*NEEDS_DRAINED) & ~F.col("drained")
    untimed = property_.isin(*TIMED) & F.col("clock_error_ns").isNull()
    status = (
        F.when(~F.array_contains("promises", property_), F.lit(Status.NOT_PROMISED.value))
        .when(~property_.isin(*PROPERTIES) | early | untimed, F.lit(Status.UNCHECKED.value))
        .when(F.coalesce("broken", F.lit(False)), F.lit(Status.BROKEN.value))
        .when(property_.isin(*IN_PART) & ~F.col("drained"), F.lit(Status.UNCHECKED.value))
        .when(F.size("incomplete") > 0, F.lit(Status.INCOMPLETE.value))
        .otherwise(F.lit(Status.HOLDS.value))
    )
    names = runs.select(F.explode(F.array_union(known, "promises")).alias("property")).distinct()
    place = F.coalesce(F.nullif(F.array_position(known, property_), F.lit(0)), F.lit(len(PROPERTIES) + 1))
    rows = runs.select("run", "promises", "drained", "incomplete", "clock_error_ns").crossJoin(names)
    joined = rows.join(broken, on=["run", "property"], how="left")
    return joined.orderBy("run", place, "property").select("run", "property", status.alias("status"))
