"""Total order within each group, and one order over all groups together, for runs that their keys do not prove."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline import kernel, schema
from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.messages import judged
from antiphon.pipeline.violations import found, violation


def total_order(evidence: Evidence) -> DataFrame:
    """The k-th agreed messages that a group's members deliver are one, for every k."""
    by_seq = Window.partitionBy("run", "process").orderBy("seq")
    deliveries = (
        evidence.unordered.filter(judged(Promise.TOTAL_ORDER.value) & ~F.col("causal"))
        .select("run", "message", F.inline("deliveries"))
        .groupBy("run", "process", "message")
        .agg(F.min("seq").alias("seq"))  # a second delivery is integrity's affair
        .withColumn("position", F.row_number().over(by_seq))
    )
    members = evidence.facts.select("run", F.explode("groups").alias("group", "members")).select(
        "run", "group", F.explode("members").alias("process")
    )
    places = (
        deliveries.join(F.broadcast(members), on=["run", "process"], how="inner")
        .groupBy("run", "group", "position")
        .agg(
            F.min("message").alias("one"),
            F.max("message").alias("other"),
            F.min_by("process", "message").alias("p"),
            F.max_by("process", "message").alias("q"),
        )
        .filter("one <> other")
    )
    detail = F.format_string(
        "in group %s, %s delivers %s as number %d and %s delivers %s", "group", "p", "one", "position", "q", "other"
    )
    struct = violation(Promise.TOTAL_ORDER, F.array("p", "q"), F.array("one", "other"), detail, rank=F.col("position"))
    return found(places, struct)


def acyclic_order(evidence: Evidence) -> DataFrame:
    return checked_by_run(evidence, Promise.ACYCLIC_ORDER, kernel.acyclic_order, among=~F.col("causal"))


def checked_by_run(
    evidence: Evidence, promise: Promise, check: Callable[[pa.Table], pa.Table], among: Column | None = None
) -> DataFrame:
    """Give each run's messages to the kernel, which follows chains through all of a run at once."""
    chosen = judged(promise.value) if among is None else judged(promise.value) & among
    table = evidence.unordered.filter(chosen).withColumns(
        {"delivered_at": F.col("deliveries.process"), "delivered_seq": F.col("deliveries.seq")}
    )
    result: DataFrame = table.select(*kernel.COLUMNS).groupBy("run").applyInArrow(check, schema.FOUND)
    return result
