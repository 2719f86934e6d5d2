"""FIFO and causal order, for runs that their keys do not prove."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline.blocks import EVENTS_IN_BLOCK, running_max
from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.messages import judged
from antiphon.pipeline.order import disorder
from antiphon.pipeline.violations import found, rows_of, violation


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
    # What is not delivered comes after everything that is.
    place = F.struct(F.col("at").isNull().alias("never"), "at", "message", "sender_seq")
    seen = running_max(expected, ["run", "process", "sender"], "sender_seq", {"latest": place}, size=EVENTS_IN_BLOCK)
    late = F.col("latest.never") | (F.col("latest.at") > F.col("at"))
    broken = seen.filter(F.col("at").isNotNull() & late)
    how = F.when(F.col("latest.never"), F.lit("without")).otherwise(F.lit("before"))
    detail = F.format_string(
        "%s delivers %s %s %s, which %s multicast earlier", "process", "message", how, "latest.message", "sender"
    )
    messages = F.array("latest.message", "message")
    rows = rows_of(
        ("sender", "latest.sender_seq"), ("sender", "sender_seq"), ("process", "at"), ("process", "latest.at")
    )
    struct = violation(Promise.FIFO, F.array("process"), messages, detail, rank=F.col("sender_seq"), rows=rows)
    return found(broken, struct)


def causal(evidence: Evidence) -> DataFrame | None:
    return disorder(evidence, Promise.CAUSAL)


def causal_extension(evidence: Evidence) -> DataFrame | None:
    return disorder(evidence, Promise.CAUSAL_EXTENSION)
