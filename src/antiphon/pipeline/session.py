"""One Spark session, on this machine or on the cluster that spark-submit chose, and clear words when there is none."""

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

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_JAVA = "Spark needs Java 17 or later: apt-get install openjdk-17-jre-headless, or set JAVA_HOME."
OLDEST_JAVA = 17
# Without the second compiler Java also halves its code cache, which Spark's generated code then overflows.
QUICK = " -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"


# Up to the first, to compile code for a query takes longer than to do without it, and to divide the work longer than to
# do it (measured: docs/measurements.md). Up to the second, Java had better compile quickly than well.
TINY_ROWS, SMALL_ROWS = 50_000, 4_000_000


def spark_session(
    name: str = "antiphon", *, memory_gib: int | None = None, rows: int | None = None, master: str | None = None
) -> SparkSession:
    """The session that is active, or a new one: on spark-submit's master if that started us, else on this machine.

    `rows`: about how many the traces have that it is to read, if that is known. `master`: where to run, if somebody
    says so.
    """
    if find_spec("pyspark") is None:
        raise UsageError(no_pyspark())
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if master is not None and master.startswith("sc://"):
        os.environ["SPARK_REMOTE"], master = master, None
    remote = "SPARK_REMOTE" in os.environ  # Spark Connect: Java is on the server
    if not remote:
        _need_java()
    # Workers would otherwise take the first `python3` on the PATH, which need not have pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    elsewhere = remote or (_master_is_chosen() if master is None else is_remote(master))
    settings = QUERY_SETTINGS if elsewhere else QUERY_SETTINGS | _local_settings(memory_gib, rows)
    settings = settings if master is None else settings | {"spark.master": master}
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if not remote:
        session.sparkContext.setLogLevel("ERROR" if elsewhere else "FATAL")  # here, what fails is raised and told
    return session


QUERY_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # One run of a sweep is small, one run of a benchmark is large: let the data decide how many tasks a shuffle gets.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
    # Files are given one by one: to look at them takes no job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
    # Else each part of a query tells Java the line of Python that made it, which takes as long as to make it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # What is limited here is small as a whole: look at all of it at once, and not at one partition first.
    "spark.sql.limit.initialNumPartitions": "1000",
}


def _local_settings(memory_gib: int | None, rows: int | None) -> dict[str, str]:
    quiet = Path(__file__).with_name("log4j2.properties")
    short = rows is not None and rows <= SMALL_ROWS
    return {
        "spark.master": "local[*]",
        "spark.driver.memory": f"{memory_gib or _default_memory_gib()}g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet.as_uri()}{QUICK if short else ''}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # All checks together take several hundred pieces of generated code; beyond 100, Spark would forget and compile
        # them again.
        "spark.sql.codegen.cache.maxEntries": "2000",
        **settings_by_size(rows),
    }


def settings_by_size(rows: int | None) -> dict[str, str]:
    """What suits traces of about so many rows on this machine; all of it can be set in a session that is active."""
    cores = os.cpu_count() or 1
    short = rows is not None and rows <= SMALL_ROWS
    tiny = rows is not None and rows <= TINY_ROWS
    return {
        "spark.sql.shuffle.partitions": str(1 if tiny else cores if short else 8 * cores),
        "spark.sql.adaptive.enabled": str(not short).lower(),
        "spark.sql.codegen.wholeStage": str(not tiny).lower(),
        "spark.sql.codegen.factoryMode": "NO_CODEGEN" if tiny else "FALLBACK",
    }


def _default_memory_gib() -> int:
    """A quarter of the machine, within 1 to 8: Spark spills to disk long before that hurts."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    return int(min(8, max(1, total // 4)))


def is_remote(master: str) -> bool:
    """Whether tasks run elsewhere than in this machine's own Java."""
    return not re.fullmatch(r"local(\[[\d*, ]+\])?", master)


def _master_is_chosen() -> bool:
    """Whether spark-submit or the environment already says where to run."""
    if "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return True
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return False
    from pyspark import SparkConf

    return bool(SparkConf().contains("spark.master"))


def no_pyspark() -> str:
    """How to get what is missing: for a clone by its own name, elsewhere by the names of the packages."""
    clone = Path(__file__).parents[3]
    if (clone / "pyproject.toml").is_file():
        wanted = f"-e '{clone}[spark]'"
    else:
        of_spark = [found for found in requires("antiphon") or () if "extra == 'spark'" in found]
        wanted = " ".join(f"'{found.partition(';')[0].strip()}'" for found in of_spark)
    return f"This needs Spark's Python packages: {sys.executable} -m pip install {wanted}"


def _need_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        raise UsageError(NO_JAVA)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found.group(1)) < OLDEST_JAVA:
        raise UsageError(NO_JAVA)
