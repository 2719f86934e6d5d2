"""What a process is after a crash, after a restart of all, and when it must not run at all."""

from __future__ import annotations

import asyncio
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import antiphon
from antiphon.checks import check_run
from antiphon.core.buffers import Buffers
from antiphon.core.errors import Unavailable
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from antiphon.runtime.disk import JournalIdentity, SegmentedLog, events_of
from antiphon.runtime.net.frames import StatusAnswer
from antiphon.runtime.node import CODE
from antiphon.trace import read_facts
from antiphon.trace.parquet import read_rows
from waiting import IN_TIME_SECONDS, becomes

MakeCluster = Callable[..., ClusterFolder]
SIZES = {"a": 2, "b": 2}


def send(
    folder: ClusterFolder, count: int, groups: tuple[str, ...] = ("a", "b"), size: int = 50, timeout: float = 30
) -> list[str]:
    async def run() -> list[str]:
        async with antiphon.connect(folder.path) as client:
            payloads = (f"{i} ".encode().ljust(size, b".") for i in range(count))
            sent = (client.multicast(groups, payload, timeout=timeout) for payload in payloads)
            return [receipt.name for receipt in await asyncio.gather(*sent)]

    return asyncio.run(run())


def delivered(folder: ClusterFolder, group: str, count: int) -> list[str]:
    """The names of the first ``count`` deliveries of a group; waits for them."""

    async def run() -> list[str]:
        names: list[str] = []
        async with antiphon.connect(folder.path) as client, asyncio.timeout(IN_TIME_SECONDS):
            async for delivery in client.subscribe(group):
                names.append(delivery.name)
                if len(names) == count:
                    break
        return names

    return asyncio.run(run())


def run_node(folder: ClusterFolder, process: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "antiphon.runtime.node", "--dir", str(folder.path), "--process", process]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def logs(folder: ClusterFolder) -> dict[str, list[str]]:
    """What each process of a stopped cluster delivered: the name of each payload, in order, at every position."""
    found = {}
    for process in folder.config.processes:
        identity = JournalIdentity(folder.config.cluster, process, "")
        own = folder.process(process)
        names: list[str] = []
        for event in events_of(own.delivered, own.journal, identity):
            assert event.position == len(names)
            names += [f"{request.client}:{n}" for request in event.requests for n in range(request.first, request.end)]
            assert event.position + event.count == len(names)
        found[str(process)] = names
    return found


def cut_journal(path: Path, process: str, folder: ClusterFolder, keep: float) -> None:
    """Replace a journal by one that ends earlier, at the end of a record, as if the rest had never been."""
    identity = JournalIdentity(folder.config.cluster, process, CODE)
    old = SegmentedLog.open(path, identity)
    records = [record for _, record in old.replay(0)]
    old.abandon()
    shutil.rmtree(path)
    new = SegmentedLog.open(path, identity)
    for record in records[: int(len(records) * keep)]:
        new.append(Buffers(record))
    new.commit()
    new.abandon()


def test_all_processes_killed_at_once_go_on_where_they_were(make_cluster: MakeCluster) -> None:
    folder = make_cluster(SIZES, trace=True)
    first = send(folder, 300)
    for process in folder.config.processes:
        cluster.kill(folder, process)
    assert cluster.start(folder) == folder.config.processes
    second = send(folder, 50)
    assert sorted(delivered(folder, "a", 350)) == sorted(first + second)
    assert cluster.stop(folder)
    found = logs(folder)
    assert found["a.1"] == found["a.2"] == found["b.1"] == found["b.2"]
    (facts,) = read_facts(folder.trace)
    assert facts.drained
    assert facts.faulty == []
    rows = read_rows(folder.trace, facts.run)
    assert check_run(facts, rows) == []
    assert sum(cell.payloads for row in rows if row.kind == "deliver" for cell in row.requests or ()) == 4 * 350
    assert sum(row.kind == "recover" for row in rows) == 4
    for process in folder.config.processes:
        numbers = [row.seq for row in rows if row.process == process]
        assert numbers == list(range(1, len(numbers) + 1)), "no event is missing from the trace"


def test_snapshots_and_replay_together_give_the_same_process(make_cluster: MakeCluster) -> None:
    folder = make_cluster(SIZES, trace=True, snapshot_bytes=20_000)
    names: list[str] = []
    for _ in range(3):
        names += send(folder, 200)
        assert cluster.wait_idle(folder, 60)
        for process in ("a.1", "b.2"):
            cluster.kill(folder, process)
        cluster.start(folder)
    assert sorted(delivered(folder, "b", len(names))) == sorted(names)
    assert cluster.stop(folder)
    for process in folder.config.processes:
        (snapshot,) = folder.process(process).journal.glob("snapshot-*.snap")
        assert "00000000000000000000" not in snapshot.name
    found = logs(folder)
    assert found["a.1"] == found["a.2"] == found["b.1"] == found["b.2"]
    (facts,) = read_facts(folder.trace)
    rows = read_rows(folder.trace, facts.run)
    assert check_run(facts, rows) == []
    for process in folder.config.processes:
        numbers = [row.seq for row in rows if row.process == process]
        assert numbers == list(range(1, len(numbers) + 1)), "no event is missing from the trace"


def test_a_clean_restart_is_no_crash(make_cluster: MakeCluster) -> None:
    folder = make_cluster(SIZES, trace=True)
    names = send(folder, 20)
    assert cluster.stop(folder)
    assert cluster.stop(folder), "it was drained, and nothing has run since"
    assert read_facts(folder.trace)[0].drained, "and the facts of the run stay"
    cluster.start(folder)
    assert not read_facts(folder.trace)[0].drained
    names += send(folder, 20)
    assert sorted(delivered(folder, "a", 40)) == sorted(names)
    assert cluster.stop(folder)
    rows = read_rows(folder.trace, folder.config.run)
    assert not [row for row in rows if row.kind in ("crash", "recover")]


def test_a_run_with_a_dead_process_is_not_drained(make_cluster: MakeCluster) -> None:
    folder = make_cluster(SIZES, trace=True)
    send(folder, 5)
    cluster.kill(folder, "b.2")
    assert not cluster.stop(folder, drain_seconds=0.3)
    (facts,) = read_facts(folder.trace)
    assert (facts.drained, facts.faulty) == (False, ["b.2"])


def test_an_old_copy_of_a_journal_is_refused(make_cluster: MakeCluster, tmp_path: Path) -> None:
    folder = make_cluster(SIZES)
    send(folder, 20)
    own = folder.process("a.1").path
    cluster.kill(folder, "a.1")
    shutil.copytree(own, tmp_path / "copy")
    cluster.start(folder)
    send(folder, 20)
    assert cluster.wait_idle(folder, 60)
    cluster.kill(folder, "a.1")
    shutil.rmtree(own)
    shutil.copytree(tmp_path / "copy", own)
    ended = run_node(folder, "a.1")
    assert ended.returncode == 3
    assert "must not" in ended.stderr
    assert cluster.statuses(folder)[folder.config.known("a.2")] is not None, "the others go on"


@pytest.mark.parametrize("protocol", ["tom", "primcast"])
def test_a_journal_of_another_cluster_and_a_wiped_disk_are_refused(
    make_cluster: MakeCluster, tmp_path: Path, protocol: str
) -> None:
    folder, other = (make_cluster({"a": 3}, protocol=protocol) for _ in range(2))
    for each in (folder, other):
        send(each, 20, ("a",))
        assert cluster.wait_idle(each, 10)
        cluster.kill(each, "a.1")
    own = folder.process("a.1").path
    own.rename(tmp_path / "own")
    ended = run_node(folder, "a.1")
    assert (ended.returncode, "must not run on it" in ended.stderr) == (3, True), "it has said things that it forgot"
    shutil.rmtree(own)
    shutil.copytree(other.process("a.1").path, own)
    ended = run_node(folder, "a.1")
    words = f"is of cluster '{other.config.cluster}', not of cluster '{folder.config.cluster}'"
    assert (ended.returncode, words in ended.stderr) == (3, True)
    shutil.rmtree(own)
    (tmp_path / "own").rename(own)
    cluster.start(folder)
    send(folder, 5, ("a",))
    assert len(delivered(folder, "a", 25)) == 25


@pytest.mark.parametrize("keep_log", [True, False])
def test_a_journal_cut_at_the_end_of_a_record_is_refused(make_cluster: MakeCluster, keep_log: bool) -> None:
    folder = make_cluster(SIZES)
    send(folder, 50)
    assert cluster.wait_idle(folder, 60)
    cluster.kill(folder, "b.1")
    own = folder.process("b.1")
    cut_journal(own.journal, "b.1", folder, 0.5)
    if not keep_log:
        shutil.rmtree(own.delivered)  # so that only the peers can tell
    ended = run_node(folder, "b.1")
    assert ended.returncode == 3
    assert "cut" in ended.stderr


def test_a_process_that_kept_no_journal_cannot_return(make_cluster: MakeCluster) -> None:
    folder = make_cluster(SIZES, journal=False)
    names = send(folder, 20)
    assert sorted(delivered(folder, "a", 20)) == sorted(names)
    cluster.kill(folder, "a.2")
    ended = run_node(folder, "a.2")
    assert ended.returncode == 3
    shutil.rmtree(folder.process("a.2").delivered)
    ended = run_node(folder, "a.2")
    assert ended.returncode == 3
    assert "never kept" in ended.stderr


def test_a_damaged_journal_is_refused(make_cluster: MakeCluster) -> None:
    folder = make_cluster(SIZES)
    send(folder, 50)
    assert cluster.wait_idle(folder, 60)
    cluster.kill(folder, "b.1")
    (segment,) = folder.process("b.1").journal.glob("segment-*.log")
    data = bytearray(segment.read_bytes())
    data[300] ^= 1  # in the first block
    segment.write_bytes(data)
    ended = run_node(folder, "b.1")
    assert ended.returncode == 3
    assert "cannot be trusted" in ended.stderr


def test_two_processes_never_run_on_one_folder(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 1})
    ended = run_node(folder, "a.1")
    assert ended.returncode == 2
    assert "Another process runs" in ended.stderr


def test_a_full_disk_refuses_work_and_harms_nothing(make_cluster: MakeCluster) -> None:
    """A limit on the size of files stands for the full disk: a large record needs a file of its own."""
    folder = make_cluster({"a": 2}, protocol="tom", segment_bytes=1 << 19)  # one of two answers for itself
    pids = [pid for pid in cluster.alive(folder).values() if pid is not None]
    _, hard = resource.prlimit(pids[0], resource.RLIMIT_FSIZE)
    for pid in pids:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 << 19, hard))
    with pytest.raises(Unavailable, match="cannot reserve"):
        send(folder, 1, ("a",), size=1 << 20, timeout=3)
    small = send(folder, 10, ("a",))
    assert cluster.wait_idle(folder, 60)
    resource.prlimit(pids[0], resource.RLIMIT_FSIZE, (hard, hard))

    async def send_large() -> str:
        async with antiphon.connect(folder.path) as client:
            return (await client.multicast(["a"], bytes(1 << 20))).name

    large = asyncio.run(send_large())  # by way of a.1, after a.2 has refused it perhaps

    def is_full(process: str) -> bool:
        status = cluster.ask(folder.config, process)
        return isinstance(status, StatusAnswer) and status.full

    assert becomes(lambda: is_full("a.2")), "it has no room for it, and status says so"
    statuses = cluster.statuses(folder)
    assert [status.delivered for status in statuses.values() if status is not None] == [10, 10]
    resource.prlimit(pids[1], resource.RLIMIT_FSIZE, (hard, hard))
    assert delivered(folder, "a", 11) == [*small, large]
    assert cluster.stop(folder)


def test_a_paused_process_delays_but_loses_nothing(make_cluster: MakeCluster) -> None:
    folder = make_cluster(SIZES)
    names = send(folder, 20)
    cluster.kill(folder, "b.2", signal.SIGSTOP)
    names += send(folder, 100, ("a",))
    cluster.kill(folder, "b.2", signal.SIGCONT)
    assert sorted(delivered(folder, "a", 120)) == sorted(names)
    assert cluster.stop(folder)


def test_what_a_dead_peer_misses_goes_to_disk_and_comes_back(make_cluster: MakeCluster) -> None:
    folder = make_cluster(SIZES, protocol="tom", snapshot_bytes=50_000, spill_bytes=20_000)
    names = send(folder, 20)
    assert cluster.wait_idle(folder, 60)
    cluster.kill(folder, "b.2")
    for _ in range(3):
        names += send(folder, 200, size=500)

    def spilled() -> list[str]:
        return [p for p in ("a.1", "a.2", "b.1") if any(folder.process(p).spill.glob("b.2-*"))]

    assert becomes(lambda: bool(spilled())), "some member has kept much for b.2"
    victim = spilled()[0]
    cluster.kill(folder, victim)  # in the middle of it all
    cluster.start(folder, [victim])
    names += send(folder, 200, size=500)
    cluster.start(folder)
    assert sorted(delivered(folder, "b", len(names))) == sorted(names)
    assert cluster.stop(folder)
    found = logs(folder)
    assert found["a.1"] == found["a.2"] == found["b.1"] == found["b.2"]
    assert not [p for p in folder.config.processes if any(folder.process(p).spill.glob("b.2-*"))]
