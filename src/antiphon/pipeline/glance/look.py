"""One job: the parts of a trace are glanced at, what they say of each message and process comes together, is judged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from antiphon.pipeline.glance import history, messages
from antiphon.pipeline.glance.arrays import PIECES_IN_SPARK, Ints, coded, hashed, pieces, put_together
from antiphon.pipeline.glance.conclude import conclusions
from antiphon.pipeline.glance.found import BLOCKS, OWN, SESSIONS, SUSPECTS
from antiphon.pipeline.glance.history import CELLS, SENT, STEPS, glance_at_history, judge_history, judge_sessions
from antiphon.pipeline.glance.messages import MESSAGES, glance_at_messages, judge_messages
from antiphon.pipeline.glance.requests import REQUESTS, glance_at_requests, judge_requests
from antiphon.pipeline.glance.run_index import RunIndex, TracePart
from antiphon.pipeline.scan import Scan

Batches = Iterator[pa.RecordBatch]
ROWS_AT_ONCE = 10_000
FOUND = pa.schema([("run", pa.string()), ("doubt", pa.string()), ("message", pa.string())])


def first_look(scan: Scan, index: RunIndex) -> DataFrame:
    """(run, doubt, message): what is to be looked at again in a run; of suspects also which messages."""
    n = scan.buckets()
    parts = scan.map(partial(_glance, index, n), messages.COLUMNS, PIECES_IN_SPARK)
    by_message = parts.repartitionById(n, "bucket").mapInArrow(partial(_judged, index, n), PIECES_IN_SPARK)
    events = scan.map(partial(_glance_back, index, n), history.COLUMNS, PIECES_IN_SPARK)
    by_process = events.unionByName(by_message).repartitionById(n, "bucket")
    by_run = by_process.mapInArrow(partial(_looked_back, n), PIECES_IN_SPARK).repartitionById(n, "bucket")
    return by_run.mapInArrow(partial(_concluded, index), "run string, doubt string, message string")


def _glance(index: RunIndex, buckets: int, tables: Iterable[pa.Table]) -> Batches:
    for table in tables:
        part = TracePart(table, index)
        yield from glance_at_messages(part, buckets)
        yield from glance_at_requests(part, buckets)


def _glance_back(index: RunIndex, buckets: int, tables: Iterable[pa.Table]) -> Batches:
    for table in tables:
        yield from glance_at_history(TracePart(table, index), buckets)


def _judged(index: RunIndex, buckets: int, batches: Batches) -> Batches:
    found = put_together(batches)
    if MESSAGES in found:
        yield from judge_messages(found.pop(MESSAGES), index, buckets)
    if REQUESTS in found:
        yield from judge_requests(found.pop(REQUESTS), index)
    for what, table in found.items():  # is said already
        yield from pieces(what, table, np.zeros(len(table), dtype=np.int64))


def _looked_back(buckets: int, batches: Batches) -> Batches:
    found = put_together(batches)
    blocks = judge_history(found.pop(STEPS, None), found.pop(SENT, None))
    if blocks is not None:
        found[BLOCKS] = blocks
    if CELLS in found:
        found[SESSIONS] = judge_sessions(found.pop(CELLS))
    for what, table in found.items():
        by = "client" if what in (SESSIONS, OWN) else "run"
        yield from pieces(what, table, _bucket(table, by, buckets))


def _bucket(table: pa.Table, by: str, buckets: int) -> Ints:
    code, names = coded(table.column(by).cast(pa.string()))
    where: Ints = hashed(names)[code] % buckets
    return where


def _concluded(index: RunIndex, batches: Batches) -> Batches:
    found = put_together(batches)
    names = list(index.names)
    rows = [(names[run], doubt) for run, doubt in conclusions(found, index)]
    runs, doubts = ([row[i] for row in rows] for i in (0, 1))
    yield from _rows(pa.table({"run": runs, "doubt": doubts}))
    if SUSPECTS in found:
        yield from _rows(found[SUSPECTS])


def _rows(table: pa.Table) -> Batches:
    columns = [
        table.column(name).cast(pa.string()) if name in table.column_names else pa.nulls(len(table), pa.string())
        for name in FOUND.names
    ]
    yield from pa.table(columns, schema=FOUND).combine_chunks().to_batches(max_chunksize=ROWS_AT_ONCE)
