"""Ctrl-C: a command ends at once with exit code 130, says what it has done, and shows no traceback."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from antiphon import connect
from antiphon.runtime.cluster.spawning import starved_seconds
from conftest import MakeCluster
from waiting import IN_TIME_SECONDS

SECONDS = 5.0  # within which an interrupted command has ended; it took 8 and more
CTRL_C = b"\x03"

INTERRUPTED_WHILE_LOADING = """
import os, signal, sys
import antiphon.cli

class InterruptsAt:
    def __init__(self, module):
        self.module = module

    def find_spec(self, name, path=None, target=None):
        if name == self.module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, InterruptsAt(sys.argv.pop()))
antiphon.cli.main()
"""


def send(folder: Path, *more: str, stdin: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "antiphon", "send", "--dir", str(folder), "--to", "a", *more]
    return subprocess.Popen(
        command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def ends_soon(pid: int) -> bool:
    """Whether a child has ended before long, not counting the time in which others had the processor."""
    begun, starved = time.monotonic(), starved_seconds(pid)
    while time.monotonic() - begun - (starved_seconds(pid) - starved) < SECONDS:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return True
        time.sleep(0.02)
    return False


def interrupted(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """What it says after Ctrl-C, which it must obey soon."""
    process.send_signal(signal.SIGINT)
    try:
        assert ends_soon(process.pid)
        out, err = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 130
    assert b"Traceback" not in err
    return out.decode(), err.decode()


def wait_for_deliveries(folder: Path, count: int) -> None:
    async def read() -> None:
        async with connect(folder) as client, asyncio.timeout(IN_TIME_SECONDS):
            async for delivery in client.subscribe("a"):
                if delivery.position + 1 == count:
                    return

    asyncio.run(read())


def told_of(said: str) -> int:
    """Of how many messages a sentence tells. A message may be delivered before its receipt has come."""
    found = re.search(r"(\d+) messages? accepted(?:; up to (\d+) more may have been)?", said)
    assert found is not None, said
    return sum(int(number or 0) for number in found.groups())


def test_on_a_pipe_what_was_accepted_so_far_is_told(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 1})
    process = send(folder.path, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\nthree\nand the begin of a fo")
    process.stdin.flush()
    wait_for_deliveries(folder.path, 3)
    out, err = interrupted(process)
    assert (out, told_of(err)) == ("", 3)

    process = send(folder.path, "--json", stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"four\n")
    process.stdin.flush()
    wait_for_deliveries(folder.path, 4)
    out, err = interrupted(process)
    told = json.loads(out)
    assert (told["accepted"] + told["unknown"], len(told["messages"]), err) == (1, told["accepted"], "")


def test_on_a_terminal_the_command_ends_at_once(make_cluster: MakeCluster) -> None:
    """Nobody types anything more: the read that waits for the terminal must not hold the command up."""
    folder = make_cluster({"a": 1})
    pid, terminal = pty.fork()
    if pid == 0:
        command = [sys.executable, "-m", "antiphon", "send", "--dir", str(folder.path), "--to", "a"]
        os.execv(sys.executable, command)
    try:
        os.write(terminal, b"typed\n")
        wait_for_deliveries(folder.path, 1)
        os.write(terminal, CTRL_C)
        assert ends_soon(pid)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
        shown = os.read(terminal, 4096).decode()
        assert told_of(shown) == 1
        assert "Traceback" not in shown
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.close(terminal)


def test_what_is_accepted_before_a_failure_is_told_too(make_cluster: MakeCluster) -> None:
    """The third line is too long for a payload."""
    folder = make_cluster({"a": 1})
    process = send(folder.path, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\n")
    process.stdin.flush()
    wait_for_deliveries(folder.path, 2)
    out, err = process.communicate(b"x" * ((1 << 20) + 1))
    first, second = err.decode().splitlines()
    assert (process.returncode, out, told_of(first)) == (2, b"", 2)
    assert re.match("antiphon: .*1048577", second)


@pytest.mark.parametrize(
    ("module", "command"),
    [("antiphon.cli.app", "--version"), ("msgspec", "send"), ("antiphon.simulation", "simulate")],
)
def test_while_the_commands_are_loaded_nothing_is_printed(module: str, command: str) -> None:
    program = [sys.executable, "-c", INTERRUPTED_WHILE_LOADING, command, module]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_entry_point_loads_nothing() -> None:
    """What is loaded before `main` can set a handler prints a traceback when it is interrupted."""
    code = (
        "import sys, antiphon.cli; print(sorted({name.partition('.')[0] for name in sys.modules} & set(sys.argv[1:])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "typer", "rich", "msgspec", "pyarrow", "asyncio"], capture_output=True, check=True
    )
    assert done.stdout == b"[]\n"
