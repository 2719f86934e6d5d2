"""One job: the parts of a trace are glanced at, and what they say of each message and process comes together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from antiphon.pipeline.glance import history, messages, times
from antiphon.pipeline.glance.arrays import PIECES_IN_SPARK, by_name, pieces, put_together
from antiphon.pipeline.glance.conclude import conclusions
from antiphon.pipeline.glance.found import BLOCKS, OWN, SESSIONS, SUSPECTS
from antiphon.pipeline.glance.history import CELLS, SENT, STEPS, glance_at_history, judge_history, judge_sessions
from antiphon.pipeline.glance.messages import MESSAGES, glance_at_messages, judge_messages
from antiphon.pipeline.glance.requests import REQUESTS, glance_at_requests, judge_requests
from antiphon.pipeline.glance.run_index import RunIndex, TracePart
from antiphon.pipeline.glance.times import (
    BY_BUCKET,
    COUNTED,
    OF_COUNTS,
    OF_LATENCIES,
    TIMES,
    glance_at_figures,
    judge_times,
    latencies,
)
from antiphon.pipeline.scan import Scan, of_rows

Batches = Iterator[pa.RecordBatch]
ROWS_AT_ONCE = 10_000
DOUBTS = pa.schema([("run", pa.string()), ("doubt", pa.string()), ("message", pa.string())])
FIGURES = pa.schema([*OF_COUNTS, *list(OF_LATENCIES)[1:]])  # a row is of the one or of the other: both begin with `run`
FOUND = pa.schema([*DOUBTS, *list(FIGURES)[1:]])


def first_look(scan: Scan, index: RunIndex, *, copies: DataFrame | None = None, measured: bool = False) -> DataFrame:
    """(run, doubt, message): what is to be looked at again in a run; of suspects also which messages.

    `copies`: rows that are judged with those of the trace. `measured`: its figures come with it, as `figures_of` makes
    them.
    """
    n, spark_type = scan.buckets(), from_arrow_schema(FOUND)
    judge, count = partial(_glance, index, n), partial(_count, index, n)
    both, columns = partial(_look, (judge, count)), sorted({*messages.COLUMNS, *times.COLUMNS})
    whole = scan if copies is None else scan.beside(copies)
    if not measured:
        parts = whole.map(partial(_look, (judge,)), messages.COLUMNS, PIECES_IN_SPARK)
    else:
        parts = scan.map(both, columns, PIECES_IN_SPARK)
        if copies is not None:
            beside = of_rows(copies).map(partial(_look, (judge,)), messages.COLUMNS, PIECES_IN_SPARK)
            parts = parts.unionByName(beside)
    by_message = parts.repartitionById(n, "bucket").mapInArrow(partial(_judged, index, n), PIECES_IN_SPARK)
    events = whole.map(partial(_glance_back, index, n), history.COLUMNS, PIECES_IN_SPARK)
    by_process = events.unionByName(by_message).repartitionById(n, "bucket")
    by_run = by_process.mapInArrow(partial(_looked_back, n), PIECES_IN_SPARK).repartitionById(n, "bucket")
    return by_run.mapInArrow(partial(_concluded, index), spark_type)


def figures_of(scan: Scan, index: RunIndex) -> DataFrame:
    """What the trace cost and how long its messages took, as it was counted in parts (`times`, `figures`)."""
    n = scan.buckets()
    parts = scan.map(partial(_look, (partial(_count, index, n),)), times.COLUMNS, PIECES_IN_SPARK)
    by_message = parts.repartitionById(n, "bucket")
    return by_message.mapInArrow(partial(_measured, index), from_arrow_schema(FIGURES))


def _look(at: Sequence[Callable[[pa.Table], Batches]], tables: Iterable[pa.Table]) -> Batches:
    for table in tables:
        for look in at:
            yield from look(table)


def _glance(index: RunIndex, buckets: int, table: pa.Table) -> Batches:
    part = TracePart(table, index)
    yield from glance_at_messages(part, buckets)
    yield from glance_at_requests(part, buckets)


def _count(index: RunIndex, buckets: int, table: pa.Table) -> Batches:
    yield from glance_at_figures(TracePart(table, index, all_rows=True), buckets)


def _glance_back(index: RunIndex, buckets: int, tables: Iterable[pa.Table]) -> Batches:
    for table in tables:
        yield from glance_at_history(TracePart(table, index), buckets)


def _judged(index: RunIndex, buckets: int, batches: Batches) -> Batches:
    found = put_together(batches)
    if MESSAGES in found:
        yield from judge_messages(found.pop(MESSAGES), index, buckets)
    if REQUESTS in found:
        yield from judge_requests(found.pop(REQUESTS), index)
    if TIMES in found:
        yield from judge_times(found.pop(TIMES), index, buckets)
    for what, table in found.items():  # is said already
        yield from pieces(what, table, by_name(table, "run", buckets))


def _measured(index: RunIndex, batches: Batches) -> Batches:
    """The same where nothing is judged."""
    found = put_together(batches)
    tables = [found[COUNTED]] if COUNTED in found else []
    tables += latencies(found[TIMES], index) if TIMES in found else []
    for table in tables:
        yield from _rows(table, FIGURES)


def _looked_back(buckets: int, batches: Batches) -> Batches:
    found = put_together(batches)
    blocks = judge_history(found.pop(STEPS, None), found.pop(SENT, None))
    if blocks is not None:
        found[BLOCKS] = blocks
    if CELLS in found:
        found[SESSIONS] = judge_sessions(found.pop(CELLS))
    for what, table in found.items():
        by = "client" if what in (SESSIONS, OWN) else "run"
        yield from pieces(what, table, by_name(table, by, buckets))


def _concluded(index: RunIndex, batches: Batches) -> Batches:
    found = put_together(batches)
    names = list(index.names)
    rows = [(names[run], doubt) for run, doubt in conclusions(found, index)]
    runs, doubts = ([row[i] for row in rows] for i in (0, 1))
    yield from _rows(pa.table({"run": runs, "doubt": doubts}), FOUND)
    for what in (SUSPECTS, COUNTED, BY_BUCKET):
        if what in found:
            yield from _rows(found[what], FOUND)


def _rows(table: pa.Table, made: pa.Schema) -> Batches:
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(len(table), field.type)
        for field in made
    ]
    yield from pa.table(columns, schema=made).combine_chunks().to_batches(max_chunksize=ROWS_AT_ONCE)
