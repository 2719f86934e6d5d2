"""What the checks on Spark look at. Each table is made when a check first asks for it, and only once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline import kernel, moments, requests, schema, stretches, witness
from antiphon.pipeline.local import kept, small
from antiphon.pipeline.messages import about_messages, facts_of, judged, judges, messages, outcomes
from antiphon.pipeline.summary import members, summaries, zero

# What the first look may leave open, beside the names of the orders that are not proved.
SUSPECTS, REQUESTS, SESSIONS, KEYLESS, CHATTER = "suspects", "requests", "sessions", "keyless", "chatter"
DOUBTS_HERE, VIEWS_HERE = 10_000, 10_000  # rows that the driver holds: more of them stay with the executors
OF_REQUESTS = (Promise.INTEGRITY, Promise.RECEIPTS, Promise.DURABLE_RECEIPTS, Promise.REQUEST_ORDER)
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
    def outcomes(self) -> DataFrame:
        """All events but frames: few of a trace's rows, at which almost every check looks."""
        return outcomes(self.events).persist()

    @cached_property
    def summary(self) -> DataFrame:
        """A narrow row per message."""
        genuine = Promise.GENUINENESS in self.asked
        frames = self.of_runs_with(self.events, Promise.GENUINENESS) if genuine else None
        return kept(summaries(self.outcomes, frames, self.facts))

    @cached_property
    def _doubts(self) -> DataFrame:
        """(run, doubt): what bits, keys and numbers leave open."""
        found = [self._doubts_of_messages()]
        if self._asks((Promise.INTEGRITY, Promise.CLIENT_ORDER)):
            crooked = requests.crooked(self._delivered_requests())
            found.append(crooked.select("run", F.lit(SESSIONS).alias("doubt")))
        if self._asks((Promise.INTEGRITY, *witness.ORDERS)):
            rows = self.of_runs_with(self.outcomes, Promise.INTEGRITY, *witness.ORDERS)
            steps = witness.steps(rows, self.summary, self.facts)
            found.append(witness.unproven(steps, self.facts).withColumnRenamed("property", "doubt"))
        if Promise.REAL_TIME_ORDER in self.asked:
            rows = self.of_runs_with(self.outcomes, Promise.REAL_TIME_ORDER)
            late = moments.untimely(rows, self.facts)
            found.append(late.select("run", F.lit(Promise.REAL_TIME_ORDER.value).alias("doubt")))
        return small(reduce(DataFrame.unionByName, found).distinct(), DOUBTS_HERE)

    def _doubts_of_messages(self) -> DataFrame:
        """Of messages and of the requests in them, by run.

        If every request was delivered with one message, at one place in it, and all who delivered a message delivered
        as many requests with it: then as many requests were delivered as these numbers say, exactly if all delivered
        the same ones. For of a message with n requests at each of d processes, n * d deliveries are those of n
        requests only if each has d.
        """
        nothing = {"odd": F.lit(False), "unruly": F.lit(False), "delivered": zero()}
        by_run = self.summary.groupBy("run").agg(
            F.max("suspect").alias("suspect"),
            F.max("keyless").alias("keyless"),
            F.max(F.col("message").isNull()).alias("chatter"),
            F.max(F.col("is_delivered") & F.col("requests").isNull()).alias("uneven"),
            F.coalesce(F.sum("requests"), zero()).alias("admitted"),
        )
        if self._asks(OF_REQUESTS):
            rows = self.of_runs_with(self.outcomes, *OF_REQUESTS)
            gathered = requests.gathered(rows, members(self.facts))
            by_run = by_run.join(requests.doubts(gathered, self.facts), on="run", how="left")
        else:
            by_run = by_run.withColumns(nothing)
        unruly = F.coalesce("unruly", F.lit(False)) | (F.coalesce("delivered", zero()) != F.col("admitted"))
        doubts = {
            SUSPECTS: F.col("suspect"),
            KEYLESS: F.col("keyless"),
            CHATTER: F.col("chatter"),
            REQUESTS: F.coalesce("odd", F.lit(False)),
            Promise.REQUEST_ORDER.value: judged(Promise.REQUEST_ORDER) & (F.col("uneven") | unruly),
        }
        found = F.array_compact(F.array(*(F.when(doubt, F.lit(name)) for name, doubt in doubts.items())))
        known = F.broadcast(self.facts.select("run", "judged"))
        return by_run.join(known, on="run", how="inner").select("run", F.explode(found).alias("doubt"))

    @cached_property
    def _open(self) -> frozenset[str]:
        if not self.fast:
            return frozenset((SUSPECTS, REQUESTS, SESSIONS, CHATTER, witness.PLACES)) | self.asked
        return frozenset(row.doubt for row in self._doubts.select("doubt").distinct().collect())

    @property
    def has_chatter(self) -> bool:
        """Whether there are frames about no message, in a run in which genuineness is judged."""
        return CHATTER in self._open

    def _doubtful(self, rows: DataFrame, doubt: str, *promises: str) -> DataFrame | None:
        """The rows of the runs of which this is to be looked at again; None if it is of none."""
        if doubt not in self._open:
            return None
        if not self.fast:
            return self.of_runs_with(rows, *promises)
        runs = self._doubts.filter(F.col("doubt") == doubt).select("run")
        return rows.join(F.broadcast(runs), on="run", how="left_semi")

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
            events, summary = (t.join(keyless, on="run", how="left_semi") for t in (self.outcomes, self.summary))
            steps = witness.steps_by_place(events, self.stretches, summary, self.facts)
            still = witness.unproven(steps, self.facts.join(keyless, on="run", how="left_semi"))
            keyed = left.join(keyless, on="run", how="left_anti")
            # Places say nothing of the time.
            timed = left.filter(F.col("doubt") == Promise.REAL_TIME_ORDER.value)
            found = keyed.unionByName(timed).unionByName(still.withColumnRenamed("property", "doubt"))
            left = small(found.distinct(), DOUBTS_HERE)
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
        rows = self.outcomes.filter("message is not null")  # a delivery without a name has no place in an order
        rows = rows.join(F.broadcast(left.select("run")), on="run", how="left_semi")
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
        return small(stretches.announced(self.of_runs_with(self.outcomes, *OF_VIEWS), self.facts), VIEWS_HERE)

    @cached_property
    def stretches(self) -> DataFrame:
        """Each process from one view to its next; few."""
        return stretches.stretches_of(self.announced)

    @cached_property
    def in_views(self) -> DataFrame:
        """The first delivery of each message at each process, with the view in which it is."""
        return kept(stretches.in_views(self.of_runs_with(self.outcomes, *OF_VIEWS), self.stretches))

    # Requests -----------------------------------------------------------------------------------------------------

    @cached_property
    def own_clients(self) -> DataFrame:
        """(run, client) of the processes that multicast on their own behalf; few."""
        return requests.own_clients(self.outcomes, self._incomplete)

    @cached_property
    def odd_requests(self) -> DataFrame | None:
        """The requests that were delivered otherwise than multicast, or acknowledged and not delivered everywhere."""
        rows = self._doubtful(self.outcomes, REQUESTS, *OF_REQUESTS)
        return None if rows is None else kept(requests.odd_requests(rows, self.facts))

    @cached_property
    def unruly(self) -> DataFrame | None:
        """The deliveries of runs in which requests may not be in the order of messages."""
        rows = self.outcomes.filter("kind = 'deliver' and message is not null")
        return self._doubtful(rows, Promise.REQUEST_ORDER.value, Promise.REQUEST_ORDER)

    @cached_property
    def displaced(self) -> DataFrame | None:
        """What happened in runs in which not everything stands at the position behind all before."""
        return self._doubtful(self.outcomes, witness.PLACES, Promise.INTEGRITY)

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
        rows = self.of_runs_with(self.outcomes, Promise.INTEGRITY, Promise.CLIENT_ORDER)
        return requests.delivered(rows, self.own_clients)


def _trusted(events: DataFrame, incomplete: DataFrame) -> DataFrame:
    """Of a process whose rows are not all here, only the multicasts are looked at."""
    marked = incomplete.select("run", F.col("client").alias("process"), F.lit(True).alias("in_part")).distinct()
    joined = events.join(F.broadcast(marked), on=["run", "process"], how="left")
    return joined.filter("in_part is null or kind = 'multicast'").drop("in_part")
