"""What clients were promised: one order of all requests, their own, and that what was acknowledged is delivered."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.local import kept
from antiphon.pipeline.messages import judged, nobody
from antiphon.pipeline.requests import SESSION, cells, delivered_first, missing_at, request_text
from antiphon.pipeline.violations import found, listed, rows_of, violation, words
from antiphon.trace import MAJORITY


def request_order(evidence: Evidence) -> DataFrame | None:
    """A request has one message, and a message the same requests everywhere; repeated ones are integrity's affair."""
    if evidence.unruly is None:
        return None
    firsts = kept(delivered_first(evidence.unruly))
    return _in_several_messages(firsts).unionByName(_unevenly(evidence.unruly, firsts))


def _differing(rows: DataFrame, what: str, by: list[str]) -> DataFrame:
    """Where not all processes have the same: `one` and `other` of what they have, and who has these, `p` and `q`."""
    columns = [
        F.min(what).alias("one"),
        F.max(what).alias("other"),
        F.min_by("process", what).alias("p"),
        F.max_by("process", what).alias("q"),
        F.min("seq").alias("seq"),
    ]
    return rows.groupBy(*by).agg(*columns).filter("one <> other")


def _in_several_messages(firsts: DataFrame) -> DataFrame:
    broken = _differing(firsts, "message", ["run", "client", "destinations", "first"])
    detail = F.format_string(
        "%s delivers request %d of %s to %s with %s, %s with %s",
        "p", "first", "client", F.array_join("destinations", " and "), "one", "q", "other",
    )  # fmt: skip
    struct = violation(Promise.REQUEST_ORDER, F.array("p", "q"), F.array("one", "other"), detail, rank=F.col("seq"))
    return found(broken, struct)


def _unevenly(deliveries: DataFrame, firsts: DataFrame) -> DataFrame:
    """Messages with which not all deliver the same requests in the same order."""
    by_place = F.array_sort(F.collect_list(F.struct("seq", "place", "client", "destinations", "first")))
    lists = firsts.groupBy("run", "process", "message").agg(by_place.alias("found"))
    what = F.to_json(F.transform("found", lambda r: F.struct(r["client"], r["destinations"], r["first"])))
    everybody = deliveries.groupBy("run", "process", "message").agg(F.min("seq").alias("seq"))
    rows = everybody.join(lists, on=["run", "process", "message"], how="left")
    broken = _differing(rows.withColumn("requests", F.coalesce(what, F.lit("none"))), "requests", ["run", "message"])
    detail = F.format_string("%s and %s deliver different requests with %s", "p", "q", "message")
    struct = violation(Promise.REQUEST_ORDER, F.array("p", "q"), F.array("message"), detail, rank=F.col("seq"))
    return found(broken, struct)


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
    following = F.coalesce(F.try_add("first", "payloads"), F.lit(-1))  # beyond the largest number nothing can come
    expected = F.lag(following, 1, 0).over(by_delivery)
    earlier = Window.partitionBy(*SESSION).orderBy("seq").rangeBetween(Window.unboundedPreceding, -1)
    since = F.max("seq").over(earlier)  # the row before in which the session has something
    odd = once.withColumns({"expected": expected, "since": since}).filter("first <> expected")
    gaps = evidence.outcomes.filter("kind = 'gap'").select("run", "process", F.col("seq").alias("gap"))
    announced = (
        (odd.run == gaps.run)
        & (odd.process == gaps.process)
        & (odd["first"] > odd.expected)
        & (odd.since.isNull() | (gaps.gap >= odd.since))
        & (gaps.gap <= odd.seq)
    )
    broken = odd.join(gaps, on=announced, how="left_anti")
    detail = words(
        F.col("process"), " delivers ", request_text(), " where number ", F.col("expected").cast("string"),
        " should come",
    )  # fmt: skip
    messages = F.array_compact(F.array("message"))
    rows = rows_of(("process", "since"), ("process", "seq"))
    struct = violation(Promise.CLIENT_ORDER, F.array("process"), messages, detail, rank=F.col("seq"), rows=rows)
    return found(broken, struct)


def client_turn_order(evidence: Evidence) -> DataFrame | None:
    """Where a process delivers something of an earlier turn of a client behind something of a later one."""
    outcomes = evidence.of_runs_with(evidence.outcomes, Promise.CLIENT_TURN_ORDER)
    told = cells(outcomes, ["receipt"]).filter(~F.col("layer").eqNullSafe(MAJORITY))
    asked = ["run", "client", "destinations", "first"]
    turned = told.filter("position > 0").select("run", "client").distinct()
    turn = F.struct(F.coalesce("position", F.lit(0)).alias("turn"), F.struct("process", "seq").alias("receipt"))
    turns = (
        told.join(turned, on=["run", "client"], how="left_semi")
        .groupBy(*asked)
        .agg(F.max(turn).alias("told"))
        .select(*asked, "told.*")
    )
    rows = delivered_first(outcomes).join(turns, on=asked, how="inner")
    earlier = (
        Window.partitionBy("run", "process", "client")
        .orderBy("seq", "place")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    latest = F.max(F.struct("turn", "seq", "receipt")).over(earlier)
    broken = rows.withColumn("before", latest).filter("turn < before.turn")
    detail = F.format_string(
        "%s delivers request %d of %s to %s, of turn %d, behind something of turn %d",
        "process", "first", "client", F.array_join("destinations", " and "), "turn", "before.turn",
    )  # fmt: skip
    messages = F.array_compact(F.array("message"))
    deliveries = ("process", "before.seq"), ("process", "seq")
    receipts = (("before.receipt.process", "before.receipt.seq"), ("receipt.process", "receipt.seq"))
    proof = rows_of(*deliveries, *receipts)
    struct = violation(Promise.CLIENT_TURN_ORDER, F.array("process"), messages, detail, rank=F.col("seq"), rows=proof)
    return found(broken, struct)


def receipts(evidence: Evidence) -> DataFrame | None:
    """What a process that is up at the end acknowledged, and a correct addressed process did not deliver so."""
    return _receipts(evidence, Promise.RECEIPTS, "unkept", " acknowledged ")


def durable_receipts(evidence: Evidence) -> DataFrame | None:
    """The same of whatever a process acknowledged as held by a majority of each group."""
    return _receipts(evidence, Promise.DURABLE_RECEIPTS, "untrue", " acknowledged as held by a majority ")


def _receipts(evidence: Evidence, promise: Promise, which: str, verb: str) -> DataFrame | None:
    if evidence.odd_requests is None:
        return None
    keys = ["run", "client", "destinations", "first", "correct", "delivered"]
    rows = evidence.odd_requests.select(*keys, F.explode(which).alias("receipt"))
    broken = rows.select(*keys, "receipt.*", missing_at(F.col("receipt")).alias("missing"))
    detail = words(
        F.col("process"),
        verb,
        request_text(),
        "; ",
        listed(F.col("missing")),
        " never delivered it as it was acknowledged",
    )
    processes = F.array_union(F.array("process"), F.col("missing"))
    proof = rows_of(("process", "seq"))
    return found(broken, violation(promise, processes, nobody(), detail, rows=proof, missing=F.col("missing")))
