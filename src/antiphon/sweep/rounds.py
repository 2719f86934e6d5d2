"""Runs a sweep on Spark, in rounds: simulate, measure, commit. What is done once is not done again.

A task makes the figures of its own runs: else all cores but one would wait after each round until Spark had made them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from antiphon.sweep.folder import POINT, Round, SweepFolder, parameters
from antiphon.sweep.pace import Chunk, Pace, chunks
from antiphon.sweep.spec import Sweep
from antiphon.sweep.task import MEASURED, OUTCOMES, run_chunk

# Of the seconds that a round's tasks take on one core: it grows, since first estimates are rough, up to a limit.
FIRST_ROUND_SECONDS, ROUND_SECONDS_MAX, GROWTH = 4.0, 180.0, 8.0
PROGRESS_SECONDS = 0.5


METRICS = pa.schema([*OUTCOMES, *POINT, *MEASURED])

OnRuns = Callable[[int], None]


def run_sweep(spark: SparkSession, sweep: Sweep, folder: SweepFolder, on_progress: OnRuns = lambda _: None) -> None:
    """Run what is still to be run."""
    pace = Pace(sweep.points)
    if folder.done():
        known = folder.figures(["point", "cpu_seconds"])
        for point, seconds in zip(known["point"].to_pylist(), known["cpu_seconds"].to_pylist(), strict=True):
            pace.saw(point, seconds)
    cores = 0
    while (round := folder.under_way()) is not None or folder.done() < sweep.runs:
        if round is None:
            cores = cores or _cores(spark)
            budget = min(max(GROWTH * pace.seconds_seen, FIRST_ROUND_SECONDS * cores), ROUND_SECONDS_MAX * cores)
            round = folder.begin(chunks(sweep, folder.done(), pace, budget))
        if not folder.is_measured(round):
            _simulate(spark, sweep, round, on_progress)
            outcomes = round.outcomes()
            folder.measured(round, _measured(sweep, outcomes))
            for outcome in outcomes:
                pace.saw(outcome["point"], outcome["cpu_seconds"])
        folder.end(round, keep_trace=sweep.trace)
        on_progress(folder.done())


def _cores(spark: SparkSession) -> int:
    """How many tasks run at the same time: as many as the parts into which Spark divides a range."""
    part = spark.range(10_000).select(F.spark_partition_id().alias("part"))
    return int(part.agg(F.max("part").alias("last")).collect()[0].last) + 1


def _simulate(spark: SparkSession, sweep: Sweep, round: Round, on_progress: OnRuns) -> None:
    """Every chunk that is not committed is a task."""
    done = set(round.committed())
    open_chunks = [chunk for chunk in round.chunks if chunk not in done]
    if not open_chunks:
        return
    tasks = spark.range(0, len(open_chunks), 1, len(open_chunks))
    job = tasks.mapInArrow(partial(_run_chunks, sweep, open_chunks, str(round.folder.resolve())), "chunk long")

    def look() -> None:
        on_progress(round.chunks[0][0] + sum(last - first + 1 for first, last in round.committed()))

    _meanwhile(spark, job.collect, look)


def _run_chunks(
    sweep: Sweep, of: list[Chunk], folder: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            run_chunk(sweep, of[number], Path(folder))
        yield pa.RecordBatch.from_arrays([batch.column(0)], ["chunk"])


def _meanwhile(spark: SparkSession, job: Callable[[], Any], look: Callable[[], None]) -> None:
    """Do a job on Spark, and look now and then how far it is. An interrupt ends it."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            job()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True, name="sweep")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(PROGRESS_SECONDS)
            look()
    except BaseException:
        with suppress(Exception):
            spark.interruptAll()
        raise
    if failed:
        raise failed[0]


def _measured(sweep: Sweep, outcomes: list[dict[str, Any]]) -> pa.Table:
    """The figures of a round: as many rows as it has runs, each with its point's parameters."""
    points = [parameters(point) for point in sweep.points]
    return pa.Table.from_pylist([{**outcome, **points[outcome["point"]]} for outcome in outcomes], METRICS)
