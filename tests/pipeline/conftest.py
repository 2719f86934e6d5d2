"""One Spark session for all pipeline tests: they share a worker, and Java starts once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from antiphon.pipeline.session import spark_session

    with warnings.catch_warnings():
        # py4j leaves its sockets to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        session = spark_session("tests", memory_gib=1, short=True)
        # These traces are tiny: planning anew after each shuffle costs more than the rows, and so does a task for each
        # of many partitions. The commands' tests run with the settings that users have.
        session.conf.set("spark.sql.adaptive.enabled", "false")
        session.conf.set("spark.sql.shuffle.partitions", "2")
        yield session
        session.stop()
