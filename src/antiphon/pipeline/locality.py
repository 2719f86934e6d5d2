"""Locality: what a component named `consensus` sends or receives stays within one group."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.messages import judged
from antiphon.pipeline.violations import found, rows_of, violation, words


def locality(evidence: Evidence) -> DataFrame:
    """Pairs of processes of different groups that exchange frames of a consensus, in the runs that promise locality."""
    groups = F.broadcast(evidence.facts.filter(judged(Promise.LOCALITY.value)).select("run", "groups"))
    pairs = (
        evidence.of_runs_with(evidence.events, Promise.LOCALITY)
        .filter("kind in ('send', 'receive') and (layer = 'consensus' or layer like '%/consensus')")
        .select("run", "process", "seq", "layer", F.explode("peers").alias("peer"))
        .filter("peer is not null")
        .groupBy("run", "process", "layer", "peer")
        .agg(F.min("seq").alias("seq"))
    )
    # Groups may overlap: one that has both is enough.
    together = F.exists(F.map_values("groups"), _has_both)
    apart = pairs.join(groups, on="run", how="inner").filter(~together)
    detail = words(
        F.col("process"),
        " and ",
        F.col("peer"),
        ", which are not in the same group, exchange frames of ",
        F.col("layer"),
    )
    no_messages = F.array().cast("array<string>")
    ends, proof = F.array("process", "peer"), rows_of(("process", "seq"))
    return found(apart, violation(Promise.LOCALITY, ends, no_messages, detail, rows=proof))


def _has_both(members: Column) -> Column:
    return F.array_contains(members, F.col("process")) & F.array_contains(members, F.col("peer"))
