"""A standalone Spark cluster, and a Spark Connect server, from pyspark itself: on this machine, small, and soon gone.

The workers' Python has everything but this package: what they know of it came with the job.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

HOME = Path(pyspark.__path__[0])
HERE = "127.0.0.1"
PR_SET_PDEATHSIG = 1
WORKERS = 2
LIMIT_SECONDS = 600.0  # for anything: a machine may be busy
# One second is enough to see that an executor is gone, and for so few rows no code need be compiled. `viewfs` is a file
# system of which Python knows nothing: what is read through it, Spark has read.
DEFAULTS = """
spark.executor.memory 512m
spark.driver.memory 600m
spark.driver.host 127.0.0.1
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.executor.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
spark.ui.enabled false
spark.eventLog.enabled true
spark.eventLog.rolling.enabled false
spark.eventLog.compress false
spark.eventLog.dir file://{folder}/happened
spark.sql.shuffle.partitions 2
spark.sql.codegen.wholeStage false
spark.sql.codegen.factoryMode NO_CODEGEN
spark.shuffle.io.maxRetries 1
spark.shuffle.io.retryWait 1s
spark.hadoop.fs.viewfs.mounttable.all.link./here file://{folder}
"""


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Daemon:
    """One of Spark's own servers; it leads a process group of its own, in which its executors are, too."""

    def __init__(self, folder: Path, *words: str, says: str, **settings: str) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._log, self._says = folder / "log", says
        kept = {key: os.environ[key] for key in ("PATH", "JAVA_HOME", "HOME", "LANG") if key in os.environ}
        small = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        env = {**kept, **small, "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": HERE, **settings}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [HOME / "bin" / "spark-class", *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**env, "SPARK_LOCAL_DIRS": str(folder / "local")},
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # nothing else runs in this process then
            )

    def said(self) -> str:
        """What a line of its log names, once the server is there."""
        wait_until(lambda: self._found() is not None or self._process.poll() is not None)
        found = self._found()
        if found is None:
            raise RuntimeError(f"Spark did not start: {self._log.read_text(errors='replace')[-2_000:]}")
        return found[1]

    def _found(self) -> re.Match[str] | None:
        return re.search(self._says, self._log.read_text(errors="replace"))

    def kill(self) -> None:
        """As kill -9 does it, with all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Cluster:
    """A master and two workers, of one core each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = python_without_antiphon(folder)
        conf = folder / "conf"
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text(DEFAULTS.format(folder=folder))
        (folder / "happened").mkdir()
        self._daemons: list[Daemon] = []
        master = "org.apache.spark.deploy.master.Master"
        ports = ("--host", HERE, "--port", "0", "--webui-port", "0")
        self.master = self._start("master", master, *ports, says=r"Starting Spark master at (spark://\S+)").said()
        self.workers = [self._worker() for _ in range(WORKERS)]
        for worker in self.workers:
            worker.said()

    def _start(self, name: str, *words: str, says: str, **settings: str) -> Daemon:
        daemon = Daemon(self.folder / f"{len(self._daemons)}-{name}", *words, says=says, **settings)
        self._daemons.append(daemon)
        return daemon

    def _worker(self) -> Daemon:
        size = ("--host", HERE, "--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "1g")
        place = ("--work-dir", str(self.folder / "work"))  # else in pyspark's own folder
        words = ("org.apache.spark.deploy.worker.Worker", *size, *place, self.master)
        return self._start("worker", *words, says="Successfully registered with master (\\S+)")

    def kill_worker(self) -> None:
        """Kill one with all that it holds."""
        self.workers.pop(0).kill()

    def refill(self) -> None:
        """Let others take the place of those that were killed."""
        while len(self.workers) < WORKERS:
            self.workers.append(self._worker())
            self.workers[-1].said()

    def connect_server(self) -> str:
        """The address of a Spark Connect server with executors of its own."""
        port = {"spark.connect.grpc.binding.port": "0", "spark.connect.grpc.binding.address": HERE}
        conf = [word for key, value in port.items() for word in ("--conf", f"{key}={value}")]
        main = "org.apache.spark.sql.connect.service.SparkConnectServer"
        words = (
            "org.apache.spark.deploy.SparkSubmit",
            "--class",
            main,
            "--master",
            "local[1]",
            *conf,
            "spark-internal",
        )
        own = {"PYSPARK_PYTHON": str(self.python), "SPARK_CONF_DIR": str(self.folder / "conf")}
        says = r"Connect server started at: \S*?:(\d+)"
        return f"sc://{HERE}:{self._start('connect', *words, says=says, **own, SPARK_DAEMON_MEMORY='768m').said()}"

    def address(self, folder: Path) -> str:
        """Of a folder below the cluster's own, by the file system that only Spark knows."""
        return f"viewfs://all/here/{folder.relative_to(self.folder)}"

    def start_command(self, *words: object) -> subprocess.Popen[str]:
        """`antiphon`, as one types it; the workers' Python is the one without this package."""
        own = {"PYSPARK_PYTHON": str(self.python), "SPARK_CONF_DIR": str(self.folder / "conf"), "SPARK_LOCAL_IP": HERE}
        return subprocess.Popen(
            [sys.executable, "-m", "antiphon", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=os.environ | own,
        )

    def run(self, *words: object) -> Ended:
        return end_of(self.start_command(*words))

    def happened(self) -> list[str]:
        """What happened in the last job, one after the other, as Spark names it."""
        log = max((self.folder / "happened").iterdir(), key=lambda file: file.stat().st_mtime)
        return [json.loads(line)["Event"] for line in log.read_text().splitlines()]

    def stop(self) -> None:
        for daemon in self._daemons:
            daemon.kill()


def die_with_parent() -> None:
    """Whoever ends the tests with kill -9 ends Spark, too."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def python_without_antiphon(folder: Path) -> Path:
    """A Python like ours, in which this package cannot be imported."""
    site = folder / "site"
    site.mkdir()
    for installed in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if installed.suffix != ".pth" and "antiphon" not in installed.name:
            (site / installed.name).symlink_to(installed)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}:$PYTHONPATH" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


def end_of(process: subprocess.Popen[str]) -> Ended:
    try:
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    finally:
        process.kill()
    return Ended(process.returncode, out, err)


def wait_until(condition: Callable[[], bool]) -> None:
    last = time.monotonic() + LIMIT_SECONDS
    while not condition():
        if time.monotonic() > last:
            raise TimeoutError("It did not come to that.")
        time.sleep(0.02)
