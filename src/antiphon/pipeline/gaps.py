"""Order with gaps: where a member leaves something out, it has said so."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.messages import judged
from antiphon.pipeline.violations import found, rows_of, violation


def gaps(evidence: Evidence) -> DataFrame:
    """Neighbours at one member, with no gap in between, are neighbours at every other one that delivers both."""
    members = (
        evidence.facts.filter(judged(Promise.GAPS.value))
        .select("run", F.explode("groups").alias("group", "members"))
        .select("run", "group", F.explode("members").alias("process"))
    )
    rows = evidence.outcomes.filter("kind in ('deliver', 'gap') and (kind = 'gap' or message is not null)").join(
        F.broadcast(members), on=["run", "process"], how="inner"
    )
    by_seq = Window.partitionBy("run", "group", "process").orderBy("seq")
    first_of = Window.partitionBy("run", "group", "process", "message").orderBy("seq")
    # How many gaps a process has announced before it delivers something.
    numbered = rows.withColumn("gaps", F.count_if(F.col("kind") == "gap").over(by_seq))
    places = (
        numbered.filter("kind = 'deliver'")
        .withColumn("time", F.row_number().over(first_of))
        .filter("time = 1")  # a second delivery is integrity's affair
        .select("run", "group", "process", "message", "seq", "gaps", F.row_number().over(by_seq).alias("place"))
        .withColumns({"before": F.lag("message").over(by_seq), "before_seq": F.lag("seq").over(by_seq)})
        .withColumn("earlier", F.lag("gaps", 1, 0).over(by_seq))
    )
    neighbours = places.filter("gaps = earlier").drop("place")
    others = places.select(
        *("run", "group", "message", F.col("process").alias("other"), F.col("place").alias("at")),
        *(F.col("seq").alias("at_seq"), F.col("before").alias("between"), F.col("before_seq").alias("between_seq")),
    )
    befores = places.select(
        *("run", "group", F.col("process").alias("other"), F.col("message").alias("before")),
        *(F.col("place").alias("after"), F.col("seq").alias("after_seq")),
    )
    apart = (
        neighbours.join(others, on=["run", "group", "message"], how="inner")
        .join(befores, on=["run", "group", "other", "before"], how="left")
        .withColumn("after", F.when(F.col("before").isNull(), F.lit(0)).otherwise(F.col("after")))
        .filter("after + 1 < at")
    )
    detail = F.format_string(
        "%s delivers %s %s and announces no gap, but %s delivers %s before it",
        "process", "message",
        F.when(F.col("before").isNull(), F.lit("first")).otherwise(F.concat(F.lit("right after "), "before")),
        "other", "between",
    )  # fmt: skip
    messages = F.array_compact(F.array("before", "between", "message"))
    ours = ("process", "before_seq"), ("process", "seq")
    proof = rows_of(*ours, ("other", "after_seq"), ("other", "between_seq"), ("other", "at_seq"))
    ends = F.array("process", "other")
    return found(apart, violation(Promise.GAPS, ends, messages, detail, rank=F.col("seq"), rows=proof))
