"""A process of a cluster as one of this machine's: how it is started, and what the system knows of it."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path
from typing import NamedTuple

from antiphon.core import ProcessId
from antiphon.runtime.cluster.folder import ClusterFolder


class Spawned(NamedTuple):
    """A process that was just started, and how long its log was before: what it says itself comes behind that."""

    pid: int
    logged: int


def spawn(folder: ClusterFolder, process: ProcessId) -> Spawned:
    """A process of its own session, that outlives us."""
    own = folder.process(process)
    own.path.mkdir(parents=True, exist_ok=True)
    own.log.open("ab").close()  # OSError names it; what the child meets when it opens it would name the program
    logged = own.log.stat().st_size
    log = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        sys.executable,
        command(folder, process),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(own.log), log, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return Spawned(pid, logged)


def command(folder: ClusterFolder, process: ProcessId) -> list[str]:
    return [sys.executable, "-m", "antiphon.runtime.node", "--dir", str(folder.path.resolve()), "--process", process]


def starved_seconds(pid: int) -> float:
    """How long a process could have run, but others had the processor: a busy machine is no fault of the process."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):  # it has ended, or the kernel does not say
        return 0.0


def reap(pid: int) -> int | None:
    """The exit code of an ended child of ours; None while it runs, or when it is not our child."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if done else None


def has_ended(pid: int) -> bool:
    """Whether a process has closed all it had. Its lock goes first: one started then could find its address taken."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        watched = select.poll()
        watched.register(handle, select.POLLIN)
        return bool(watched.poll(0))
    finally:
        os.close(handle)
