"""One Spark session for all tests: those that need it share a worker (tests/conftest.py), and Java starts once."""

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
        session = spark_session("tests", memory_gib=2, rows=20_000)
        yield session
        session.stop()
