"""Small tables that the driver has already: Spark holds them in its plan, so they cost no task and no Python worker.

What is known of them is used when the plan is made: a check of which they say that no run needs it is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from antiphon.pipeline.masters import is_remote


def local_table(spark: SparkSession, rows: Iterable[Sequence[Any]], columns: StructType) -> DataFrame:
    """A table of these rows; a map is given as a dict."""
    named = [{name: _cell(value) for name, value in zip(columns.names, row, strict=True)} for row in rows]
    table = pa.Table.from_pylist(named, to_arrow_schema(columns))
    return spark.createDataFrame(table, columns)


def _cell(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def kept(table: DataFrame) -> DataFrame:
    """The table, worked out once. On this machine, only its rows are kept; elsewhere also how to work them out again:
    an executor may be lost with them."""
    if is_remote(table.sparkSession.conf.get("spark.master", "") or ""):
        return table.persist()
    return table.localCheckpoint()


def small(table: DataFrame, rows_max: int) -> DataFrame:
    """The table, worked out: held by the driver if it has no more than so many rows, else by the executors."""
    rows = table.limit(rows_max + 1).collect()
    if len(rows) > rows_max:
        return kept(table)
    return local_table(table.sparkSession, rows, table.schema)
