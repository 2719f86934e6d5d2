"""What is done on the disk beside the event loop, one job after the other: nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from antiphon.runtime.disk.watch import JOB_SECONDS_MAX, UnderWay


class DiskJobs:
    """One thread. The event loop hears of each job: ``on_done``, or ``on_failed`` with what it has raised."""

    def __init__(self, on_done: Callable[[], None], on_failed: Callable[[BaseException], None]) -> None:
        self.under_way = UnderWay(JOB_SECONDS_MAX)
        self.is_stopped = False
        self._on_done = on_done
        self._on_failed = on_failed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="disk")

    def submit(self, job: Callable[[], object], then: Callable[[], None] | None = None) -> None:
        """Run a job after those submitted before; and ``then`` another on the event loop, if it went well."""
        loop = asyncio.get_running_loop()

        def run() -> None:
            with self.under_way:
                job()

        future = self._thread.submit(run)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(self._done, done, then))

    def stop(self) -> None:
        """Whatever becomes of those that were submitted, nobody is to hear of it."""
        self.is_stopped = True

    def close(self) -> None:
        """Wait until all are done."""
        self.stop()
        self._thread.shutdown(wait=True)

    def _done(self, done: Future[None], then: Callable[[], None] | None) -> None:
        error = done.exception()
        if self.is_stopped:
            return
        if error is not None:
            self._on_failed(error)
            return
        if then is not None:
            then()
        self._on_done()
