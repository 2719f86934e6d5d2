"""One small cluster for all tests that need one: they share a worker of the suite (tests/conftest.py)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.standalone import Cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("spark"))
    yield found
    found.stop()
