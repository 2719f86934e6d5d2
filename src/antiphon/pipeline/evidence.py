"""What the checks on Spark look at. Each table is made when a check first asks for it, and only once."""

from __future__ import annotations

from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from antiphon.core.promises import Promise
from antiphon.pipeline import requests, stretches
from antiphon.pipeline.messages import about_messages, facts_of, judged, messages
from antiphon.pipeline.summary import summaries
from antiphon.pipeline.witness import ORDERS, unproven


class Evidence:
    """A trace, and the tables made of it.

    `events` has each event once, as `read_events` gives it. Unless `fast`, nothing is proved by bits and keys and all
    is checked the long way, which must give the same verdicts.
    """

    def __init__(self, events: DataFrame, runs: DataFrame, *, fast: bool = True) -> None:
        self.fast = fast
        self.facts = facts_of(runs)
        self.events = _trusted(events, runs)
        self._incomplete = runs.select("run", F.explode("incomplete").alias("client"))

    # Messages -----------------------------------------------------------------------------------------------------

    @cached_property
    def summary(self) -> DataFrame:
        """A narrow row per message."""
        return summaries(self.events, self.facts).localCheckpoint()

    @cached_property
    def suspects(self) -> DataFrame:
        """The messages that their summary does not clear, with everything that happened to them."""
        rows = about_messages(self.events, self.facts, frames=True)
        chosen = self.summary.filter("suspect" if self.fast else "true").select("run", "message")
        if chosen.isEmpty():
            return _empty(messages(rows, self.facts))
        rows = rows.join(chosen, on=["run", "message"], how="left_semi")
        return messages(rows, self.facts).localCheckpoint()

    @cached_property
    def unordered(self) -> DataFrame:
        """All messages of the runs whose keys leave an order unproven; `judged` has only what is left to be judged."""
        left = self._open_orders.groupBy("run").agg(F.collect_set("property").alias("judged"))
        some = self.facts.drop("judged").join(F.broadcast(left), on="run", how="inner")
        table = messages(about_messages(self.events, some, frames=False), some)
        return _empty(table) if self._open_orders.isEmpty() else table.localCheckpoint()

    @cached_property
    def _open_orders(self) -> DataFrame:
        if self.fast:
            return unproven(self.events, self.summary, self.facts).localCheckpoint()
        names = F.array(*(F.lit(name) for name in ORDERS))
        return self.facts.select("run", F.explode(F.array_intersect("judged", names)).alias("property"))

    # Views --------------------------------------------------------------------------------------------------------

    @cached_property
    def announced(self) -> DataFrame:
        """The views that processes deliver; few."""
        return stretches.announced(self.events, self._with_views).localCheckpoint()

    @cached_property
    def stretches(self) -> DataFrame:
        """Each process from one view to its next; few."""
        return stretches.stretches_of(self.announced, self._with_views).localCheckpoint()

    @cached_property
    def in_views(self) -> DataFrame:
        """The first delivery of each message at each process, with the view in which it is."""
        return stretches.in_views(self.events, self.stretches).localCheckpoint()

    @property
    def _with_views(self) -> DataFrame:
        of_views = (Promise.VIRTUAL_SYNCHRONY, Promise.VIEW_ORDER, Promise.VIEW_CLIENT_ORDER)
        return self.facts.filter(reduce(Column.__or__, [judged(promise.value) for promise in of_views]))

    # Requests -----------------------------------------------------------------------------------------------------

    @cached_property
    def own_clients(self) -> DataFrame:
        """(run, client) of the processes that multicast on their own behalf; few."""
        return requests.own_clients(self.events, self._incomplete).localCheckpoint()

    @cached_property
    def odd_requests(self) -> DataFrame:
        """The requests that were delivered otherwise than multicast, or acknowledged and not delivered everywhere."""
        return requests.odd_requests(self.events, self.facts).localCheckpoint()

    @cached_property
    def odd_sessions(self) -> DataFrame:
        """The deliveries of each client at each process that do not simply follow one another."""
        return requests.odd_sessions(self.events, self.facts, self.own_clients, fast=self.fast).localCheckpoint()


def _empty(table: DataFrame) -> DataFrame:
    return table.sparkSession.createDataFrame([], table.schema)


def _trusted(events: DataFrame, runs: DataFrame) -> DataFrame:
    """Of a process whose rows are not all here, only the multicasts are looked at."""
    incomplete = runs.select("run", F.explode("incomplete").alias("process")).distinct()
    if incomplete.isEmpty():
        return events
    marked = incomplete.withColumn("in_part", F.lit(True))
    joined = events.join(F.broadcast(marked), on=["run", "process"], how="left")
    return joined.filter("in_part is null or kind = 'multicast'").drop("in_part")
