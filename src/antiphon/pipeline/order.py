"""The exact checks of total_order and fifo for runs that their keys do not prove, as plain joins and windows."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from antiphon.pipeline.delivery import violation
from antiphon.pipeline.messages import judged

NEVER = 2**63 - 1  # the position of what is not delivered: after everything


def total_order(table: DataFrame, runs: DataFrame) -> DataFrame:
    """The k-th deliveries of a group's members are one message, for every k."""
    by_seq = Window.partitionBy("run", "process").orderBy("seq")
    deliveries = (
        table.filter(judged("total_order"))
        .select("run", "message", F.inline("deliveries"))
        .groupBy("run", "process", "message")
        .agg(F.min("seq").alias("seq"))  # a second delivery is integrity's affair
        .withColumn("position", F.row_number().over(by_seq))
    )
    members = runs.select("run", F.explode("groups").alias("group", "members")).select(
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
    found = violation("total_order", F.array("p", "q"), F.array("one", "other"), detail, rank=F.col("position"))
    return places.select("run", F.inline(F.array(found)))


def fifo(table: DataFrame) -> DataFrame:
    """Along what one sender multicasts to one process, no delivery comes before an earlier message's delivery."""
    first = F.array_min(
        F.transform(F.filter("deliveries", lambda d: d["process"] == F.col("process")), lambda d: d["seq"])
    )
    expected = (
        table.filter(judged("fifo") & F.col("sender").isNotNull())
        .withColumn("process", F.explode("addressed"))
        .select("run", "process", "sender", "sender_seq", "message", first.alias("at"))
    )
    before = (
        Window.partitionBy("run", "process", "sender").orderBy("sender_seq").rowsBetween(Window.unboundedPreceding, -1)
    )
    latest = F.max(F.struct(F.coalesce("at", F.lit(NEVER)).alias("at"), F.col("message"))).over(before)
    broken = expected.withColumn("latest", latest).filter(F.col("latest.at") > F.col("at"))
    how = F.when(F.col("latest.at") == NEVER, F.lit("without")).otherwise(F.lit("before"))
    detail = F.format_string(
        "%s delivers %s %s %s, which %s multicast earlier", "process", "message", how, "latest.message", "sender"
    )
    found = violation(
        "fifo", F.array("process"), F.array("latest.message", "message"), detail, rank=F.col("sender_seq")
    )
    return broken.select("run", F.inline(F.array(found)))
