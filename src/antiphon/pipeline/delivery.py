"""What is delivered, and where: integrity, validity, agreement, uniform agreement."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.messages import judged, nobody
from antiphon.pipeline.requests import SESSION, capped_sum, request_text
from antiphon.pipeline.violations import found, listed, rows_of, together, violation, words


def integrity(evidence: Evidence) -> DataFrame | None:
    """Of messages, each by itself; of requests, each by itself; no number of a session twice; and of positions."""
    return together(
        _of_suspects(evidence, *_message_integrity()),
        _fake_requests(evidence.odd_requests),
        _numbers_twice(evidence.odd_sessions),
        _out_of_place(evidence.displaced),
        _begun_again(evidence.misplaced),
    )


def _of_suspects(evidence: Evidence, *violations: Column) -> DataFrame | None:
    return None if evidence.suspects is None else found(evidence.suspects, *violations)


def _broken(promise: Promise, broken: Column, processes: Column, detail: Column, who: Column | None = None) -> Column:
    """A violation by the row's message, where it is broken; else null. It is proved by the message's multicast and what
    `who` delivers of it, or these processes."""
    at = processes if who is None else who
    delivered = F.filter("deliveries", lambda d: F.array_contains(at, d["process"]))
    rows = F.concat(rows_of(("sender", "sender_seq")), delivered)
    struct = violation(promise, processes, F.array("message"), detail, rows=rows)
    return F.when(judged(promise.value) & broken, struct)


def _message_integrity() -> list[Column]:
    message, deliverers = F.col("message"), F.col("deliverers")
    at = F.col("deliveries.process")
    twice = F.filter(deliverers, lambda p: F.size(F.filter(at, lambda q: p == q)) > 1)
    known, delivered = F.col("known"), F.size("deliverers") > 0
    strays = F.array_except(deliverers, F.col("addressed"))
    elsewhere = F.filter("delivered_to", lambda d: d["destinations"] != F.col("destinations"))
    other = F.array_sort(F.array_distinct(F.transform(elsewhere, lambda d: d["process"])))
    cases = [
        (F.size("deliveries") > F.size(deliverers), twice, words(listed(twice), " delivered ", message, " twice")),
        (~known & F.col("whole") & delivered, deliverers, words(message, " was delivered but never multicast")),
        (
            known & (F.size(other) > 0),
            other,
            words(listed(other), " delivered ", message, " with other destinations than it was multicast to"),
        ),
        (
            known & (F.size(strays) > 0),
            strays,
            words(listed(strays), " delivered ", message, " without being addressed"),
        ),
    ]
    return [_broken(Promise.INTEGRITY, broken, processes, detail) for broken, processes, detail in cases]


def _fake_requests(odd_requests: DataFrame | None) -> DataFrame | None:
    """Deliveries of requests that were not multicast, or not with these payloads and bytes."""
    if odd_requests is None:
        return None
    rows = odd_requests.select("run", "client", "destinations", "first", "multicast", F.inline("fake"))
    how = F.when(F.size("multicast") > 0, F.lit("was multicast with other payloads")).otherwise(
        F.lit("nobody multicast")
    )
    detail = words(F.col("process"), " delivers ", request_text(), ", which ", how)
    messages = F.array_compact(F.array("message"))
    return found(rows, violation(Promise.INTEGRITY, F.array("process"), messages, detail))


def _numbers_twice(odd_sessions: DataFrame | None) -> DataFrame | None:
    if odd_sessions is None:
        return None
    by_number = Window.partitionBy(*SESSION).orderBy("first", "seq", "place").rowsBetween(Window.unboundedPreceding, -1)
    twice = (
        odd_sessions.filter(judged("integrity"))
        .withColumn("reached", F.max(F.struct("last", "seq")).over(by_number))
        .filter(F.col("first") <= F.col("reached.last"))
    )
    detail = words(F.col("process"), " delivers ", request_text(), " again, all or in part")
    messages = F.array_compact(F.array("message"))
    proof = rows_of(("process", "reached.seq"), ("process", "seq"))
    struct = violation(Promise.INTEGRITY, F.array("process"), messages, detail, rank=F.col("seq"), rows=proof)
    return found(twice, struct)


def _out_of_place(events: DataFrame | None) -> DataFrame | None:
    """What does not stand right behind what comes before it, by the positions that it took. An adoption takes none."""
    if events is None:
        return None
    is_delivery = F.col("kind") == "deliver"
    is_adoption = F.col("kind") == "adopt"
    taken = F.when(is_delivery, _payloads()).otherwise(F.when(is_adoption, F.lit(0)).otherwise(F.lit(1)).cast("long"))
    rows = events.filter("kind in ('deliver', 'gap', 'view', 'adopt')").select(
        "run", "process", "seq", "kind", "message", "peers", "position", _following(taken).alias("following")
    )
    by_seq = Window.partitionBy("run", "process").orderBy("seq")
    expected = F.lag("following", 1, 0).over(by_seq)
    before = F.lag("seq").over(by_seq)
    broken = rows.withColumns({"expected": expected, "before": before}).filter("position <> expected")
    named = F.coalesce("message", F.lit("a message without a name"))
    what = F.when(F.col("kind") == "gap", F.lit("a gap")).otherwise(named)
    what = F.when(F.col("kind") == "view", F.concat(F.lit("view "), "message")).otherwise(what)
    what = F.when(is_adoption, words("what is behind ", listed(F.coalesce("peers", nobody())))).otherwise(what)
    detail = F.format_string(
        "%s delivers %s at position %d, where %d should come", "process", what, "position", "expected"
    )
    messages = F.array_compact(F.array(F.when(is_delivery, F.col("message"))))
    proof = rows_of(("process", "before"), ("process", "seq"))
    struct = violation(Promise.INTEGRITY, F.array("process"), messages, detail, rank=F.col("seq"), rows=proof)
    return found(broken, struct)


def _begun_again(misplaced: DataFrame | None) -> DataFrame | None:
    """A log begins once, and with nothing before."""
    if misplaced is None:
        return None
    detail = words(F.col("process"), " goes on behind ", F.col("donor"), " where its log has begun already")
    rows = rows_of(("process", "seq"))
    struct = violation(Promise.INTEGRITY, F.array("process"), nobody(), detail, rank=F.col("seq"), rows=rows)
    return found(misplaced, struct)


def _payloads() -> Column:
    """How many payloads a delivery has. Most have one request, of which no list need be made."""
    count = F.aggregate(
        F.coalesce("requests.payloads", F.array().cast("array<bigint>")), F.lit(0).cast("long"), capped_sum
    )
    none = F.coalesce(F.array_size("requests"), F.lit(0)) == 0
    one = F.col("requests")[0]["payloads"]
    return F.when(none, F.lit(0).cast("long")).when(F.size("requests") == 1, one).otherwise(count)


def _following(taken: Column) -> Column:
    """The position of what comes next, if this one has one; beyond the largest number nothing can come."""
    return F.when(F.col("position").isNotNull(), F.coalesce(F.try_add("position", taken), F.lit(-1)))


def validity(evidence: Evidence) -> DataFrame | None:
    correct_sender = F.col("known") & ~F.array_contains("faulty", F.col("sender"))
    nobody = F.size(F.array_intersect(_correct(), F.col("deliverers"))) == 0
    # A process that was up and whose rows are not all here may have delivered it.
    known_to_all = ~F.arrays_overlap("unknown", "addressed")
    broken = correct_sender & (F.size(_correct()) > 0) & nobody & known_to_all
    detail = words(F.col("message"), " has a correct sender and no correct process delivered it")
    return _of_suspects(evidence, _broken(Promise.VALIDITY, broken, _correct(), detail))


def _correct() -> Column:
    return F.array_except("addressed", "faulty")


def _missing() -> Column:
    return F.array_except(_correct(), F.col("deliverers"))


def _missed(promise: Promise, witnesses: Column) -> Column:
    witness = F.get(witnesses, F.lit(0))
    detail = words(witness, " delivered ", F.col("message"), ", ", listed(_missing()), " never did")
    broken = (F.size(witnesses) > 0) & (F.size(_missing()) > 0)
    return _broken(promise, broken, _missing(), detail, F.array(witness))


def agreement(evidence: Evidence) -> DataFrame | None:
    return _of_suspects(evidence, _missed(Promise.AGREEMENT, F.array_except("deliverers", "faulty")))


def uniform_agreement(evidence: Evidence) -> DataFrame | None:
    return _of_suspects(evidence, _missed(Promise.UNIFORM_AGREEMENT, F.col("deliverers")))
