"""Which tests begin first; and clusters of real processes, made in a temporary folder and gone afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.errors import AntiphonError
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes begins first, so that nobody waits for it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


MakeCluster = Callable[..., ClusterFolder]


def destroy(folder: ClusterFolder) -> None:
    for process in folder.config.processes:
        cluster.kill(folder, process)


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    """Create and start a cluster: ``make_cluster({"orders": 3}, trace=False)``."""
    made: list[ClusterFolder] = []

    def make(sizes: dict[str, int], **settings: Any) -> ClusterFolder:
        settings = {"trace": False, "segment_bytes": 1 << 20, **settings}
        folder = cluster.create(tmp_path / f"cluster{len(made)}", sizes, **settings)
        made.append(folder)
        cluster.start(folder)
        return folder

    yield make
    for folder in made:
        with suppress(AntiphonError):
            destroy(folder)
        shutil.rmtree(folder.path, ignore_errors=True)
