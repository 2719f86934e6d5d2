"""Which tests share a worker; and clusters of real processes, made in a temporary folder and gone afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from antiphon.core.errors import AntiphonError
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder

# Tests of these files share what is costly to make: they stay on one worker, in the order of the file.
TOGETHER = ("tests/pipeline/test_pipeline.py", "tests/papers/test_scalatom.py")


class Together(LoadScopeScheduling):
    """Each test goes to the next free worker, but for those that belong together."""

    def _split_scope(self, nodeid: str) -> str:
        return next((file for file in TOGETHER if nodeid.startswith(file)), nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)


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
