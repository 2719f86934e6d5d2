"""What the checks on Spark look at. Each table is made when a check first asks for it, and only once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline import kernel, moments, requests, spans, stretches, witness
from antiphon.pipeline.adoption import adoptions
from antiphon.pipeline.glance.conclude import CHATTER, KEYLESS, ORDERS, PLACES
from antiphon.pipeline.glance.conclude import ODD_REQUESTS as REQUESTS
from antiphon.pipeline.glance.conclude import ODD_SESSIONS as SESSIONS
from antiphon.pipeline.glance.conclude import ODD_SUSPECTS as SUSPECTS
from antiphon.pipeline.glance.look import FIGURES, first_look
from antiphon.pipeline.glance.merge import merged
from antiphon.pipeline.glance.proved import unproven_by_merging
from antiphon.pipeline.glance.run_index import OF_REQUESTS, index_of
from antiphon.pipeline.local import kept, small
from antiphon.pipeline.messages import about_messages, facts_of, judged, judges, messages, nobody, outcomes
from antiphon.pipeline.scan import Scan, of_rows
from antiphon.pipeline.summary import summaries

DOUBTS_HERE, VIEWS_HERE = 10_000, 10_000  # rows that the driver holds: more of them stay with the executors
OF_VIEWS = (Promise.VIRTUAL_SYNCHRONY, Promise.VIEW_ORDER, Promise.VIEW_CLIENT_ORDER)


class Evidence:
    """A trace, and the tables made of it.

    `events` has each event once, as `read_events` gives it, and `runs` the facts of every run in it. Unless `fast`,
    nothing is proved by bits and keys and all is checked the long way, which must give the same verdicts.

    `measured`: the first look also counts what the figures are made of.

    What needs a second look is None where the first look, one job for all of it, found nothing to look at.
    """

    def __init__(
        self,
        events: DataFrame,
        runs: DataFrame,
        *,
        fast: bool = True,
        scan: Scan | None = None,
        measured: bool = False,
    ) -> None:
        self.fast, self._measured = fast, measured
        self._trace = self._scan = scan or of_rows(events)
        self._copies: DataFrame | None = None
        incomplete = runs.select("run", F.explode("incomplete").alias("client"))
        self._adoptions = adoptions(events, incomplete)
        if self._adoptions is not None:
            # What donors delivered stands beside the events, as if newcomers had done it: no check knows it apart.
            self._copies = kept(self._adoptions.copies(events).select(*events.columns))
            events, self._scan = events.unionByName(self._copies), self._trace.beside(self._copies)
            runs = _spread(runs, self._adoptions.incomplete)
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

    @property
    def misplaced(self) -> DataFrame | None:
        """The adoptions by processes whose logs had begun; few."""
        found = self._adoptions
        return None if found is None else self.of_runs_with(found.misplaced, Promise.INTEGRITY)

    # The first look -----------------------------------------------------------------------------------------------

    @cached_property
    def outcomes(self) -> DataFrame:
        """All events but frames: few of a trace's rows, at which almost every check looks."""
        return outcomes(self.events).persist()

    @cached_property
    def _found(self) -> DataFrame:
        """(run, doubt, message): what the first look leaves open; small beside the trace, unless all is wrong."""
        index = index_of(self.facts, self._incomplete)
        return kept(first_look(self._trace, index, copies=self._copies, measured=self._measured))

    def look(self) -> None:
        """The first look reads every row, whatever is promised: so it finds what no event may have."""
        if self.fast:
            _ = self._found

    @property
    def figures(self) -> DataFrame:
        """What `metrics_of` is made of, counted on the way, as nothing that is judged here can change it."""
        return self._found.select(*FIGURES.names).filter("kind is not null or measure is not null")

    @cached_property
    def _doubts(self) -> DataFrame:
        """(run, doubt): what bits, keys and numbers leave open."""
        found = self._found.filter("doubt is not null").select("run", "doubt")
        if Promise.REAL_TIME_ORDER in self.asked:
            late = moments.untimely(self.of_runs_with(self.outcomes, Promise.REAL_TIME_ORDER), self.facts)
            found = found.unionByName(late.select("run", F.lit(Promise.REAL_TIME_ORDER.value).alias("doubt")))
        return small(found.distinct(), DOUBTS_HERE)

    @cached_property
    def _open(self) -> frozenset[str]:
        if not self.fast:
            return frozenset((SUSPECTS, REQUESTS, SESSIONS, CHATTER, PLACES)) | self.asked
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
            chosen = self._found.filter("message is not null").select("run", "message")
            rows = rows.join(chosen, on=["run", "message"], how="left_semi")
        return kept(messages(rows, self.facts))

    @cached_property
    def unproven(self) -> dict[str, DataFrame]:
        """Of each order that neither the messages' keys prove, nor their places where they have no keys: the runs."""
        if not self.fast:
            asked = [name for name in ORDERS if name in self.asked]
            return {name: self.facts.filter(judged(name)).select("run") for name in asked}
        left = self._doubts
        if KEYLESS in self._open and not self._open.isdisjoint(ORDERS):
            keyless = left.filter(F.col("doubt") == KEYLESS).select("run")
            keyed = left.join(F.broadcast(keyless), on="run", how="left_anti")
            # Neither tells anything of the time.
            timed = left.filter(F.col("doubt") == Promise.REAL_TIME_ORDER.value)
            left = small(keyed.unionByName(timed).unionByName(self._unplaced(self._unmerged(keyless))), DOUBTS_HERE)
        names = [row.doubt for row in left.select("doubt").distinct().collect()]
        return {name: left.filter(F.col("doubt") == name).select("run") for name in names if name in ORDERS}

    def _unmerged(self, keyless: DataFrame) -> DataFrame:
        """(run, doubt): the orders that merging the processes' histories does not prove."""
        facts = self.facts.join(F.broadcast(keyless), on="run", how="left_semi")
        marks = self._doubts.groupBy("run").agg(F.collect_set("doubt").alias("marks"))
        proved = merged(self._scan, index_of(facts, self._incomplete)).join(F.broadcast(marks), on="run", how="inner")
        table = facts.join(proved, on="run", how="inner")
        return small(table.select("run", F.explode(unproven_by_merging()).alias("doubt")), DOUBTS_HERE)

    def _unplaced(self, doubts_: DataFrame) -> DataFrame:
        """Of these, what places in views do not prove either."""
        runs = F.broadcast(doubts_.select("run").distinct())
        if doubts_.isEmpty():
            return doubts_
        events = self.outcomes.join(runs, on="run", how="left_semi")
        summary = kept(summaries(events, self.facts))
        steps = witness.steps_by_place(events, self.stretches, summary, self.facts)
        still = witness.unproven(steps, self.facts.join(runs, on="run", how="left_semi"))
        return doubts_.join(still.withColumnRenamed("property", "doubt"), on=["run", "doubt"], how="left_semi")

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
        every = messages(about_messages(rows, self.facts, genuine=False), some)
        return kept(every.drop("delivered_to"))  # which is integrity's affair, of suspects

    @cached_property
    def disorder(self) -> DataFrame | None:
        """What follows chains through all of a run, found by the kernel: of several properties, in one go."""
        if self.unordered is None or self.unproven.keys().isdisjoint(kernel.CHECKS):
            return None
        return spans.disorder(self.unordered)

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
        return self._doubtful(self.outcomes, PLACES, Promise.INTEGRITY)

    @cached_property
    def odd_sessions(self) -> DataFrame | None:
        """The deliveries of each client at each process that do not simply follow one another."""
        events = self._doubtful(self.outcomes, SESSIONS, Promise.INTEGRITY, Promise.CLIENT_ORDER)
        if events is None:
            return None
        rows = requests.delivered(events, self.own_clients)
        if self.fast:
            rows = rows.join(requests.crooked(rows), on=requests.SESSION, how="left_semi")
        return kept(rows.join(F.broadcast(self.facts.select("run", "judged")), on="run", how="inner"))


def _spread(runs: DataFrame, newcomers: DataFrame | None) -> DataFrame:
    """The facts, with these among those whose rows are not all here."""
    if newcomers is None:
        return runs
    more = newcomers.groupBy("run").agg(F.collect_list("client").alias("newcomers"))
    both = F.array_union("incomplete", F.coalesce("newcomers", nobody()))
    return runs.join(F.broadcast(more), on="run", how="left").withColumn("incomplete", both).drop("newcomers")


def _trusted(events: DataFrame, incomplete: DataFrame) -> DataFrame:
    """Of a process whose rows are not all here, only the multicasts are looked at."""
    marked = incomplete.select("run", F.col("client").alias("process"), F.lit(True).alias("in_part")).distinct()
    joined = events.join(F.broadcast(marked), on=["run", "process"], how="left")
    return joined.filter("in_part is null or kind = 'multicast'").drop("in_part")
