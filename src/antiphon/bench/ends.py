"""The processes at both ends of a load: started together, told when to begin, asked what they saw."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple, TypeVar

import msgspec

from antiphon.bench.task import WorkerReport, WorkerTask
from antiphon.core.errors import Unavailable

WARM_UP_SECONDS = 1.5  # until the load is steady
GRACE_SECONDS = 30.0
_RUN = "from antiphon.bench.worker import main; main()"
WatchedValue = TypeVar("WatchedValue")


class BothEnds(NamedTuple):
    client: WorkerReport
    readers: list[WorkerReport]

    @property
    def slowest(self) -> WorkerReport:
        return min(self.readers, key=lambda report: report.payloads)


def load(
    client: WorkerTask, readers: Sequence[WorkerTask], watch: Callable[[float], WatchedValue]
) -> tuple[BothEnds, WatchedValue]:
    """Run both ends, and ``watch`` meanwhile, which is told when what is measured begins."""
    with ExitStack() as stack:
        workers = []
        for task in (client, *readers):
            workers.append(stack.enter_context(_spawn(task)))
            stack.callback(workers[-1].kill)
        begin = _begin(workers)
        watched = watch(begin)
        reports = [_report(worker, client.seconds) for worker in workers]
    ends = BothEnds(reports[0], reports[1:])
    if not ends.slowest.payloads:
        raise Unavailable("Nothing was delivered in the time that was measured.")
    return ends, watched


def _spawn(task: WorkerTask) -> subprocess.Popen[bytes]:
    argument = msgspec.json.encode(task).decode()
    return subprocess.Popen([sys.executable, "-c", _RUN, argument], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _begin(workers: Sequence[subprocess.Popen[bytes]]) -> float:
    """Wait until all are ready, and tell them when what is measured begins."""
    for worker in workers:
        assert worker.stdout is not None
        if not worker.stdout.readline():
            raise Unavailable("A worker of the benchmark failed; what it printed is above.")
    begin = time.monotonic() + WARM_UP_SECONDS
    for worker in workers:
        assert worker.stdin is not None
        with suppress(BrokenPipeError):  # it has failed: its report will be missing
            worker.stdin.write(f"{begin}\n".encode())
            worker.stdin.flush()
    return begin


def _report(worker: subprocess.Popen[bytes], seconds: float) -> WorkerReport:
    try:
        out, _ = worker.communicate(timeout=seconds + WARM_UP_SECONDS + GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        raise Unavailable("What was sent was not finished in time.") from None
    if worker.returncode != 0 or not out:
        raise Unavailable("A worker of the benchmark failed; what it printed is above.")
    report = msgspec.json.decode(out.splitlines()[-1], type=WorkerReport)
    if report.failure is not None:
        raise Unavailable(report.failure)
    return report
