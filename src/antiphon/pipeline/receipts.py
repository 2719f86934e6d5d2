"""What clients were told, beside what members delivered: is anything missing, doubled or out of nowhere?"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from antiphon.pipeline.messages import group_set

PAYLOAD = ["run", "client", "destinations", "number", "process"]  # one payload at one process


def compare(receipts: DataFrame, events: DataFrame, runs: DataFrame) -> DataFrame:
    """One row: of the payloads that members acknowledged, how many deliveries were expected, missing, doubled.

    ``receipts`` has (run, client, destinations, first, payloads): what a client was told is safe. Each member of each
    of the destination groups must have delivered each of these payloads once. ``unexpected`` counts deliveries of
    payloads without a receipt.
    """
    members = runs.select("run", F.explode("groups").alias("group", "members"))
    told = receipts.select("run", "client", group_set().alias("destinations"), _numbers("first", "payloads"))
    expected = (
        told.distinct()
        .withColumn("group", F.explode("destinations"))
        .join(F.broadcast(members), on=["run", "group"], how="inner")
        .withColumn("process", F.explode("members"))
        .select(*PAYLOAD, F.lit(True).alias("is_expected"))
    )
    delivered = (
        events.filter("kind = 'deliver'")
        .select("run", "process", group_set().alias("destinations"), F.explode("requests").alias("request"))
        .select("run", "process", "destinations", "request.*")
        .select("run", "process", "destinations", "client", _numbers("first", "payloads"))
        .groupBy(*PAYLOAD)
        .agg(F.count(F.lit(1)).alias("times"))
    )
    both = expected.join(delivered, on=PAYLOAD, how="full")
    return both.agg(
        F.count("is_expected").alias("expected"),
        F.count_if(F.col("times").isNull()).alias("missing"),
        F.count_if(F.col("times") > 1).alias("doubled"),
        F.count_if(F.col("is_expected").isNull()).alias("unexpected"),
    )


def _numbers(first: str, payloads: str) -> Column:
    """The number of each payload."""
    return F.explode(F.sequence(F.col(first), F.col(first) + F.col(payloads) - 1)).alias("number")
