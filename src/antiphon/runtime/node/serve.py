"""A process of its own for a node: its signals, its exit code, its last words."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from antiphon.core import ProcessId
from antiphon.core.errors import AntiphonError, JournalBehind, JournalError, JournalFull
from antiphon.runtime.cluster import ClusterConfig, ClusterFolder
from antiphon.runtime.node.ending import EXIT_DISK, EXIT_REFUSED, EXIT_USAGE, tell
from antiphon.runtime.node.node import ClusterNode

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(folder: Path, name: str) -> int:
    """Run one process of a cluster in the foreground; returns its exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # for all threads that are started from now on
    return _run(folder, name, _serve, ClusterConfig.known)


def salvage_trace(folder: Path, name: str) -> int:
    """Write what a killed process saw and did but did not get to write: its journal has all of it."""
    return _run(folder, name, _salvage, lambda config, process: ProcessId(process))  # also where it was replaced


def _run(
    folder: Path,
    name: str,
    work: Callable[[ClusterFolder, ProcessId], Coroutine[Any, Any, int]],
    known: Callable[[ClusterConfig, str], ProcessId],
) -> int:
    import uvloop

    try:
        cluster = ClusterFolder.load(folder)
        me = known(cluster.config, name)
        with cluster.process(me).lock(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work(cluster, me))
    except JournalFull as error:
        tell(f"{name} cannot start: {error}")
        return EXIT_DISK
    except JournalError as error:
        tell(f"{name} stops: {error}")
        return EXIT_REFUSED
    except AntiphonError as error:
        tell(f"{name} stops: {error}")
        return EXIT_USAGE
    except OSError as error:
        tell(f"{name} cannot start: {error.strerror or error}{f' ({error.filename})' if error.filename else ''}.")
        return EXIT_DISK


async def _serve(cluster: ClusterFolder, me: ProcessId) -> int:
    opened: list[ClusterNode] = []
    _stop_on_signals(opened)
    opened.append(ClusterNode(cluster, me))
    return await opened[0].run()


def _stop_on_signals(opened: list[ClusterNode]) -> None:
    """Signals are heard by a thread of their own, also while a disk holds up the event loop."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        number = signal.sigwait(_SIGNALS)
        if not opened:
            os._exit(128 + number)  # its files are being opened, and nothing was taken
        node = opened[0]
        node.end_in_time()
        with suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(node.stop)

    threading.Thread(target=wait, name="signals", daemon=True).start()


async def _salvage(cluster: ClusterFolder, me: ProcessId) -> int:
    driver = ClusterNode(cluster, me).driver
    try:
        driver.recover()
        if not driver.observer.is_of_this_life:
            raise JournalBehind("Its journal does not have what stands in its trace, and cannot complete that.")
        if not driver.observer.finish():
            raise JournalFull("There is no room for the trace.")
    finally:
        driver.abandon()
    return 0
