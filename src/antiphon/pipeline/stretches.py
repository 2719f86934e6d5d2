"""Processes from one view to the next: which they deliver, and what in which of them, with docs/trace.md's words."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from antiphon.pipeline.messages import nobody


def announced(events: DataFrame, runs: DataFrame) -> DataFrame:
    """The views that processes deliver: (run, process, seq, view, members, time); a time of 1 is the first."""
    rows = events.filter("kind = 'view'").join(F.broadcast(runs.select("run")), on="run", how="left_semi")
    members = F.array_sort(F.array_distinct(F.coalesce("peers", nobody())))
    again = Window.partitionBy("run", "process", "view").orderBy("seq")
    view = F.coalesce("message", F.lit("")).alias("view")
    named = rows.select("run", "process", "seq", view, members.alias("members"))
    return named.withColumn("time", F.row_number().over(again))


def stretches_of(named: DataFrame, runs: DataFrame) -> DataFrame:
    """(run, process, view, begin, next, place, goes): `goes` where the next view is known, or the process stays."""
    by_seq = Window.partitionBy("run", "process").orderBy("seq")
    facts = F.broadcast(runs.select("run", "drained", "faulty"))
    stays = F.col("drained") & ~F.array_contains("faulty", F.col("process"))
    return (
        named.filter("time = 1")
        .withColumns({"next": F.lead("view").over(by_seq), "place": F.row_number().over(by_seq)})
        .join(facts, on="run", how="inner")
        .select("run", "process", "view", F.col("seq").alias("begin"), "next", "place",
                (F.col("next").isNotNull() | stays).alias("goes"))
    )  # fmt: skip


def in_views(events: DataFrame, stretches: DataFrame) -> DataFrame:
    """First deliveries, each in its view: (run, process, message, seq, view, next, goes)."""
    runs = stretches.select("run").distinct()
    first = (
        events.filter("kind = 'deliver' and message is not null")
        .join(F.broadcast(runs), on="run", how="left_semi")
        .groupBy("run", "process", "message")
        .agg(F.min("seq").alias("seq"))  # a second delivery is integrity's affair
    )
    return placed(first, stretches, ["run", "process", "message", "seq"]).select(
        "run", "process", "message", "seq", "view", "next", "goes"
    )


def placed(rows: DataFrame, stretches: DataFrame, columns: list[str]) -> DataFrame:
    """Rows of processes, each with the view that it is in: one sort of both kinds of rows, no join by ranges."""
    stretch = F.struct("view", "next", "goes", F.col("place").alias("order")).alias("stretch")
    marks = stretches.select("run", "process", F.col("begin").alias("seq"), stretch, F.lit(True).alias("mark"))
    by_seq = Window.partitionBy("run", "process").orderBy("seq")
    both = rows.unionByName(marks, allowMissingColumns=True)
    within = both.withColumn("stretch", F.last("stretch", ignorenulls=True).over(by_seq))
    return within.filter("mark is null and stretch is not null").select(*columns, "stretch.*")
