"""What the checks on Spark look at. Each table is made when a check first asks for it, and only once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline import kernel, requests, schema, stretches, witness
from antiphon.pipeline.local import kept, small
from antiphon.pipeline.messages import about_messages, facts_of, judged, judges, messages
from antiphon.pipeline.summary import summaries

# What the first look may leave open, beside the names of the orders that are not proved.
SUSPECTS, REQUESTS, SESSIONS, KEYLESS = "suspects", "requests", "sessions", "keyless"
DOUBTS_HERE, VIEWS_HERE = 10_000, 10_000  # rows that the driver holds: more of them stay with the executors
OF_REQUESTS = (Promise.INTEGRITY, Promise.RECEIPTS, Promise.REQUEST_ORDER)
OF_VIEWS = (Promise.VIRTUAL_SYNCHRONY, Promise.VIEW_ORDER, Promise.VIEW_CLIENT_ORDER)


class Evidence:
    """A trace, and the tables made of it.

    `events` has each event once, as `read_events` gives it, and `runs` the facts of every run in it. Unless `fast`,
    nothing is proved by bits and keys and all is checked the long way, which must give the same verdicts.

    What needs a second look is None where the first look, one job for all of it, found nothing to look at.
    """

    def __init__(self, events: DataFrame, runs: DataFrame, *, fast: bool = True) -> None:
        self.fast = fast
        self.facts = facts_of(runs)
        # Few, however many runs there are: what is judged comes from the protocol and its options.
        kinds = self.facts.select("judged", "whole").distinct().collect()
        self._judged = [frozenset(row.judged) for row in kinds]
        self.asked = frozenset[str]().union(*self._judged)
        self._incomplete = runs.select("run", F.explode("incomplete").alias("client"))
        self.events = events if all(row.whole for row in kinds) else _trusted(events, self._incomplete)

    def of_runs_with(self, rows: DataFrame, *promises: str) -> DataFrame:
        """The rows of those runs in which one of these is judged."""
        if all(not judged.isdisjoint(promises) for judged in self._judged):
            return rows
        runs = self.facts.filter(judges(*promises)).select("run")
        return rows.join(F.broadcast(runs), on="run", how="left_semi")

    def _asks(self, promises: Iterable[str]) -> bool:
        return not self.asked.isdisjoint(promises)

    # The first look -----------------------------------------------------------------------------------------------

    @cached_property
    def summary(self) -> DataFrame:
        """A narrow row per message."""
        return kept(summaries(self._about_messages(), self.facts))

    @cached_property
    def _doubts(self) -> DataFrame:
        """(run, doubt): what bits and keys leave open."""
        unruly = F.lit(Promise.REQUEST_ORDER.value)
        by_message = F.array(
            F.when(F.col("suspect"), F.lit(SUSPECTS)),
            F.when(F.col("keyless"), F.lit(KEYLESS)),
            F.when(F.col("uneven") & judged(Promise.REQUEST_ORDER), unruly),
        )
        found = [self.summary.select("run", F.explode(F.array_compact(by_message)).alias("doubt"))]
        if self._asks(OF_REQUESTS):
            by_request = F.array(F.when(F.col("odd"), F.lit(REQUESTS)), F.when(F.col("several"), unruly))
            found.append(self._odd_requests().select("run", F.explode(F.array_compact(by_request)).alias("doubt")))
        if self._asks((Promise.INTEGRITY, Promise.CLIENT_ORDER)):
            crooked = requests.crooked(self._delivered_requests())
            found.append(crooked.select("run", F.lit(SESSIONS).alias("doubt")))
        if self._asks(witness.ORDERS):
            steps = witness.steps(self.of_runs_with(self.events, *witness.ORDERS), self.summary)
            found.append(witness.unproven(steps, self.facts).withColumnRenamed("property", "doubt"))
        return small(reduce(DataFrame.unionByName, found).distinct(), DOUBTS_HERE)

    @cached_property
    def _open(self) -> frozenset[str]:
        if not self.fast:
            return frozenset((SUSPECTS, REQUESTS, SESSIONS)) | self.asked
        return frozenset(row.doubt for row in self._doubts.select("doubt").distinct().collect())

    def _about_messages(self) -> DataFrame:
        genuine = [Promise.GENUINENESS in judged for judged in self._judged]
        flag = None if any(genuine) and not all(genuine) else all(genuine)
        return about_messages(self.events, self.facts, genuine=flag)

    # Messages -----------------------------------------------------------------------------------------------------

    @cached_property
    def suspects(self) -> DataFrame | None:
        """The messages that their summary does not clear, with everything that happened to them."""
        if SUSPECTS not in self._open:
            return None
        rows = self._about_messages()
        if self.fast:
            chosen = self.summary.filter("suspect").select("run", "message")
            rows = rows.join(chosen, on=["run", "message"], how="left_semi")
        return kept(messages(rows, self.facts))

    @cached_property
    def unproven(self) -> dict[str, DataFrame]:
        """Of each order that neither the messages' keys prove, nor their places where they have no keys: the runs."""
        if not self.fast:
            asked = [name for name in witness.ORDERS if name in self.asked]
            return {name: self.facts.filter(judged(name)).select("run") for name in asked}
        left = self._doubts
        if KEYLESS in self._open and not self._open.isdisjoint(witness.ORDERS):
            keyless = F.broadcast(left.filter(F.col("doubt") == KEYLESS).select("run"))
            events, summary = (t.join(keyless, on="run", how="left_semi") for t in (self.events, self.summary))
            steps = witness.steps_by_place(events, self.stretches, summary)
            still = witness.unproven(steps, self.facts.join(keyless, on="run", how="left_semi"))
            keyed = left.join(keyless, on="run", how="left_anti")
            left = small(keyed.unionByName(still.withColumnRenamed("property", "doubt")), DOUBTS_HERE)
        names = [row.doubt for row in left.select("doubt").distinct().collect()]
        return {name: left.filter(F.col("doubt") == name).select("run") for name in names if name in witness.ORDERS}

    @cached_property
    def unordered(self) -> DataFrame | None:
        """All messages of the runs in which an order is unproven; `judged` has only what is left to be judged."""
        names = [name for name in self.unproven if name != Promise.VIEW_ORDER]  # which looks at deliveries in views
        if not names:
            return None
        named = (self.unproven[name].withColumn("property", F.lit(name)) for name in names)
        left = reduce(DataFrame.unionByName, named).groupBy("run").agg(F.collect_set("property").alias("judged"))
        some = self.facts.drop("judged").join(F.broadcast(left), on="run", how="inner")
        rows = self.events.join(F.broadcast(left.select("run")), on="run", how="left_semi")
        return kept(messages(about_messages(rows, self.facts, genuine=False), some))

    @cached_property
    def disorder(self) -> DataFrame | None:
        """What follows chains through all of a run, found by the kernel: of several properties, in one go."""
        if self.unordered is None or self.unproven.keys().isdisjoint(kernel.CHECKS):
            return None
        table = self.unordered.filter(judges(*kernel.CHECKS)).withColumns(
            {"delivered_at": F.col("deliveries.process"), "delivered_seq": F.col("deliveries.seq")}
        )
        found = table.select(*kernel.COLUMNS).groupBy("run").applyInArrow(kernel.disorder, schema.FOUND)
        return kept(found)

    # Views --------------------------------------------------------------------------------------------------------

    @cached_property
    def announced(self) -> DataFrame:
        """The views that processes deliver; few."""
        return small(stretches.announced(self.of_runs_with(self.events, *OF_VIEWS), self.facts), VIEWS_HERE)

    @cached_property
    def stretches(self) -> DataFrame:
        """Each process from one view to its next; few."""
        return stretches.stretches_of(self.announced)

    @cached_property
    def in_views(self) -> DataFrame:
        """The first delivery of each message at each process, with the view in which it is."""
        return kept(stretches.in_views(self.of_runs_with(self.events, *OF_VIEWS), self.stretches))

    # Requests -----------------------------------------------------------------------------------------------------

    @cached_property
    def own_clients(self) -> DataFrame:
        """(run, client) of the processes that multicast on their own behalf; few."""
        return requests.own_clients(self.events, self._incomplete)

    @cached_property
    def odd_requests(self) -> DataFrame | None:
        """The requests that were delivered otherwise than multicast, or acknowledged and not delivered everywhere."""
        return kept(self._odd_requests()) if REQUESTS in self._open else None

    def _odd_requests(self) -> DataFrame:
        return requests.odd_requests(self.of_runs_with(self.events, *OF_REQUESTS), self.facts)

    @cached_property
    def unruly(self) -> DataFrame | None:
        """The deliveries of runs in which requests may not be in the order of messages."""
        if Promise.REQUEST_ORDER not in self._open:
            return None
        rows = self.events.filter("kind = 'deliver' and message is not null")
        if not self.fast:
            return self.of_runs_with(rows, Promise.REQUEST_ORDER)
        runs = self._doubts.filter(F.col("doubt") == Promise.REQUEST_ORDER.value).select("run")
        return rows.join(F.broadcast(runs), on="run", how="left_semi")

    @cached_property
    def odd_sessions(self) -> DataFrame | None:
        """The deliveries of each client at each process that do not simply follow one another."""
        if SESSIONS not in self._open:
            return None
        rows = self._delivered_requests()
        if self.fast:
            rows = rows.join(requests.crooked(rows), on=requests.SESSION, how="left_semi")
        return kept(rows.join(F.broadcast(self.facts.select("run", "judged")), on="run", how="inner"))

    def _delivered_requests(self) -> DataFrame:
        rows = self.of_runs_with(self.events, Promise.INTEGRITY, Promise.CLIENT_ORDER)
        return requests.delivered(rows, self.own_clients)


def _trusted(events: DataFrame, incomplete: DataFrame) -> DataFrame:
    """Of a process whose rows are not all here, only the multicasts are looked at."""
    marked = incomplete.select("run", F.col("client").alias("process"), F.lit(True).alias("in_part")).distinct()
    joined = events.join(F.broadcast(marked), on=["run", "process"], how="left")
    return joined.filter("in_part is null or kind = 'multicast'").drop("in_part")
