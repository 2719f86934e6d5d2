"""Locality: what a component named `consensus` sends or receives stays within one group."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from antiphon.pipeline.delivery import violation
from antiphon.pipeline.messages import facts, judged


def locality(events: DataFrame, runs: DataFrame) -> DataFrame:
    """Pairs of processes of different groups that exchange frames of a consensus, in the runs that promise locality."""
    local = facts(runs).filter(judged("locality"))
    members = F.broadcast(
        local.select("run", F.explode("groups").alias("group", "members")).select(
            "run", "group", F.explode("members").alias("member")
        )
    )
    pairs = (
        events.filter("kind in ('send', 'receive') and layer like '%/consensus' and peer is not null")
        .join(F.broadcast(local.select("run")), on="run", how="left_semi")
        .groupBy("run", "process", "peer", "layer")
        .agg(F.min("message").alias("message"))
    )
    here = members.select("run", F.col("group").alias("here"), F.col("member").alias("process"))
    there = members.select("run", F.col("group").alias("there"), F.col("member").alias("peer"))
    placed = pairs.join(here, on=["run", "process"], how="left").join(there, on=["run", "peer"], how="left")
    apart = placed.filter("here is null or there is null or here <> there")
    detail = F.concat_ws(
        "", "process", F.lit(" and "), "peer", F.lit(", which are not of one group, exchange frames of "), "layer"
    )
    messages = F.array_compact(F.array("message"))
    return apart.select("run", F.inline(F.array(violation("locality", F.array("process", "peer"), messages, detail))))
