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
from antiphon.cli.status import status_command
from antiphon.core import Process, ProcessId, Topology
from antiphon.core.channel import NO_FRAMES, NUMBERED
from antiphon.core.errors import OutcomeUnknown, Unavailable, UsageError
from antiphon.protocols import protocol_named
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder, ask, processes
from antiphon.runtime.disk import DiskWatch, UnderWay
from antiphon.runtime.disk.watch import LOOK_SECONDS
from antiphon.runtime.net.frames import MAGIC, VERSION, ChannelMarks, FrameKind, Hello, Subscribe, Welcome, encode
from antiphon.runtime.node import ClusterNode, company, links
from antiphon.runtime.node import node as node_module
from antiphon.runtime.node.company import awaited
from antiphon.runtime.node.ending import EXIT_DISK, EXIT_REFUSED
from antiphon.trace import read_facts
from antiphon.trace.parquet import read_rows
from waiting import IN_TIME_SECONDS, becomes

MakeCluster = Callable[..., ClusterFolder]


def send(folder: ClusterFolder, count: int, groups: tuple[str, ...] = ("a",), size: int = 50) -> None:
    async def run() -> None:
        async with antiphon.connect(folder.path) as client:
            await asyncio.gather(*(client.multicast(groups, bytes(size)) for _ in range(count)))

    asyncio.run(run())


def ends(pid: int, seconds: float = IN_TIME_SECONDS) -> int | None:
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
    assert cluster.wait_idle(folder, 60)
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
import os, sys, time
from pathlib import Path
from antiphon.runtime.disk import committer, files
from antiphon.runtime.node import node, serve
path, takes, ends_after = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
node.STOP_SECONDS = node.CLOSE_SECONDS = 0.3
committer.SYNC_SECONDS_MAX = files.SYNC_SECONDS_MAX = ends_after
sync = os.fdatasync
def hang(fd):
    while (path / "hang").exists():
        time.sleep(0.1)
    time.sleep(takes)
    sync(fd)
os.fdatasync = hang
sys.exit(serve(path, "a.1"))
"""


@contextmanager
def a_disk_that_may_hang(folder: ClusterFolder, takes: float, ends_after: float) -> Iterator[subprocess.Popen[str]]:
    """Runs a.1, of which each sync takes so long, and one never ends when there is a file ``hang``."""
    arguments = [str(folder.path), str(takes), str(ends_after)]
    node = subprocess.Popen([sys.executable, "-c", HANGS, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        assert becomes(lambda: ask(folder.config, "a.1") is not None)
        yield node
    finally:
        node.kill()
        node.communicate()


def delivered(folder: ClusterFolder, *processes: str) -> list[int]:
    return [status.delivered for process in processes if (status := ask(folder.config, process)) is not None]


def disk_seconds(folder: ClusterFolder) -> float:
    status = ask(folder.config, "a.1")
    assert status is not None
    return status.disk_seconds


def test_a_disk_that_hangs_does_not_keep_a_process_alive_that_was_told_to_end(tmp_path: Path) -> None:
    folder = cluster.create(tmp_path / "c", {"a": 1}, trace=False, segment_bytes=1 << 20)
    with a_disk_that_may_hang(folder, 0.0, 60.0) as node:
        send(folder, 1)
        with pytest.raises(OutcomeUnknown):
            asyncio.run(_send_when_it_hangs(folder))
        node.send_signal(signal.SIGTERM)
        assert node.wait(IN_TIME_SECONDS) == EXIT_DISK


@pytest.mark.parametrize("takes", [0.0, 0.05], ids=["on the loop", "on a thread"])
def test_a_process_whose_disk_hangs_ends(tmp_path: Path, takes: float) -> None:
    folder = cluster.create(tmp_path / "c", {"a": 1}, trace=False, segment_bytes=1 << 20)
    with a_disk_that_may_hang(folder, takes, 1.0) as node:
        send(folder, 3)
        with pytest.raises(OutcomeUnknown):
            asyncio.run(_send_when_it_hangs(folder))
        assert node.wait(IN_TIME_SECONDS) == EXIT_DISK
        assert node.stderr is not None
        assert node.stderr.read() == "a.1 stops: its disk has not answered for 1 seconds.\n"


def test_nobody_waits_for_a_process_whose_disk_hangs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not beat meanwhile: a majority goes on before it ends. When its disk answers, it goes on, too."""
    folder = cluster.create(tmp_path / "c", {"a": 3}, protocol="tom", trace=False, segment_bytes=1 << 20)
    with a_disk_that_may_hang(folder, 0.05, 60.0) as node:
        try:
            cluster.start(folder, ["a.2", "a.3"])
            send(folder, 3)
            assert becomes(lambda: delivered(folder, "a.1", "a.2", "a.3") == [3, 3, 3])
            (folder.path / "hang").touch()
            send(folder, 3)
            assert becomes(lambda: delivered(folder, "a.2", "a.3") == [6, 6]), "though a.1 could be the one that leads"
            assert delivered(folder, "a.1") == [3]
            assert becomes(lambda: disk_seconds(folder) > 2)
            monkeypatch.setenv("COLUMNS", "200")
            status_command(folder.path)
            shown = capsys.readouterr().out
            assert "yes, disk slow" in shown
            assert "a.1 has waited for its disk for " in shown
            (folder.path / "hang").unlink()
            assert becomes(lambda: delivered(folder, "a.1") == [6])
            assert node.poll() is None
        finally:
            for process in ("a.2", "a.3"):
                cluster.kill(folder, process)


def test_a_pause_is_not_taken_for_a_disk_that_hangs() -> None:
    sync = UnderWay(1.0)
    watch = DiskWatch(sync)
    with sync:
        watch.look()
        watch.look()  # after however long
        assert watch.seconds() == LOOK_SECONDS
        watch.look()
        assert watch.seconds() == 2 * LOOK_SECONDS
    with sync:  # another one
        watch.look()
        assert watch.seconds(sync) == 0
    watch.look()
    assert watch.seconds() == 0


async def _send_when_it_hangs(folder: ClusterFolder) -> None:
    """A sync that was put off may be the one that hangs, and then nobody is welcomed: so the client is there before."""
    async with antiphon.connect(folder.path) as client:
        await client.multicast("a", b"x")
        (folder.path / "hang").touch()
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
    assert cluster.wait_idle(folder, 60)
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
    assert cluster.wait_idle(folder, 60)
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
    assert cluster.wait_idle(folder, 60)
    command = [sys.executable, "-m", "antiphon", "down", "--dir", str(folder.path)]
    if whose == "the processes":
        block_trace(folder)
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    else:
        with nothing_can_be_written():  # those who run already may
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stdout.splitlines() == [
        "2 of 2 processes ended; everything was delivered.",
        "The trace is incomplete: a part of what a.1, b.1 saw could not be written, or is gone.",
    ]
    assert ended.stderr == ""
    assert ended.returncode == 1
    (facts,) = read_facts(folder.trace)
    assert facts.incomplete == ["a.1", "b.1"]
    assert not facts.drained


def test_a_trace_without_room_does_not_keep_a_process_from_returning(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_cluster({"a": 2}, trace=True)
    send(folder, 5)
    assert cluster.stop(folder)
    (facts,) = read_facts(folder.trace)
    assert facts.drained
    runs = folder.trace / "runs"
    monkeypatch.setattr("antiphon.trace.facts.secrets.token_hex", lambda size: "x")
    (runs / f".{folder.config.run}.json.x.tmp").mkdir()  # where the new facts would be written
    cluster.start(folder)
    assert not list(runs.glob("*.json")), "the old ones would say that all is known"
    send(folder, 5)
    cluster.stop(folder)


TRACE_HANGS = """
import signal, sys, time
from pathlib import Path
signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))  # as serve does, before pyarrow has threads
from antiphon.runtime.node import driver, recorder, serve, trace_files
path = Path(sys.argv[1])
recorder.ROWS_PER_TABLE, trace_files.WAITING_ROWS_MAX, driver.TRACE_SECONDS = 4, 60, 0.5
write_events = trace_files.write_events
def hang(*arguments):
    while (path / "hang").exists():
        time.sleep(0.1)
    write_events(*arguments)
trace_files.write_events = hang
sys.exit(serve(path, "a.1"))
"""


def test_a_trace_whose_disk_hangs_is_given_up_and_holds_up_nothing_else(tmp_path: Path) -> None:
    """What is delivered is written, snapshots count, and the process can be stopped, though it ends with a failure."""

    async def one_by_one() -> None:
        async with antiphon.connect(folder.path) as client:
            for _ in range(60):
                await client.multicast("a", bytes(3000))

    settings = {"segment_bytes": 1 << 16, "snapshot_bytes": 1 << 16}
    folder = cluster.create(tmp_path / "c", {"a": 1}, **settings)  # type: ignore[arg-type]
    node = subprocess.Popen([sys.executable, "-c", TRACE_HANGS, str(folder.path)])
    try:
        assert becomes(lambda: ask(folder.config, "a.1") is not None)
        send(folder, 5)
        (folder.path / "hang").touch()
        asyncio.run(one_by_one())
        assert becomes(lambda: (status := ask(folder.config, "a.1")) is not None and status.trace == "not whole")
        assert folder.process("a.1").has_gap
        assert becomes(lambda: any(folder.process("a.1").journal.glob("snapshot-*.snap")))
        node.send_signal(signal.SIGTERM)
        assert node.wait(IN_TIME_SECONDS) == EXIT_DISK
    finally:
        node.kill()
        node.wait()


# Old copies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "groups", "old", "others"),
    [("tom", {"a": 3}, "a.3", ["a.1", "a.2"]), ("skeen", {"a": 1, "b": 1}, "a.1", ["b.1"])],
)
def test_an_old_copy_gives_no_receipt_before_a_peer_contradicts_it(
    make_cluster: MakeCluster, protocol: str, groups: dict[str, int], old: str, others: list[str]
) -> None:
    folder = make_cluster(groups, protocol=protocol)
    send(folder, 20, tuple(groups))
    assert cluster.wait_idle(folder, 60)
    cluster.kill(folder, old)
    own = folder.process(old).path
    shutil.copytree(own, folder.path / "copy")
    cluster.start(folder)
    send(folder, 100, tuple(groups))
    assert cluster.wait_idle(folder, 60)
    for process in folder.config.processes:
        cluster.kill(folder, process)
    shutil.rmtree(own)
    shutil.move(folder.path / "copy", own)
    cluster.start(folder, [old])
    time.sleep(company.MEET_SECONDS + 0.5)
    status = ask(folder.config, old)
    assert status is not None
    assert status.returning == others

    async def alone() -> None:
        async with antiphon.connect(folder.config.addresses[old]) as client:
            await client.multicast(groups, b"x", timeout=1)

    with pytest.raises(Unavailable, match=r"It was not multicast to .* in time"):
        asyncio.run(alone())
    pid = pid_of(folder, old)
    cluster.start(folder, others)
    assert ends(pid) == EXIT_REFUSED
    assert "old copy" in folder.process(old).last_words()


def test_an_empty_folder_is_an_old_copy_too(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 3})
    send(folder, 20)
    assert cluster.wait_idle(folder, 60)
    for process in folder.config.processes:
        cluster.kill(folder, process)
    shutil.rmtree(folder.process("a.3").path)
    cluster.start(folder, ["a.3"])
    pid = pid_of(folder, "a.3")
    cluster.start(folder, ["a.1", "a.2"])
    assert ends(pid) == EXIT_REFUSED
    send(folder, 5)


def one_by_one(folder: ClusterFolder, count: int, groups: tuple[str, ...]) -> None:
    """Each in a message of its own, so that more of them are more frames."""

    async def run() -> None:
        async with antiphon.connect(folder.path) as client:
            for i in range(count):
                await client.multicast(groups, b"%d" % i)

    asyncio.run(run())


def test_who_has_said_more_than_it_forgot_is_uncovered_by_what_it_said(make_cluster: MakeCluster) -> None:
    """Alone in its group and with an empty folder it takes itself for new, and says more than in its first life."""
    folder = make_cluster({"a": 1, "b": 1}, protocol="skeen")
    one_by_one(folder, 5, ("a", "b"))
    assert cluster.wait_idle(folder, 60)
    for process in folder.config.processes:
        cluster.kill(folder, process)
    shutil.rmtree(folder.process("a.1").path)
    cluster.start(folder, ["a.1"])
    one_by_one(folder, 25, ("a", "b"))
    pid = pid_of(folder, "a.1")
    cluster.start(folder, ["b.1"])
    assert ends(pid) == EXIT_REFUSED
    assert "which has sent others" in folder.process("a.1").last_words()
    assert folder.process("b.1").pid() is not None


def test_who_is_alone_in_its_group_waits_for_those_with_whom_it_has_spoken() -> None:
    topology = Topology.sized({"a": 1, "b": 3, "c": 1})

    def waits(protocol: str, *met: str, spoken_with: tuple[str, ...] = ("b.1", "b.2", "b.3")) -> list[str]:
        process = Process(ProcessId("a.1"), topology, protocol_named(protocol))
        return list(awaited(process.protocol, topology, process.me, met, spoken_with))  # type: ignore[arg-type]

    assert waits("skeen", spoken_with=()) == [], "it has never said anything"
    assert waits("skeen", "b.1", "c.1") == ["b.2", "b.3"]
    assert waits("skeen", "b.1", "b.2", "b.3") == []
    assert waits("tom", "b.1") == ["b.2", "b.3"]
    assert waits("tom", "b.1", "b.2") == [], "a majority of each group"
    assert waits("tom", spoken_with=("b.1",)) == ["b.1"]
    assert waits("tom", "b.1", spoken_with=("b.1",)) == []


# Crowds -------------------------------------------------------------------------------------------------------------


def subscribe_and_stall(folder: ClusterFolder, process: str, name: str, start: int = 0) -> socket.socket:
    """A reader that asks for everything from a position on, and reads nothing."""
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    caller.settimeout(IN_TIME_SECONDS)
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
    assert cluster.wait_idle(folder, 60)
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
            assert cluster.wait_idle(folder, 60)
            assert open_files(pid) < files + len(stalled) + 40, "files are shared"
            grown.append(resident_mib(pid) - before)
        finally:
            for reader in stalled:
                reader.close()
        assert becomes(lambda: open_files(pid) <= files + 5), "and come back"
    assert grown[0] < 150 * 0.3, "a few hundred kilobytes for each"
    assert grown[1] < grown[0] + 10, "that were given back, for others to use"


def test_a_crowd_of_clients_connects_by_address(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 2})
    addresses = ",".join(folder.config.addresses.values())

    async def one() -> None:
        async with antiphon.connect(addresses) as client:
            await client.multicast("a", b"x", timeout=120)

    async def crowd() -> None:
        await asyncio.gather(*(one() for _ in range(1000)))

    asyncio.run(crowd())
    assert cluster.wait_idle(folder, 60)
    assert [status.delivered for status in cluster.statuses(folder).values() if status is not None] == [1000, 1000]


# Links --------------------------------------------------------------------------------------------------------------


def test_a_connection_that_is_open_but_passes_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a.2's address is somebody who welcomes, and never takes, acknowledges or says anything again."""
    monkeypatch.setattr(links, "PEER_SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(node_module, "HEARTBEAT_SECONDS", 0.05)
    folder = cluster.create(tmp_path / "c", {"a": 2}, protocol="tom", trace=False, segment_bytes=1 << 16)
    folder.process("a.1").path.mkdir()
    calls = 0
    writers: list[asyncio.StreamWriter] = []

    async def welcome_and_fall_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        writers.append(writer)
        writer.write(encode(FrameKind.WELCOME, Welcome("a.2", 1, [ChannelMarks(t, 0, 0, NO_FRAMES) for t in NUMBERED])))

    async def run() -> None:
        server = await asyncio.start_server(welcome_and_fall_silent, *folder.config.address("a.2"))
        node = ClusterNode(folder, folder.config.known("a.1"))
        running = asyncio.create_task(node.run())
        async with antiphon.connect(folder.path) as client:
            await client.multicast("a", b"for a.2 too")
            async with asyncio.timeout(IN_TIME_SECONDS):
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
    assert sorted(each.communicate(timeout=120)[0].decode().strip() for each in both) == [
        "2 of 2 processes ended; everything was delivered.",
        "Nothing was running.",
    ]
    (facts,) = read_facts(folder.trace)
    assert facts.drained
