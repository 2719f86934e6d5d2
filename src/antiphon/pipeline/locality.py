"""Locality: what a component named `consensus` sends or receives stays within one group."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.messages import judged
from antiphon.pipeline.violations import found, violation, words


def locality(evidence: Evidence) -> DataFrame:
    """Pairs of processes of different groups that exchange frames of a consensus, in the runs that promise locality."""
    local = evidence.facts.filter(judged(Promise.LOCALITY.value))
    members = F.broadcast(
        local.select("run", F.explode("groups").alias("group", "members")).select(
            "run", "group", F.explode("members").alias("member")
        )
    )
    pairs = (
        evidence.of_runs_with(evidence.events, Promise.LOCALITY)
        .filter("kind in ('send', 'receive') and (layer = 'consensus' or layer like '%/consensus')")
        .select("run", "process", "layer", F.explode("peers").alias("peer"))
        .filter("peer is not null")
        .distinct()
    )
    here = members.select("run", F.col("group").alias("here"), F.col("member").alias("process"))
    there = members.select("run", F.col("group").alias("there"), F.col("member").alias("peer"))
    placed = pairs.join(here, on=["run", "process"], how="left").join(there, on=["run", "peer"], how="left")
    apart = placed.filter("here is null or there is null or here <> there")
    detail = words(
        F.col("process"),
        " and ",
        F.col("peer"),
        ", which are not in the same group, exchange frames of ",
        F.col("layer"),
    )
    no_messages = F.array().cast("array<string>")
    return found(apart, violation(Promise.LOCALITY, F.array("process", "peer"), no_messages, detail))
