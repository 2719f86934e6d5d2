"""FIFO and causal order, for runs that their keys do not prove."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.messages import judged
from antiphon.pipeline.order import disorder
from antiphon.pipeline.violations import found, violation

NEVER = 2**63 - 1  # the position of what is not delivered: after everything


def fifo(evidence: Evidence) -> DataFrame | None:
    """Along what one sender multicasts to one process, no delivery comes before an earlier message's delivery."""
    if evidence.unordered is None or Promise.FIFO not in evidence.unproven:
        return None
    first = F.array_min(
        F.transform(F.filter("deliveries", lambda d: d["process"] == F.col("process")), lambda d: d["seq"])
    )
    expected = (
        evidence.unordered.filter(judged(Promise.FIFO.value) & F.col("known"))
        .withColumn("process", F.explode("addressed"))
        .select("run", "process", "sender", "sender_seq", "message", first.alias("at"))
    )
    before = (
        Window.partitionBy("run", "process", "sender").orderBy("sender_seq").rowsBetween(Window.unboundedPreceding, -1)
    )
    latest = F.max(F.struct(F.coalesce("at", F.lit(NEVER)).alias("at"), F.col("message"))).over(before)
    broken = expected.withColumn("latest", latest).filter(F.col("latest.at") > F.col("at"))
    how = F.when(F.col("latest.at") == NEVER, F.lit("without")).otherwise(F.lit("before"))
    detail = F.format_string(
        "%s delivers %s %s %s, which %s multicast earlier", "process", "message", how, "latest.message", "sender"
    )
    messages = F.array("latest.message", "message")
    return found(broken, violation(Promise.FIFO, F.array("process"), messages, detail, rank=F.col("sender_seq")))


def causal(evidence: Evidence) -> DataFrame | None:
    return disorder(evidence, Promise.CAUSAL)


def causal_extension(evidence: Evidence) -> DataFrame | None:
    return disorder(evidence, Promise.CAUSAL_EXTENSION)
