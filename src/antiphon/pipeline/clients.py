"""What clients were promised: their order, and that what was acknowledged is delivered."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.messages import judged, nobody
from antiphon.pipeline.requests import SESSION, missing_at, request_text
from antiphon.pipeline.violations import found, listed, violation, words


def client_order(evidence: Evidence) -> DataFrame | None:
    """Each request begins where the one before it ended, or behind a gap; a repeated one is integrity's affair."""
    if evidence.odd_sessions is None:
        return None
    once = (
        evidence.odd_sessions.filter(judged(Promise.CLIENT_ORDER.value) & ~F.col("own"))
        .repartition(*SESSION)
        .groupBy(*SESSION, "first")
        .agg(F.min(F.struct("seq", "place", "payloads", "message")).alias("at"))
        .select(*SESSION, "first", "at.*")
    )
    by_delivery = Window.partitionBy(*SESSION).orderBy("seq", "place")
    expected = F.lag(F.col("first") + F.col("payloads"), 1, 0).over(by_delivery)
    earlier = Window.partitionBy(*SESSION).orderBy("seq").rangeBetween(Window.unboundedPreceding, -1)
    since = F.coalesce(F.max("seq").over(earlier), F.lit(0))  # the row before in which the session has something
    odd = once.withColumns({"expected": expected, "since": since}).filter("first <> expected")
    gaps = evidence.events.filter("kind = 'gap'").select("run", "process", F.col("seq").alias("gap"))
    announced = (
        (odd.run == gaps.run)
        & (odd.process == gaps.process)
        & (odd["first"] > odd.expected)
        & gaps.gap.between(odd.since, odd.seq)
    )
    broken = odd.join(gaps, on=announced, how="left_anti")
    detail = words(
        F.col("process"), " delivers ", request_text(), " where number ", F.col("expected").cast("string"),
        " should come",
    )  # fmt: skip
    messages = F.array_compact(F.array("message"))
    struct = violation(Promise.CLIENT_ORDER, F.array("process"), messages, detail, rank=F.col("seq"))
    return found(broken, struct)


def receipts(evidence: Evidence) -> DataFrame | None:
    """What a process that is up at the end acknowledged, and a correct addressed process did not deliver so."""
    if evidence.odd_requests is None:
        return None
    keys = ["run", "client", "destinations", "first", "correct", "delivered"]
    rows = evidence.odd_requests.select(*keys, F.explode("unkept").alias("receipt"))
    broken = rows.select(*keys, "receipt.*", missing_at(F.col("receipt")).alias("missing"))
    detail = words(
        F.col("process"),
        " acknowledged ",
        request_text(),
        ", ",
        listed(F.col("missing")),
        " never delivered it as it was acknowledged",
    )
    processes = F.array_union(F.array("process"), F.col("missing"))
    return found(broken, violation(Promise.RECEIPTS, processes, nobody(), detail))
