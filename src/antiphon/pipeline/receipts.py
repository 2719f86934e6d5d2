"""What clients were promised, beside what members delivered: is anything missing, doubled or out of nowhere?"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def compare(receipts: DataFrame, events: DataFrame, runs: DataFrame) -> DataFrame:
    """One row: of the deliveries that the accepted messages demand, how many were expected, missing, doubled.

    ``receipts`` has (run, message, destinations) for each message that a member accepted. Each member of each of its
    destination groups must have delivered it once. ``unexpected`` counts deliveries of messages without a receipt.
    """
    members = runs.select("run", F.explode("groups").alias("group", "members"))
    promised = receipts.select("run", "message", F.explode("destinations").alias("group"))
    expected = promised.join(F.broadcast(members), on=["run", "group"], how="inner").select(
        "run", "message", F.explode("members").alias("process"), F.lit(True).alias("is_expected")
    )
    key = ["run", "message", "process"]
    delivered = events.filter("kind = 'deliver'").groupBy(*key).agg(F.count(F.lit(1)).alias("times"))
    both = expected.join(delivered, on=key, how="full")
    return both.agg(
        F.count("is_expected").alias("expected"),
        F.count_if(F.col("times").isNull()).alias("missing"),
        F.count_if(F.col("times") > 1).alias("doubled"),
        F.count_if(F.col("is_expected").isNull()).alias("unexpected"),
    )
