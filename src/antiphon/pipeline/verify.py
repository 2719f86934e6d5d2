"""All promised properties of all runs of a trace in one go: violations, and a verdict per run and property."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from antiphon.pipeline import kernel, schema
from antiphon.pipeline.delivery import idle_chatter, message_violations
from antiphon.pipeline.locality import locality
from antiphon.pipeline.messages import NEEDS_DRAINED, PROPERTIES, about_messages, messages
from antiphon.pipeline.order import fifo, total_order
from antiphon.pipeline.summary import summaries
from antiphon.pipeline.witness import unproven

SHOWN = 5  # violations kept of each property of each run: one disproves it, a few help to understand it
FOUND = "run string, property string, processes array<string>, messages array<string>, detail string, rank long"


def verify(events: DataFrame, runs: DataFrame, *, fast: bool = True) -> DataFrame:
    """The violations (run, property, processes, messages, detail), a few of each property of each run.

    `events` has each event once, as `read_events` gives it. Unless `fast`, nothing is proved by bits and keys and all
    is checked the long way, which must give the same properties.
    """
    # Kept, a narrow row per message: three questions are asked of it, and what to do next depends on the answers.
    summary = summaries(events, runs).localCheckpoint()
    suspects = summary.filter("suspect" if fast else "true").select("run", "message")
    open_ = unproven(events, summary, runs).localCheckpoint() if fast else _all_order(runs)
    found = [idle_chatter(events, runs), locality(events, runs)]
    if not suspects.isEmpty():
        rows = about_messages(events, runs).join(suspects, on=["run", "message"], how="left_semi")
        found.append(message_violations(messages(rows, runs)))
    if not open_.isEmpty():
        found += _orders(events, runs, open_)
    return reduce(DataFrame.unionByName, found).transform(_few).select(*schema.VIOLATIONS.names).localCheckpoint()


def verdicts(violations: DataFrame, runs: DataFrame) -> DataFrame:
    """(run, property, status): holds, violated, not promised, or undecided where the run was not drained."""
    names = F.array(*(F.lit(name) for name in PROPERTIES))
    broken = violations.select("run", "property").distinct().withColumn("broken", F.lit(True))
    early = F.col("property").isin(*NEEDS_DRAINED) & ~F.col("drained")
    status = (
        F.when(~F.array_contains("promises", F.col("property")), F.lit("not promised"))
        .when(F.coalesce("broken", F.lit(False)), F.lit("violated"))
        .when(early, F.lit("undecided"))
        .otherwise(F.lit("holds"))
    )
    rows = runs.select("run", "promises", "drained", F.posexplode(names).alias("place", "property"))
    joined = rows.join(broken, on=["run", "property"], how="left")
    return joined.orderBy("run", "place").select("run", "property", status.alias("status"))


def _few(found: DataFrame) -> DataFrame:
    """Keep a few rows per run and property. Spark cuts before it shuffles, so a broken giant costs no more."""
    telling = Window.partitionBy("run", "property").orderBy("rank", "messages", "processes")
    return found.withColumn("place", F.row_number().over(telling)).filter(F.col("place") <= SHOWN).drop("place")


def _all_order(runs: DataFrame) -> DataFrame:
    order = F.array(*(F.lit(name) for name in ("total_order", "acyclic_order", "fifo", "causal")))
    return runs.select("run", F.explode(F.array_intersect("promises", order)).alias("property"))


def _orders(events: DataFrame, runs: DataFrame, open_: DataFrame) -> list[DataFrame]:
    """The order properties that keys did not prove, of those runs alone."""
    left = open_.groupBy("run").agg(F.collect_set("property").alias("promises"))
    some_runs = runs.drop("promises").join(F.broadcast(left), on="run", how="inner")
    table = messages(about_messages(events, some_runs), some_runs)
    return [total_order(table, some_runs), fifo(table), _by_kernel(table)]


def _by_kernel(table: DataFrame) -> DataFrame:
    wanted = table.withColumns(
        {
            "acyclic": F.array_contains("judged", "acyclic_order"),
            "causal": F.array_contains("judged", "causal"),
            "delivered_at": F.col("deliveries.process"),
            "delivered_seq": F.col("deliveries.seq"),
        }
    ).filter("acyclic or causal")
    return wanted.select(*kernel.COLUMNS).groupBy("run").applyInArrow(kernel.check, FOUND)
