"""Views: what processes deliver that go from one view to the next together, with docs/trace.md's words as columns."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline import kernel, schema
from antiphon.pipeline.evidence import Evidence
from antiphon.pipeline.messages import group_set, members_of, nobody
from antiphon.pipeline.requests import SESSION, capped_sum, cells, request_text
from antiphon.pipeline.stretches import placed
from antiphon.pipeline.violations import found, listed, rows_of, together, violation, words

COMPANY = ["run", "view", "way"]  # those that go on from a view together


def virtual_synchrony(evidence: Evidence) -> DataFrame | None:
    def ours(rows: DataFrame) -> DataFrame:
        return evidence.of_runs_with(rows, Promise.VIRTUAL_SYNCHRONY)

    named, stretches = ours(evidence.announced), ours(evidence.stretches)
    return together(
        _announced_wrongly(named),
        _early(evidence.outcomes, named),
        _of_strangers(ours(evidence.outcomes), evidence.facts, named, ours(evidence.in_views)),
        _turned_around(stretches),
        _unequal(ours(evidence.outcomes), evidence.facts, stretches, ours(evidence.in_views)),
    )


def _way() -> Column:
    return F.coalesce(F.concat(F.lit("go on to view "), "next"), F.lit("stay in it"))


def _synchrony(
    processes: Column, messages: Column, detail: Column, rank: Column | None = None, rows: Column | None = None
) -> Column:
    return violation(Promise.VIRTUAL_SYNCHRONY, processes, messages, detail, rank=rank, rows=rows)


def _announced_wrongly(named: DataFrame) -> DataFrame:
    """A view has the same members everywhere, the process among them, and comes once."""
    process, view, one = F.col("process"), F.col("view"), F.array("process")
    here = rows_of(("process", "seq"))
    again = words(process, " delivers view ", view, " again")
    stranger = words(process, " delivers view ", view, ", of which it is no member")
    by_itself = (
        F.when(F.col("time") > 1, _synchrony(one, nobody(), again, rows=here)),
        F.when(~F.array_contains("members", process), _synchrony(one, nobody(), stranger, rows=here)),
    )
    differs = named.groupBy("run", "view").agg(
        F.min(F.struct("members", "process", "seq")).alias("a"), F.max(F.struct("members", "process", "seq")).alias("b")
    )
    rows = rows_of(("a.process", "a.seq"), ("b.process", "b.seq"))
    both = F.array("a.process", "b.process")
    detail = words(listed(both), " deliver view ", view, " with different members")
    apart = differs.filter(F.col("a.members") != F.col("b.members"))
    return found(named, *by_itself).unionByName(found(apart, _synchrony(both, nobody(), detail, rows=rows)))


def _early(events: DataFrame, named: DataFrame) -> DataFrame:
    """In a run that has views, everything is delivered in one."""
    begins = named.groupBy("run", "process").agg(F.min("seq").alias("begin"))
    deliveries = (
        events.filter("kind = 'deliver'")
        .join(F.broadcast(begins.select("run").distinct()), on="run", how="left_semi")
        .groupBy("run", "process")
        .agg(F.min(F.struct("seq", "message")).alias("first"))
    )
    early = deliveries.join(begins, on=["run", "process"], how="left").filter(
        F.col("begin").isNull() | (F.col("first.seq") < F.col("begin"))
    )
    message = F.coalesce("first.message", F.lit("a message without a name"))
    detail = words(F.col("process"), " delivers ", message, " before its first view")
    messages = F.array_compact(F.array("first.message"))
    rows = rows_of(("process", "first.seq"), ("process", "begin"))
    return found(early, _synchrony(F.array("process"), messages, detail, F.col("first.seq"), rows))


def _of_strangers(events: DataFrame, facts: DataFrame, named: DataFrame, in_views: DataFrame) -> DataFrame:
    """What comes from a member of some group was sent in the view in which it is delivered.

    Views that have all members need no look. Of the others, only what those sent is who are no members of some view.
    """
    everybody = F.array_distinct(F.flatten(F.map_values("groups")))
    without = (
        named.filter("time = 1")
        .join(F.broadcast(facts.select("run", "groups")), on="run", how="inner")
        .select("run", "process", "view", "seq", F.array_except(everybody, F.col("members")).alias("strangers"))
        .filter(F.size("strangers") > 0)
        .withColumnRenamed("seq", "begin")
    )
    away = without.select("run", F.explode("strangers").alias("sender")).distinct()
    sent = (
        events.filter("kind = 'multicast' and message is not null")
        .groupBy("run", "message")
        .agg(F.min(F.struct("process", "seq")).alias("row"))  # the first row counts: an honest trace has no other
        .select("run", "message", F.col("row.process").alias("sender"), F.col("row.seq").alias("sent"))
        .join(F.broadcast(away), on=["run", "sender"], how="left_semi")
    )
    wrong = (
        in_views.join(F.broadcast(without), on=["run", "process", "view"], how="inner")
        .join(sent, on=["run", "message"], how="inner")
        .filter(F.array_contains("strangers", F.col("sender")))
    )
    detail = words(
        F.col("process"), " delivers ", F.col("message"), " in view ", F.col("view"), ", of which its sender ",
        F.col("sender"), " is no member",
    )  # fmt: skip
    rows = rows_of(("process", "begin"), ("process", "seq"), ("sender", "sent"))
    both = F.array("process", "sender")
    return found(wrong, _synchrony(both, F.array("message"), detail, F.col("seq"), rows))


def _turned_around(stretches: DataFrame) -> DataFrame:
    """Along the views of one process, the places of the same views at another must grow."""
    columns = ["run", "view", "process", "place", "begin"]
    one = stretches.select(*columns).withColumnsRenamed({"process": "p", "place": "mine", "begin": "p_seq"})
    other = stretches.select(*columns).withColumnsRenamed({"process": "q", "place": "its", "begin": "q_seq"})
    by_mine = Window.partitionBy("run", "p", "q").orderBy("mine")
    turned = (
        one.join(other, on=["run", "view"], how="inner")
        .filter("p < q")
        .withColumns({"before": F.lag("its").over(by_mine), "earlier": F.lag("view").over(by_mine)})
        .withColumns({f"{who}_before": F.lag(f"{who}_seq").over(by_mine) for who in ("p", "q")})
        .filter("before > its")
    )
    detail = F.format_string("%s delivers view %s before view %s, but %s after it", "p", "earlier", "view", "q")
    rows = rows_of(("p", "p_before"), ("p", "p_seq"), ("q", "q_seq"), ("q", "q_before"))
    return found(turned, _synchrony(F.array("p", "q"), nobody(), detail, F.col("mine"), rows))


def _unequal(events: DataFrame, facts: DataFrame, stretches: DataFrame, in_views: DataFrame) -> DataFrame:
    """Who goes on with another delivers in the view what the other delivers in it and is addressed to both."""
    companies = (
        stretches.filter("goes").withColumn("way", _way())
        .groupBy(*COMPANY).agg(F.collect_set("process").alias("company"))
        .filter(F.size("company") > 1)
    )  # fmt: skip
    delivered = (
        in_views.filter("goes").withColumn("way", _way())
        .groupBy(*COMPANY, "message")
        .agg(F.collect_set("process").alias("deliverers"), F.min("seq").alias("seq"))
    )  # fmt: skip
    addressed = (
        events.filter("kind = 'multicast' and message is not null")
        .join(F.broadcast(stretches.select("run").distinct()), on="run", how="left_semi")
        .groupBy("run", "message")
        # The first row counts: an honest trace has no other.
        .agg(F.min(F.struct("process", "seq", group_set().alias("groups"))).alias("row"))
        .withColumn("destinations", F.col("row.groups"))
        .join(F.broadcast(facts.select("run", "groups")), on="run", how="inner")
        .select("run", "message", members_of("destinations").alias("addressed"))
    )
    missing = F.array_sort(F.array_except(F.array_intersect("company", "addressed"), F.col("deliverers")))
    unequal = (
        delivered.join(companies, on=COMPANY, how="inner")
        .filter(F.size("deliverers") < F.size("company"))
        .join(addressed, on=["run", "message"], how="inner")
        .withColumn("missing", missing)
        .filter(F.size("missing") > 0)
    )
    witness = F.array_min("deliverers")
    detail = words(
        witness, " delivers ", F.col("message"), " in view ", F.col("view"), ", ", listed(F.col("missing")),
        " does not, and all ", F.col("way"),
    )  # fmt: skip
    processes = F.array(witness, F.get("missing", F.lit(0)))
    return found(unequal, _synchrony(processes, F.array("message"), detail, F.col("seq")))


# ---- view_order


def view_order(evidence: Evidence) -> DataFrame | None:
    runs = evidence.unproven.get(Promise.VIEW_ORDER)
    if runs is None:
        return None
    delivered, stretches, events = (
        table.join(F.broadcast(runs), on="run", how="left_semi")
        for table in (evidence.in_views, evidence.stretches, evidence.outcomes)
    )
    delivered = _without_causal(delivered, events)
    return together(_different(delivered, stretches), _cyclic(delivered))


def _without_causal(delivered: DataFrame, events: DataFrame) -> DataFrame:
    """Without what was asked for so: it has no place in the order. A join, where there is any."""
    multicast = events.filter("kind = 'multicast' and message is not null")
    if multicast.filter("layer = 'causal'").isEmpty():
        return delivered
    first = multicast.groupBy("run", "message").agg(F.min(F.struct("process", "seq", "layer")).alias("row"))
    return delivered.join(first.filter("row.layer = 'causal'"), on=["run", "message"], how="left_anti")


def _different(delivered: DataFrame, stretches: DataFrame) -> DataFrame:
    """Two processes deliver two messages in different orders; those that part may, in the view in which they do.

    What one delivers in a view in which the two part is one block, each other message a block of its own. An order is
    wrong where something before a message's whole block at p stands behind the message's whole block at q.
    """
    by_seq = Window.partitionBy("run", "process").orderBy("seq")
    places = delivered.select("run", "message", "process", "view", F.row_number().over(by_seq).alias("place"))
    mine = places.select(
        "run", "message", F.col("process").alias("p"), F.col("view").alias("mine"), F.col("place").alias("p_at")
    )
    its = places.select(
        "run", "message", F.col("process").alias("q"), F.col("view").alias("its"), F.col("place").alias("q_at")
    )
    pair, parting = ["run", "p", "q"], _parting(stretches)
    pairs = (
        mine.join(its, on=["run", "message"], how="inner")
        .filter("p < q")
        .join(
            parting.withColumnsRenamed({"view": "mine", "parts": "p_parts"}), on=["run", "p", "q", "mine"], how="left"
        )
        .join(parting.withColumnsRenamed({"view": "its", "parts": "q_parts"}), on=["run", "p", "q", "its"], how="left")
    )
    p_block = Window.partitionBy(*pair, "mine")
    q_block = Window.partitionBy(*pair, "its")
    blocks = pairs.withColumns(
        {
            "begin": F.when(F.col("p_parts"), F.min("p_at").over(p_block)).otherwise(F.col("p_at")),
            "end": F.when(F.col("q_parts"), F.max("q_at").over(q_block)).otherwise(F.col("q_at")),
        }
    )
    before = Window.partitionBy(*pair).orderBy("begin").rangeBetween(Window.unboundedPreceding, -1)
    wrong = blocks.withColumn("latest", F.max(F.struct("q_at", "message")).over(before)).filter(
        F.col("latest.q_at") > F.col("end")
    )
    earlier = F.col("latest.message")
    detail = words(
        F.col("p"), " delivers ", earlier, " before ", F.col("message"), ", but ",
        F.col("q"), " ", F.col("message"), " before ", earlier,
    )  # fmt: skip
    messages = F.array(earlier, F.col("message"))
    return found(wrong, violation(Promise.VIEW_ORDER, F.array("p", "q"), messages, detail, rank=F.col("p_at")))


def _parting(stretches: DataFrame) -> DataFrame:
    """(run, p, q, view, parts): the views that two processes deliver and from which they do not go on together."""
    ways = stretches.select("run", "view", "process", F.struct("next", "goes").alias("on"))
    one = ways.withColumnsRenamed({"process": "p", "on": "mine"})
    other = ways.withColumnsRenamed({"process": "q", "on": "its"})
    together = F.col("mine.goes") & F.col("its.goes") & F.col("mine.next").eqNullSafe(F.col("its.next"))
    pairs = one.join(other, on=["run", "view"], how="inner").filter("p < q")
    return pairs.filter(~together).select("run", "p", "q", "view", F.lit(True).alias("parts"))


def _cyclic(delivered: DataFrame) -> DataFrame:
    """Where messages go to different groups, each two may agree and all together not, as the kernel finds.

    A message's first place in the view, at anybody, is its number. Where one is delivered right before another, the
    numbers mostly grow; a cycle must somewhere go back, and all its numbers lie in the spans of the steps that do,
    where these overlap. So the kernel gets only such spans, each for itself: as much as is in disorder at a time.
    """
    by_seq = Window.partitionBy(*COMPANY, "process").orderBy("seq")
    within = delivered.filter("goes").withColumn("way", _way()).withColumn("place", F.row_number().over(by_seq))
    first = within.groupBy(*COMPANY, "message").agg(F.min("place").alias("number"))
    numbered = within.join(first, on=[*COMPANY, "message"], how="inner").select(
        *COMPANY, "process", "message", "place", "number"
    )
    before = F.lag("number").over(Window.partitionBy(*COMPANY, "process").orderBy("place"))
    steps = numbered.select(*COMPANY, before.alias("high"), F.col("number").alias("low")).filter("high >= low")
    by_low = Window.partitionBy(*COMPANY).orderBy("low")
    reached = F.max("high").over(by_low.rowsBetween(Window.unboundedPreceding, -1))
    apart = F.coalesce(F.col("low") > reached, F.lit(True))
    spans = (
        steps.withColumn("apart", apart)
        .withColumn("span", F.count_if("apart").over(by_low.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
        .groupBy(*COMPANY, "span")
        .agg(F.min("low").alias("low"), F.max("high").alias("high"))
        .withColumn("block", F.explode(F.sequence(_block("low"), _block("high"))))
    )
    open_ = (
        numbered.withColumn("block", _block("number"))
        .join(spans, on=[*COMPANY, "block"], how="inner")
        .filter("number between low and high")
        .select(*COMPANY, "span", "process", "message", "place")
    )
    result: DataFrame = open_.groupBy(*COMPANY, "span").applyInArrow(kernel.view_order, schema.FOUND)
    return result


def _block(number: str) -> Column:
    """Spans and numbers meet in blocks, so that they can be joined by equality."""
    return F.floor(F.col(number) / 1024)


# ---- view_client_order


def view_client_order(evidence: Evidence) -> DataFrame | None:
    def ours(rows: DataFrame) -> DataFrame:
        return evidence.of_runs_with(rows, Promise.VIEW_CLIENT_ORDER)

    own = F.broadcast(evidence.own_clients)
    delivered = cells(ours(evidence.outcomes), ["deliver"]).join(own, on=["run", "client"], how="left_anti")
    return together(_disorderly(delivered), _left_out(delivered, ours(evidence.stretches), evidence.facts))


def _disorderly(delivered: DataFrame) -> DataFrame:
    """No request begins before the end of one that came before it; a repeated one is integrity's affair."""
    once = (
        delivered.groupBy(*SESSION, "first")
        .agg(F.min(F.struct("seq", "place", "payloads", "message")).alias("at"))
        .select(*SESSION, "first", "at.*")
    )
    before = Window.partitionBy(*SESSION).orderBy("seq", "place").rowsBetween(Window.unboundedPreceding, -1)
    expected = F.max(capped_sum(F.col("first"), F.col("payloads"))).over(before)
    broken = once.withColumn("expected", expected).filter("first < expected")
    was = F.col("expected").cast("string")
    detail = words(F.col("process"), " delivers ", request_text(), ", when it was at ", was)
    messages = F.array_compact(F.array("message"))
    proof, rank = rows_of(("process", "seq")), F.col("seq")
    struct = violation(Promise.VIEW_CLIENT_ORDER, F.array("process"), messages, detail, rank=rank, rows=proof)
    return found(broken, struct)


def _left_out(delivered: DataFrame, stretches: DataFrame, facts: DataFrame) -> DataFrame:
    """Who goes on with another delivers in the view what the other delivers in it of a client, and is for both; unless
    it was beyond that when the view began. Only of what somebody lacks is that looked at."""
    session = ["run", "client", "destinations"]
    numbers = delivered.select(*SESSION, "seq", "first")
    in_view = placed(numbers, stretches)
    companies = (
        stretches.filter("goes").withColumn("way", _way())
        .groupBy(*COMPANY).agg(F.collect_set("process").alias("company"))
        .filter(F.size("company") > 1)
    )  # fmt: skip
    brought = (
        in_view.filter("goes").withColumn("way", _way())
        .groupBy(*session, "view", "way", "first")
        .agg(F.collect_set("process").alias("deliverers"), F.min(F.struct("process", "seq")).alias("witness"))
    )  # fmt: skip
    missing = F.array_except(F.array_intersect("company", members_of("destinations")), F.col("deliverers"))
    lacking = (
        brought.join(companies, on=COMPANY, how="inner")
        .filter(F.size("deliverers") < F.size("company"))
        .join(F.broadcast(facts.select("run", "groups")), on="run", how="inner")
        .select(*session, "view", "first", "witness", F.explode(missing).alias("process"))
        .join(stretches.select("run", "process", "view", "place"), on=["run", "process", "view"], how="inner")
    )
    so_far = in_view.groupBy(*SESSION, "order").agg(F.max("first").alias("last"))
    reached = F.max(F.when(F.col("order") < F.col("place"), F.col("last")))
    behind = (
        lacking.join(so_far, on=SESSION, how="left")
        .groupBy(*SESSION, "view", "first", "witness").agg(reached.alias("reached"))
        .filter(F.coalesce("reached", F.lit(-1)) < F.col("first"))
    )  # fmt: skip
    detail = words(
        F.col("witness.process"), " delivers number ", F.col("first").cast("string"), " of ", F.col("client"),
        " to ", F.array_join("destinations", " and "), " in view ", F.col("view"), ", and ", F.col("process"),
        ", which goes on with it, does not",
    )  # fmt: skip
    both = F.array("witness.process", "process")
    return found(behind, violation(Promise.VIEW_CLIENT_ORDER, both, nobody(), detail, rows=F.array("witness")))


# ---- graph_delivery


def graph_delivery(evidence: Evidence) -> DataFrame:
    """What entered and was addressed, against what was delivered, gathered by message."""
    kind = F.col("kind")
    rows = evidence.of_runs_with(evidence.outcomes, Promise.GRAPH_DELIVERY)
    row = F.struct("process", "seq", group_set().alias("groups"))
    gathered = (
        rows.filter("kind in ('enter', 'multicast', 'deliver') and message is not null")
        .groupBy("run", "message")
        .agg(
            F.collect_set(F.when(kind == "enter", F.col("process"))).alias("entered"),
            F.collect_set(F.when(kind == "deliver", F.col("process"))).alias("delivered"),
            F.min(F.when(kind == "multicast", row)).alias("row"),
        )
        .filter(F.col("row").isNotNull() & (F.size(F.array_except("entered", "delivered")) > 0))
        .withColumn("destinations", F.col("row.groups"))
        .join(F.broadcast(evidence.facts.select("run", "groups", "faulty")), on="run", how="inner")
    )
    stuck = F.array_except(F.array_except("entered", "delivered"), F.col("faulty"))
    broken = gathered.withColumn("stuck", F.array_sort(F.array_intersect(stuck, members_of("destinations"))))
    detail = words(F.col("message"), " entered the graph of ", listed(F.col("stuck")), ", and is never delivered there")
    struct = violation(Promise.GRAPH_DELIVERY, F.col("stuck"), F.array("message"), detail)
    return found(broken.filter(F.size("stuck") > 0), struct)
