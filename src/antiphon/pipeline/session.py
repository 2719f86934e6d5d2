"""One Spark session, on this machine or on a cluster, and clear words when there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.core.errors import UsageError
from antiphon.pipeline.masters import HERE, check_answer, chosen_master, is_connect, is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_JAVA = "Spark needs Java 17 or later: apt-get install openjdk-17-jre-headless, or set JAVA_HOME."
OLDEST_JAVA = 17
# Without the second compiler Java also halves its code cache, which Spark's generated code then overflows.
QUICK = " -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
# On a long trace the second compiler is worth its time for what runs for every row; by its own measure it would take as
# long as all tasks together, most of that for the code that makes plans. So it waits ten times as long.
PATIENT = (
    " -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000"
    " -XX:Tier4BackEdgeThreshold=400000"
)


# Up to the first, to compile code for a query takes longer than to do without it, and to divide the work longer than to
# do it (measured: docs/measurements.md). Up to the second, Java had better compile quickly than well.
TINY_ROWS, SMALL_ROWS = 50_000, 4_000_000
ROWS_PER_TASK = 1_000_000  # behind a shuffle, which most rows do not go through


def spark_session(
    name: str = "antiphon", *, memory_gib: int | None = None, rows: int | None = None, master: str | None = None
) -> SparkSession:
    """The session that is active, or a new one: on spark-submit's master if that started us, else on this machine.

    `rows`: about how many the traces have that it is to read, if that is known. `master`: where to run, if somebody
    says so: a master's URL, or the address of a Spark Connect server. A new session that runs elsewhere has this
    package; to one that is active, `travel.send_package` gives it.
    """
    active = _active()
    if active is not None:
        return active
    need(master)
    where = master or chosen_master() or HERE
    os.environ.pop("SPARK_REMOTE", None)  # who names a master means that one
    if is_remote(where):
        return _session_elsewhere(name, where)
    # Workers would otherwise take the first `python3` on the PATH, which need not have pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return _started(name, QUERY_SETTINGS | _local_settings(memory_gib, rows) | {"spark.master": where})


def _active() -> SparkSession | None:
    if find_spec("pyspark") is None:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def _session_elsewhere(name: str, where: str) -> SparkSession:
    """On a cluster: memory, cores and the workers' Python are those of its own settings."""
    from antiphon.pipeline.travel import send_package

    check_answer(where)
    there = {"spark.remote": where} if is_connect(where) else CLUSTER_SETTINGS | {"spark.master": where}
    session = _started(name, QUERY_SETTINGS | there)
    send_package(session)
    return session


def _started(name: str, settings: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


QUERY_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Rows may be pieces of some hundred kilobytes.
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    # One run of a sweep is small, one run of a benchmark is large: let the data decide how many tasks a shuffle gets.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
    # A trace has some ten bytes a row. A task that reads much more than this counts more messages than a cache holds.
    "spark.sql.files.maxPartitionBytes": "16m",
    # Else each part of a query tells Java the line of Python that made it, which takes as long as to make it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # What is limited here is small as a whole: look at all of it at once, and not at one partition first.
    "spark.sql.limit.initialNumPartitions": "1000",
}

CLUSTER_SETTINGS = {
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}


def _local_settings(memory_gib: int | None, rows: int | None) -> dict[str, str]:
    quiet = Path(__file__).with_name("log4j2.properties")
    short = rows is not None and rows <= SMALL_ROWS
    return {
        "spark.driver.memory": f"{memory_gib or _default_memory_gib()}g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet.as_uri()}{QUICK if short else PATIENT}",
        "spark.log.level": "FATAL",  # what fails is raised and told
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Files are given one by one: to look at them takes no job.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        # All checks together take several hundred pieces of generated code; beyond 100, Spark would forget and compile
        # them again.
        "spark.sql.codegen.cache.maxEntries": "2000",
        **settings_by_size(rows),
    }


def settings_by_size(rows: int | None) -> dict[str, str]:
    """What suits traces of about so many rows on this machine; all of it can be set in a session that is active."""
    cores = os.cpu_count() or 1
    tiny = rows is not None and rows <= TINY_ROWS
    return {
        "spark.sql.shuffle.partitions": str(
            1 if tiny else 8 * cores if rows is None else max(cores, rows // ROWS_PER_TASK)
        ),
        # Where the size is known, there is nothing to find out on the way; to plan again after each stage takes longer.
        "spark.sql.adaptive.enabled": str(rows is None).lower(),
        "spark.sql.codegen.wholeStage": str(not tiny).lower(),
        "spark.sql.codegen.factoryMode": "NO_CODEGEN" if tiny else "FALLBACK",
    }


def _default_memory_gib() -> int:
    """A quarter of the machine, within 1 to 3: Spark spills to disk, and Java takes up to one more beside its heap."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    return int(min(3, max(1, total // 4)))


def need(master: str | None = None) -> None:
    """Refuse in one sentence if Spark cannot start here; takes no more than a moment. A Connect server has Java."""
    if find_spec("pyspark") is None:
        raise UsageError(no_packages("spark"))
    if not is_connect(master or chosen_master() or ""):
        _need_java()
    elif find_spec("grpc") is None or find_spec("zstandard") is None:
        raise UsageError(no_packages("connect"))


def no_packages(extra: str) -> str:
    """How to get what is missing: for a clone by its own name, elsewhere by the names of the packages."""
    clone = Path(__file__).parents[3]
    if (clone / "pyproject.toml").is_file():
        wanted = f"-e '{clone}[{extra}]'"
    else:
        needed = [found for found in requires("antiphon") or () if f"extra == '{extra}'" in found]
        wanted = " ".join(f"'{found.partition(';')[0].strip()}'" for found in needed)
    of = {"spark": "Spark's", "connect": "Spark Connect's"}[extra]
    return f"This needs {of} Python packages: {sys.executable} -m pip install {wanted}"


def _need_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        raise UsageError(NO_JAVA)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found.group(1)) < OLDEST_JAVA:
        raise UsageError(NO_JAVA)
