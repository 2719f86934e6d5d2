"""Which tests share a worker, and begin first; Spark; and clusters of real processes, in folders that do not stay."""

from __future__ import annotations

import os
import shutil
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from antiphon.core.errors import AntiphonError
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder, control, ports
from waiting import IN_TIME_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tests that share what is costly to make stay on one worker: those with Spark share one Java. So do those that mostly
# wait, for real processes and for timeouts: while one worker waits, the others have the processor.
PAGES = "tests/docs/test_pages.py::test_a_page_shows_what_is_printed"
TOGETHER = {
    "tests/cluster/": "cluster",
    "tests/pipeline/": "spark",
    "tests/runtime/test_protocols.py": "spark",
    "tests/cli/test_cli.py::test_verify_": "spark",
    f"{PAGES}[README]": "spark",
    f"{PAGES}[merge]": "spark",
    f"{PAGES}[metrics]": "spark",
    f"{PAGES}[spark]": "spark",
    f"{PAGES}[sweeps]": "spark",
    f"{PAGES}[tutorial]": "spark",
    "tests/runtime/test_datagrams.py::test_machines_are_killed": "spark",
    "tests/runtime/test_attacks.py": "waiting",
    "tests/runtime/test_cluster_commands.py": "waiting",
    "tests/runtime/test_committer.py": "waiting",
    "tests/runtime/test_datagrams.py": "waiting",
    "tests/runtime/test_hostile.py": "waiting",
    "tests/runtime/test_recovery.py": "waiting",
    "tests/client/test_clusters.py": "waiting",
    "tests/client/test_sending.py": "waiting",
    "tests/client/test_storms.py": "waiting",
    "tests/papers/test_scalatom.py": "scalatom",
}


def together(nodeid: str) -> str | None:
    return next((scope for begin, scope in TOGETHER.items() if nodeid.startswith(begin)), None)


class Together(LoadScopeScheduling):
    """Each test goes to the next free worker, but for those that belong together."""

    def _split_scope(self, nodeid: str) -> str:
        return together(nodeid) or nodeid


def pytest_configure() -> None:
    _have_ports_of_our_own()
    # A user is told after two seconds that a process does not answer; a test waits for one that has no processor.
    for asking in (control.ask, control.ask_all):
        asking.__kwdefaults__["timeout"] = IN_TIME_SECONDS
    # All workers run the tests of one day, also around midnight.
    os.environ.setdefault("ANTIPHON_TESTS_OF_DAY", str(int(time.time()) // 86_400))
    # Ctrl-C works, also where a shell that runs us in the background had it ignored: our children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `timeout` ends us as Ctrl-C does: nothing stays behind


def _have_ports_of_our_own() -> None:
    """A port that is free is taken a moment later, or again after a kill: no other worker may take it in between."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first, last = ports.PORTS
    share = (last - first) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    begin = first + share * number
    ports.PORTS = (begin, begin + share)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes begins early, so that nobody waits for it at the end: one test, or many on one worker."""
    items.sort(key=lambda item: (item.get_closest_marker("long") is None, together(item.nodeid) is None))


# Of all values, the same are tried in each run, and for as long as it takes: a slow machine is not a failed test.
settings.register_profile("patient", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

MakeCluster = Callable[..., ClusterFolder]


def destroy(folder: ClusterFolder) -> None:
    with suppress(AntiphonError):
        folder.reload()  # a command may have replaced a member
    for process in folder.config.processes:
        cluster.kill(folder, process)


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[MakeCluster]:
    """Create and start a cluster, or ``only`` some of it: ``make_cluster({"orders": 3}, trace=False)``."""
    made: list[ClusterFolder] = []

    def make(sizes: dict[str, int], only: list[str] | None = None, **settings: Any) -> ClusterFolder:
        settings = {"trace": False, "segment_bytes": 1 << 20, **settings}
        folder = cluster.create(tmp_path / f"cluster{len(made)}", sizes, **settings)
        made.append(folder)
        cluster.start(folder, only)
        return folder

    yield make
    for folder in made:
        with suppress(AntiphonError):
            destroy(folder)
        shutil.rmtree(folder.path, ignore_errors=True)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests: those that need it share a worker, and Java starts once."""
    from antiphon.pipeline.session import spark_session

    with warnings.catch_warnings():
        # py4j leaves its sockets to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        session = spark_session("tests", memory_gib=2, rows=20_000)
        yield session
        session.stop()
