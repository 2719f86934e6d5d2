"""What attacks on real processes once broke: disks that fail or fill, readers that stall, crowds, old copies."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import antiphon
from antiphon.checks import check_run
from antiphon.core import ProcessId
from antiphon.core.channel import NUMBERED
from antiphon.core.errors import Unavailable, UsageError
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder, ask, processes
from antiphon.runtime.net.frames import MAGIC, VERSION, ChannelMarks, FrameKind, Hello, Subscribe, Welcome, encode
from antiphon.runtime.node import Node, links
from antiphon.runtime.node import node as node_module
from antiphon.runtime.node.driver import EXIT_DISK
from antiphon.trace import read_facts
from antiphon.trace.parquet import read_rows

MakeCluster = Callable[..., ClusterFolder]


def send(folder: ClusterFolder, count: int, groups: tuple[str, ...] = ("a",), size: int = 50) -> None:
    async def run() -> None:
        async with antiphon.connect(folder.path) as client:
            await asyncio.gather(*(client.multicast(groups, bytes(size), timeout=20) for _ in range(count)))

    asyncio.run(run())


def ends(pid: int, seconds: float = 10.0) -> int | None:
    """The exit code of a child of this process, when it has ended in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    return None


def pid_of(folder: ClusterFolder, process: str) -> int:
    pid = folder.process(process).pid()
    assert pid is not None
    return pid


@contextmanager
def nothing_can_be_written(pid: int = 0) -> Iterator[None]:
    """No file may grow, or be written to at all, by a process or the children that it starts meanwhile."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


# Disks --------------------------------------------------------------------------------------------------------------


def test_a_process_whose_disk_fails_ends_and_the_others_go_on(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 3}, protocol="tom")
    send(folder, 20)
    pid = pid_of(folder, "a.2")
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    send(folder, 20)  # a majority lives
    assert ends(pid) == EXIT_DISK
    send(folder, 20)
    assert folder.process("a.2").pid() is None
    cluster.start(folder)
    assert cluster.wait_idle(folder, 20)
    assert [status.delivered for status in cluster.statuses(folder).values() if status is not None] == [60] * 3


def test_a_signal_ends_a_process_whose_disk_can_take_nothing(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 1}, trace=True)
    send(folder, 20)
    pid = pid_of(folder, "a.1")
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    os.kill(pid, signal.SIGTERM)
    assert ends(pid) == EXIT_DISK
    assert not folder.process("a.1").stopped_cleanly
    cluster.start(folder)
    send(folder, 5)
    assert cluster.stop(folder)


HANGS = """
import os, sys, threading, time
from pathlib import Path
from antiphon.runtime.node import node, serve
node.STOP_SECONDS = node.CLOSE_SECONDS = 0.3
sync, syncs = os.fdatasync, []
def hang(fd):
    syncs.append(fd)
    if len(syncs) > 3:
        time.sleep(3600)
    sync(fd)
os.fdatasync = hang
sys.exit(serve(Path(sys.argv[1]), "a.1"))
"""


def test_a_disk_that_hangs_does_not_keep_a_process_alive_that_was_told_to_end(tmp_path: Path) -> None:
    folder = cluster.create(tmp_path / "c", {"a": 1}, trace=False, segment_bytes=1 << 20)
    node = subprocess.Popen([sys.executable, "-c", HANGS, str(folder.path)])
    try:
        deadline = time.monotonic() + 20
        while ask(folder.config, "a.1") is None and time.monotonic() < deadline:
            time.sleep(0.05)
        with pytest.raises(Exception, match="unknown"):
            asyncio.run(_send_until_it_hangs(folder))
        node.send_signal(signal.SIGTERM)
        assert node.wait(10) == EXIT_DISK
    finally:
        node.kill()
        node.wait()


async def _send_until_it_hangs(folder: ClusterFolder) -> None:
    async with antiphon.connect(folder.path) as client:
        for _ in range(10):
            await client.multicast("a", b"x", timeout=1)


def test_a_start_where_nothing_can_be_written_is_one_sentence(tmp_path: Path) -> None:
    folder = cluster.create(tmp_path / "c", {"a": 2}, trace=False)
    with nothing_can_be_written(), pytest.raises(Unavailable) as failure:
        cluster.start(folder)
    sentence = str(failure.value)
    assert sentence.startswith("a.1 did not start: it ended with exit code 4 and could not write why")
    assert "a.2 did not start" in sentence, "all that failed are named"
    cluster.start(folder)
    assert cluster.stop(folder)


def test_a_start_that_fails_says_why_for_each_process(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 2})
    send(folder, 5)
    assert cluster.stop(folder)
    for process in ("a.1", "a.2"):
        shutil.rmtree(folder.process(process).journal)
    with pytest.raises(Unavailable) as failure:
        cluster.start(folder)
    why = "once delivered 5 messages, but its journal knows of only 0: it was cut, or is an old copy."
    assert str(failure.value) == f"a.1 did not start: a.1 {why} a.2 did not start: a.2 {why}"


def test_why_a_process_does_not_start_is_not_what_an_earlier_life_said(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 1})
    assert cluster.stop(folder)
    with nothing_can_be_written(), pytest.raises(Unavailable) as failure:
        cluster.start(folder)
    silent = "it ended with exit code 4 and could not write why, as on a disk that is full or read-only"
    assert str(failure.value) == f"a.1 did not start: {silent}."


def test_only_a_process_whose_disk_failed_is_said_to_lack_room_for_its_reason() -> None:
    process = ProcessId("a.1")
    assert processes._why(process, "", EXIT_DISK).endswith(
        "could not write why, as on a disk that is full or read-only"
    )
    assert processes._why(process, "", 1) == "it ended with exit code 1 and did not say why"
    assert processes._why(process, "", -signal.SIGKILL) == "it was ended by signal 9"
    assert processes._why(process, "a.1 stops: Its port is taken.", 2) == "Its port is taken"


@pytest.mark.parametrize("content", ["", "not a number"])
def test_a_lost_incarnation_does_not_keep_an_intact_process_out(make_cluster: MakeCluster, content: str) -> None:
    folder = make_cluster({"a": 2})
    send(folder, 5)
    cluster.kill(folder, "a.2")
    (folder.process("a.2").path / "incarnation").write_text(content)
    cluster.start(folder)
    send(folder, 5)
    assert cluster.wait_idle(folder, 10)
    cluster.kill(folder, "a.2")
    cluster.start(folder)
    send(folder, 5)
    assert cluster.stop(folder)


# Traces -------------------------------------------------------------------------------------------------------------


def block_trace(folder: ClusterFolder) -> Path:
    """Let no file of the trace be written."""
    events = folder.trace / "events"
    events.mkdir(parents=True, exist_ok=True)
    blocked = events / f"run={folder.config.run}"
    if blocked.exists():
        blocked.rename(folder.path / "kept")
    blocked.write_text("in the way")
    return blocked


def unblock_trace(folder: ClusterFolder, blocked: Path) -> None:
    blocked.unlink()
    kept = folder.path / "kept"
    if kept.exists():
        kept.rename(blocked)


def test_a_trace_without_room_at_the_stop_is_incomplete_and_blames_nobody(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 1, "b": 1}, trace=True)
    send(folder, 20, ("a", "b"))
    assert cluster.wait_idle(folder, 10)
    blocked = block_trace(folder)
    assert not cluster.stop(folder), "not everything is known to be well"
    assert cluster.untraced(folder) == ["a.1", "b.1"]
    (facts,) = read_facts(folder.trace)
    assert facts.incomplete == ["a.1", "b.1"]
    unblock_trace(folder, blocked)
    cluster.stop(folder)  # there is room now: the journals have it all
    assert cluster.untraced(folder) == []
    (facts,) = read_facts(folder.trace)
    assert check_run(facts, read_rows(folder.trace, facts.run)) == []


@pytest.mark.parametrize("whose", ["the processes", "the command"])
def test_down_says_what_a_trace_without_room_lacks(make_cluster: MakeCluster, whose: str) -> None:
    """Everything was delivered: only the trace of it is not whole, and the exit code says that not all is well."""
    folder = make_cluster({"a": 1, "b": 1}, trace=True)
    send(folder, 20, ("a", "b"))
    assert cluster.wait_idle(folder, 10)
    command = [sys.executable, "-m", "antiphon", "down", "--dir", str(folder.path)]
    if whose == "the processes":
        block_trace(folder)
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    else:
        with nothing_can_be_written():  # those who run already may
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines() == [
        "2 of 2 processes ended; everything was delivered.",
        "The trace is incomplete: a part of what a.1, b.1 saw could not be written.",
    ]
    assert ended.stderr == ""
    assert ended.returncode == 1
    (facts,) = read_facts(folder.trace)
    assert facts.incomplete == ["a.1", "b.1"]
    assert not facts.drained


def test_a_trace_without_room_does_not_keep_a_process_from_returning(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 2}, trace=True)
    send(folder, 5)
    assert cluster.stop(folder)
    (facts,) = read_facts(folder.trace)
    assert facts.drained
    runs = folder.trace / "runs"
    (runs / f".{folder.config.run}.json.tmp").mkdir()  # where the new facts would be written
    cluster.start(folder)
    assert not list(runs.glob("*.json")), "the old ones would say that all is known"
    send(folder, 5)
    cluster.stop(folder)


# Old copies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["tom", "skeen"])
def test_an_old_copy_gives_no_receipt_before_a_peer_contradicts_it(make_cluster: MakeCluster, protocol: str) -> None:
    folder = make_cluster({"a": 3}, protocol=protocol)
    send(folder, 20)
    assert cluster.wait_idle(folder, 10)
    cluster.kill(folder, "a.3")
    own = folder.process("a.3").path
    shutil.copytree(own, folder.path / "copy")
    cluster.start(folder)
    send(folder, 100)
    assert cluster.wait_idle(folder, 10)
    for process in folder.config.processes:
        cluster.kill(folder, process)
    shutil.rmtree(own)
    shutil.move(folder.path / "copy", own)
    cluster.start(folder, ["a.3"])
    status = ask(folder.config, "a.3")
    assert status is not None
    assert status.returning == ["a.1", "a.2"]

    async def alone() -> None:
        async with antiphon.connect(folder.config.addresses["a.3"]) as client:
            await client.multicast("a", b"x", timeout=1)

    with pytest.raises(Unavailable, match="It was not multicast to a in time"):
        asyncio.run(alone())
    pid = pid_of(folder, "a.3")
    cluster.start(folder, ["a.1", "a.2"])
    assert ends(pid) == 3
    assert "old copy" in folder.process("a.3").last_words()


def test_an_empty_folder_is_an_old_copy_too(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 3})
    send(folder, 20)
    assert cluster.wait_idle(folder, 10)
    for process in folder.config.processes:
        cluster.kill(folder, process)
    shutil.rmtree(folder.process("a.3").path)
    cluster.start(folder, ["a.3"])
    pid = pid_of(folder, "a.3")
    cluster.start(folder, ["a.1", "a.2"])
    assert ends(pid) == 3
    send(folder, 5)


# Crowds -------------------------------------------------------------------------------------------------------------


def subscribe_and_stall(folder: ClusterFolder, process: str, name: str, start: int = 0) -> socket.socket:
    """A reader that asks for everything from a position on, and reads nothing."""
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    caller.settimeout(10)
    caller.connect(folder.config.address(process))
    caller.sendall(encode(FrameKind.HELLO, Hello(MAGIC, VERSION, "", "client", name)))
    caller.recv(1)
    caller.sendall(encode(FrameKind.SUBSCRIBE, Subscribe("a", start)))
    return caller


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def test_stalled_readers_harm_nobody(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 2})
    send(folder, 300, size=64 << 10)  # more than is kept in memory for readers
    assert cluster.wait_idle(folder, 20)
    pid = pid_of(folder, "a.1")
    before, files = resident_mib(pid), open_files(pid)
    grown: list[float] = []
    for crowd in ("first", "second"):
        # Each begins elsewhere: what waits for one of them waits for no other.
        stalled = [subscribe_and_stall(folder, "a.1", f"{crowd}{start}", start) for start in range(150)]
        try:
            send(folder, 20)
            if crowd == "first":
                cluster.kill(folder, "a.2")
                cluster.start(folder)
                send(folder, 20)
            assert cluster.wait_idle(folder, 20)
            assert open_files(pid) < files + len(stalled) + 40, "files are shared"
            grown.append(resident_mib(pid) - before)
        finally:
            for reader in stalled:
                reader.close()
        deadline = time.monotonic() + 10
        while open_files(pid) > files + 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert open_files(pid) <= files + 5, "and come back"
    assert grown[0] < 150 * 0.3, "a few hundred kilobytes for each"
    assert grown[1] < grown[0] + 10, "that were given back, for others to use"


def test_a_crowd_of_clients_connects_by_address(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 2})
    addresses = ",".join(folder.config.addresses.values())

    async def one() -> None:
        async with antiphon.connect(addresses) as client:
            await client.multicast("a", b"x", timeout=30)

    async def crowd() -> None:
        await asyncio.gather(*(one() for _ in range(1000)))

    asyncio.run(crowd())
    assert cluster.wait_idle(folder, 20)
    assert [status.delivered for status in cluster.statuses(folder).values() if status is not None] == [1000, 1000]


# Links --------------------------------------------------------------------------------------------------------------


def test_a_connection_that_is_open_but_passes_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a.2's address is somebody who welcomes, and never takes, acknowledges or says anything again."""
    monkeypatch.setattr(links, "PEER_SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(node_module, "HEARTBEAT_SECONDS", 0.05)
    folder = cluster.create(tmp_path / "c", {"a": 2}, trace=False, segment_bytes=1 << 16)
    folder.process("a.1").path.mkdir()
    calls = 0
    writers: list[asyncio.StreamWriter] = []

    async def welcome_and_fall_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        writers.append(writer)
        writer.write(encode(FrameKind.WELCOME, Welcome("a.2", 1, [ChannelMarks(t, 0, 0, 0) for t in NUMBERED])))

    async def run() -> None:
        server = await asyncio.start_server(welcome_and_fall_silent, *folder.config.address("a.2"))
        node = Node(folder, folder.config.known("a.1"))
        running = asyncio.create_task(node.run())
        async with antiphon.connect(folder.path) as client:
            await client.multicast("a", b"for a.2 too", timeout=5)
            async with asyncio.timeout(10):
                while calls < 3:
                    await asyncio.sleep(0.02)
        monkeypatch.setattr(node_module, "STOP_SECONDS", 0.1)
        node.stop()
        assert await running == 0
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0.05)

    asyncio.run(run())


# Commands -----------------------------------------------------------------------------------------------------------


def test_a_cluster_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with nothing_can_be_written(), pytest.raises(UsageError, match="cannot be written"):
        cluster.create(path, {"a": 1})
    with pytest.raises(UsageError, match="is not a valid run name"):
        cluster.create(path, {"a": 1}, run="../evil")
    cluster.create(path, {"a": 1})  # there is nothing in the way


def test_two_downs_at_the_same_time_agree(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 2}, trace=True)
    send(folder, 10)
    command = [sys.executable, "-m", "antiphon", "down", "--dir", str(folder.path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    assert sorted(each.communicate(timeout=60)[0].decode().strip() for each in both) == [
        "2 of 2 processes ended; everything was delivered.",
        "Nothing was running.",
    ]
    (facts,) = read_facts(folder.trace)
    assert facts.drained
