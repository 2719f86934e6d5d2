"""Processes from one view to the next: which they deliver, and what in which of them, with docs/trace.md's words."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from antiphon.pipeline.messages import nobody


def announced(events: DataFrame, facts: DataFrame) -> DataFrame:
    """The views that processes deliver: (run, process, seq, view, members, time, next, place, goes).

    A `time` of 1 is the first, and only these are numbered: a process is in the view from there to the `next` one.
    It `goes` on from it where the next view is known, or the process stays.
    """
    members = F.array_sort(F.array_distinct(F.coalesce("peers", nobody())))
    view = F.coalesce("message", F.lit("")).alias("view")
    named = events.filter("kind = 'view'").select("run", "process", "seq", view, members.alias("members"))
    again = Window.partitionBy("run", "process", "view").orderBy("seq")
    by_seq = Window.partitionBy("run", "process", "is_first").orderBy("seq")
    stays = F.col("drained") & ~F.array_contains("faulty", F.col("process"))
    return (
        named.withColumn("time", F.row_number().over(again))
        .withColumn("is_first", F.col("time") == 1)
        .withColumns({"next": F.lead("view").over(by_seq), "place": F.row_number().over(by_seq)})
        .join(F.broadcast(facts.select("run", "drained", "faulty")), on="run", how="inner")
        .withColumn("goes", F.col("next").isNotNull() | stays)
        .drop("drained", "faulty", "is_first")
    )


def stretches_of(named: DataFrame) -> DataFrame:
    """(run, process, view, begin, next, place, goes): a process from a view to its next."""
    return named.filter("time = 1").select(
        "run", "process", "view", F.col("seq").alias("begin"), "next", "place", "goes"
    )


def first_deliveries(events: DataFrame) -> DataFrame:
    """(run, process, message, seq): a second delivery is integrity's affair. What has no name is one message."""
    named = events.filter("kind = 'deliver'").withColumn("message", F.coalesce("message", F.lit("")))
    return named.groupBy("run", "process", "message").agg(F.min("seq").alias("seq"))


def in_views(events: DataFrame, stretches: DataFrame) -> DataFrame:
    """First deliveries, each in its view: (run, process, message, seq, view, next, goes)."""
    return placed(first_deliveries(events.filter("message is not null")), stretches).drop("order")


def placed(rows: DataFrame, stretches: DataFrame, *, how: str = "inner") -> DataFrame:
    """Rows of processes, each with the view that it is in; `how`: "left" keeps those in none.

    A process has few stretches: they go to where the rows are, so that these are neither moved nor sorted.
    """
    stretch = F.struct("begin", "view", "next", "goes", F.col("place").alias("order"))
    of_process = stretches.groupBy("run", "process").agg(F.sort_array(F.collect_list(stretch)).alias("stretches"))
    joined = rows.join(F.broadcast(of_process), on=["run", "process"], how=how)
    so_far = F.filter("stretches", lambda one: one["begin"] < F.col("seq"))
    within = joined.withColumn("stretch", F.try_element_at(so_far, F.lit(-1)))
    if how == "inner":
        within = within.filter("stretch is not null")
    return within.select(*rows.columns, *(f"stretch.{name}" for name in ("view", "next", "goes", "order")))
