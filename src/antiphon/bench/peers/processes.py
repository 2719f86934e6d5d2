"""Others' servers, as processes of ours that end with us."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from antiphon.core.errors import Unavailable

PEER_START_SECONDS = 30.0
PEER_STOP_SECONDS = 1.0  # what they keep is thrown away


def not_on_path(program: str, package: str) -> str | None:
    """Why a program cannot be started, if it cannot."""
    return None if shutil.which(program) else f"{program} is not on the PATH (on Debian: apt-get install {package})"


@contextmanager
def servers(folder: Path, commands: Mapping[str, Sequence[str]], is_ready: Callable[[], bool]) -> Iterator[None]:
    """Run commands, each with a log file of its name, from when they are ready until the block is left."""
    started: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            with (folder / f"{name}.log").open("wb") as log:
                # In a session of its own: Ctrl-C is for us, and we end it.
                started[name] = subprocess.Popen(
                    command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        _wait_until(is_ready, started, folder)
        yield
    finally:
        _stop(list(started.values()))


def _wait_until(is_ready: Callable[[], bool], started: Mapping[str, subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + PEER_START_SECONDS
    while not is_ready():
        for name, process in started.items():
            if process.poll() is not None:
                raise Unavailable(f"{name} did not start; the end of its log: {_last_line(folder / f'{name}.log')}")
        if time.monotonic() > deadline:
            name = next(iter(started))
            raise Unavailable(
                f"{name} was not ready after {PEER_START_SECONDS:.0f} seconds; the end of its log: "
                f"{_last_line(folder / f'{name}.log')}"
            )
        time.sleep(0.05)


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "nothing"


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + PEER_STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
