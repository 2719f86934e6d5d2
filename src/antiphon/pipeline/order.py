"""Total order within each group, and one order over all groups together, for runs that their keys do not prove."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline.blocks import EVENTS_IN_BLOCK, placed
from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.messages import judged
from antiphon.pipeline.violations import found, violation


def total_order(evidence: Evidence) -> DataFrame | None:
    """The k-th agreed messages that a group's members deliver are one, for every k."""
    if evidence.unordered is None or Promise.TOTAL_ORDER not in evidence.unproven:
        return None
    first = (
        evidence.unordered.filter(judged(Promise.TOTAL_ORDER.value) & ~F.col("causal"))
        .select("run", "message", F.inline("deliveries"))
        .groupBy("run", "process", "message")
        .agg(F.min("seq").alias("seq"))  # a second delivery is integrity's affair
    )
    deliveries = placed(first, ["run", "process"], "seq", "position", size=EVENTS_IN_BLOCK)
    members = evidence.facts.select("run", F.explode("groups").alias("group", "members")).select(
        "run", "group", F.explode("members").alias("process")
    )
    places = (
        deliveries.join(F.broadcast(members), on=["run", "process"], how="inner")
        .groupBy("run", "group", "position")
        .agg(
            F.min("message").alias("one"),
            F.max("message").alias("other"),
            F.min_by(F.struct("process", "seq"), "message").alias("at_one"),
            F.max_by(F.struct("process", "seq"), "message").alias("at_other"),
        )
        .filter("one <> other")
        .withColumns({"p": F.col("at_one.process"), "q": F.col("at_other.process")})
    )
    detail = F.format_string(
        "in group %s, %s delivers %s as number %d and %s delivers %s", "group", "p", "one", "position", "q", "other"
    )
    struct = violation(
        Promise.TOTAL_ORDER,
        F.array("p", "q"),
        F.array("one", "other"),
        detail,
        rank=F.col("position"),
        rows=F.array("at_one", "at_other"),
    )
    return found(places, struct)


def acyclic_order(evidence: Evidence) -> DataFrame | None:
    return disorder(evidence, Promise.ACYCLIC_ORDER)


def disorder(evidence: Evidence, promise: Promise) -> DataFrame | None:
    """What the kernel found of this property."""
    if promise not in evidence.unproven or evidence.disorder is None:
        return None
    return evidence.disorder.filter(F.col("property") == promise.value)
