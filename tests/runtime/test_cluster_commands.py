"""`antiphon up | node | send | tail | status | down`, as a user types them; bad input gets one sentence."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from antiphon.checks import check_run
from antiphon.cli import main
from antiphon.cli.status import _cells, _cuts, _notes, _views
from antiphon.client import connect
from antiphon.core import ProcessId
from antiphon.core.errors import AntiphonError, OutcomeUnknown, Unavailable
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder, processes
from antiphon.runtime.cluster.folder import ProcessFolder
from antiphon.runtime.cluster.spawning import starved_seconds
from antiphon.runtime.net.frames import HEADER, FrameKind, Rejected, StatusAnswer, encode
from antiphon.trace import read_facts
from antiphon.trace.parquet import read_rows
from waiting import IN_TIME_SECONDS, becomes

MAIN = "from antiphon.cli import main; main()"


def antiphon(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    command = [sys.executable, "-c", MAIN, *arguments]
    ended = subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=False)
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


def status_becomes(path: Path, code: int, sentence: str = "") -> str:
    """What `antiphon status` shows once it ends with this code and says so: who is gone, or back, is seen soon."""
    found: list[tuple[int, str]] = []

    def is_so() -> bool:
        found.append(antiphon("status", "--dir", str(path))[:2])
        return found[-1][0] == code and sentence in found[-1][1]

    assert becomes(is_so), found[-1]
    return found[-1][1]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command in this process, and expect one sentence and an exit code."""

    def run(*arguments: str, code: int = 2) -> str:
        monkeypatch.setattr(sys, "argv", ["antiphon", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        assert (ended.value.code, shown.out) == (code, ""), (arguments, shown)
        assert len(shown.err.splitlines()) == 1, (arguments, shown)
        return shown.err

    return run


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "shop"
    yield path
    with suppress(AntiphonError):
        folder = ClusterFolder.load(path)
        for process in folder.config.processes:
            cluster.kill(folder, process)
    shutil.rmtree(path, ignore_errors=True)


def test_what_is_retained_is_said_at_any_time(path: Path, refused: Callable[..., str]) -> None:
    where = ("--dir", str(path))
    words = "'10' does not say what to retain: give a size such as 10GB, an age such as 7d, both as 10GB,7d, or all."
    assert refused("up", "--groups", "a=1", *where, "--retain", "10") == f"antiphon: {words}\n"
    assert not path.exists()
    code, _, err = antiphon("up", "--groups", "a=1", *where, "--no-trace", "--retain", "1MB", "--retain", "7d")
    assert (code, err, (path / "retain").read_text()) == (0, "", "1MB,7d\n")
    assert antiphon("send", *where, "--to", "a", stdin=b"x" * 150 + b"\n" + b"y\n" * 3)[0] == 0
    assert "Position 5 of a is not there yet: 4 is the next" in refused("tail", *where, "a", "--from", "5")
    assert "two limits of one kind" in refused("up", *where, "--retain", "1MB,2MB")
    assert antiphon("up", *where, "--retain", "all")[0] == 0
    assert (path / "retain").read_text() == "all\n"
    cluster.kill(ClusterFolder.load(path), "a.1")
    (path / "retain").write_text("much\n")
    assert "retain: 'much' does not say what to retain" in refused("up", *where, code=1)
    cut = _answer("a.1", begins=27_000, delivered_bytes=3 << 19)
    assert list(_notes({ProcessId("a.1"): cut})) == ["a.1 keeps what it delivered from position 27000 on, in 1.5 MiB."]


def test_a_cluster_from_up_to_down(path: Path) -> None:
    where = ("--dir", str(path))
    code, out, err = antiphon("up", "--groups", "orders=2,billing=1", *where, "--run", "shop")
    assert (code, err) == (0, "")
    assert out.count("started") == 3
    code, name, _ = antiphon("send", *where, "--to", "orders,billing", "one espresso", "--name", "bar")
    assert code == 0
    assert name.startswith("bar-")
    folder = ClusterFolder.load(path)
    assert cluster.wait_idle(folder, 60)  # the order between two clients is not promised, and a receipt no delivery
    code, out, _ = antiphon("send", *where, "--to", "orders", stdin=b"".join(b"line %d\n" % i for i in range(500)))
    assert (code, out) == (0, "500 messages accepted.\n")
    assert cluster.wait_idle(folder, 60)
    code, out, _ = antiphon("tail", *where, "orders")
    assert code == 0
    assert len(out.splitlines()) == 501
    assert out.splitlines()[0] == f"0\t{name.strip()}\torders,billing\tone espresso"
    code, out, _ = antiphon("tail", *where, "billing", "--json")
    assert json.loads(out)["text"] == "one espresso"
    code, out, _ = antiphon("status", *where, "--json")
    assert json.loads(out)["orders.1"]["status"]["delivered"] == 501
    assert json.loads(out)["billing.1"]["pid"] == cluster.alive(folder)[ProcessId("billing.1")]
    cluster.kill(folder, "billing.1")
    out = status_becomes(path, 1, "Group billing has had no majority since 20")
    *processes, stalled = out.splitlines()[1:]
    assert [line.split()[1] == "no" for line in processes] == [False, False, True], out
    assert stalled.startswith("Group billing")
    code, out, _ = antiphon("up", *where)
    assert code == 0
    assert (out.count("was running"), out.count("started")) == (2, 1)
    code, out, _ = antiphon("down", *where)
    assert (code, out) == (0, "3 of 3 processes ended; everything was delivered.\n")
    code, out, _ = antiphon("down", *where)
    assert (code, out) == (0, "Nothing was running.\n")
    facts = json.loads((path / "trace" / "runs" / "shop.json").read_bytes())
    assert facts["drained"]
    assert facts["faulty"] == []


def test_down_does_not_say_that_all_is_well_when_nothing_runs_any_more(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = cluster.create(path, {"a": 1, "b": 1}, trace=False)

    def down() -> tuple[int, list[str]]:
        monkeypatch.setattr(sys, "argv", ["antiphon", "down", "--dir", str(path)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().out.splitlines()

    assert down() == (0, ["Nothing was running."]), "it never ran"
    cluster.start(folder)
    for process in folder.config.processes:
        cluster.kill(folder, process)
    killed = [
        "Nothing was running, but some messages may still be under way.",
        "a.1 and b.1 did not end cleanly: the next `up` repairs what there is to repair.",
    ]
    assert down() == (1, killed)
    assert down() == (1, killed), "and so it stays"
    cluster.start(folder)
    for process in folder.config.processes:
        cluster.kill(folder, process, signal.SIGTERM)
    assert becomes(lambda: not any(cluster.alive(folder).values()))
    assert down() == (1, killed[:1]), "each ended cleanly, and nobody has looked at what was under way"
    cluster.start(folder)
    assert down() == (0, ["2 of 2 processes ended; everything was delivered."])
    assert down() == (0, ["Nothing was running."])


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that does not end by itself, and does not outlive the test."""
    with subprocess.Popen([sys.executable, "-c", MAIN, *arguments], stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_tail_follows(path: Path) -> None:
    folder = cluster.create(path, {"orders": 1}, trace=False)
    cluster.start(folder)
    with running("tail", "--dir", str(path), "orders", "--follow") as tail:
        assert tail.stdout is not None
        for text in ("first", "second"):
            assert antiphon("send", "--dir", str(path), "--to", "orders", text)[0] == 0
            assert tail.stdout.readline().decode().strip().endswith(text)
        tail.send_signal(signal.SIGINT)
        assert tail.wait(IN_TIME_SECONDS) == 130


def test_the_foreground_node_ends_cleanly_on_a_signal(path: Path) -> None:
    cluster.create(path, {"orders": 1}, trace=False)
    with running("node", "--dir", str(path), "orders.1") as node:
        assert node.stdout is not None
        assert b"listens" in node.stdout.readline()
        node.send_signal(signal.SIGTERM)
        assert node.wait(IN_TIME_SECONDS) == 0


def test_bad_input_gets_one_sentence_and_exit_code_2(path: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    where = ("--dir", str(path))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        bad: list[tuple[str, ...]] = [
            ("up", *where),
            ("up", *where, "--groups", "orders"),
            ("up", *where, "--groups", "Orders=3"),
            ("up", *where, "--groups", "orders=0"),
            ("up", *where, "--groups", "orders=1", "--protocol", "nonsense"),
            ("up", *where, "--groups", "orders=1", "-o", "x=1"),
            ("up", *where, "--groups", "orders=1", "-o", "x"),
            ("up", *where, "--groups", "orders=1", "--base-port", port),
            ("up", *where, "--groups", "orders=1", "--base-port", "70000"),
            ("up", *where, "--groups", "orders=1", "--gather", "0"),
            ("up", "--dir", str(tmp_path / "full"), "--groups", "orders=1"),
            ("send", *where, "--to", "orders", "x"),
            ("tail", *where, "orders"),
            ("status", *where),
            ("down", *where),
            ("node", *where, "orders.1"),
            ("send", *where, "x"),
        ]
        for arguments in bad:
            refused(*arguments)
    assert not path.exists()


def test_bad_input_for_a_running_cluster(path: Path, refused: Callable[..., str]) -> None:
    where = ("--dir", str(path))
    folder = cluster.create(path, {"orders": 1}, trace=False)
    cluster.start(folder)
    bad: list[tuple[str, ...]] = [
        ("up", *where, "--groups", "orders=2"),
        ("up", *where, "--protocol", "skeen"),
        ("up", *where, "--gather", "1"),
        ("send", *where, "--to", "nowhere", "x"),
        ("send", *where, "--to", "", "x"),
        ("send", *where, "--to", "orders", "--name", "a b", "x"),
        ("tail", *where, "nowhere"),
        ("tail", *where, "orders", "--from", "-1"),
        ("node", *where, "orders.7"),
        ("node", *where, "orders.1"),
    ]
    for arguments in bad:
        refused(*arguments)
    cluster.kill(folder, "orders.1")
    for arguments in (("send", *where, "--to", "orders", "x"), ("tail", *where, "orders")):
        assert "No process of" in refused(*arguments, code=1)
    with pytest.raises(Unavailable, match="was not multicast"):
        asyncio.run(_multicast_into_the_void(path))


async def _multicast_into_the_void(path: Path) -> None:
    async with connect(path) as client:
        await client.multicast({"orders"}, b"x", timeout=0.2)


@pytest.mark.parametrize("command", ["up", "node", "send", "tail", "status", "down"])
def test_every_command_has_help_with_an_example(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["antiphon", command, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert f"Example: antiphon {command}" in " ".join(capsys.readouterr().out.split())


def _answer(process: str, view: tuple[str, list[str]] | None = None, **more: object) -> StatusAnswer:
    return msgspec.convert(
        {
            **{"process": process, "incarnation": 1, "delivered": 0, "pending": 0, "waits_for": [], "view": view},
            **{"unacknowledged": 0, "journal_bytes": 0, "written_bytes": 0, "last_sync_ms": 0.0, "disk_seconds": 0.0},
            **{
                "connected": [],
                "lost": {},
                "refused": {},
                "datagrams": {},
                "full": False,
                "returning": [],
                "trace": "",
            },
            **{"draining": False, "counters": {}, "begins": 0, "delivered_bytes": 0},
            **more,
        },
        StatusAnswer,
    )


def test_where_there_are_views_status_says_who_goes_on_with_whom_and_not_that_they_wait(path: Path) -> None:
    folder = cluster.create(path, {"g": 3}, protocol="toto", options={"membership": "true"})
    together, apart = ("5@g.2", ["g.1", "g.2"]), ("7@g.1", ["g.3"])
    found: dict[ProcessId, StatusAnswer | None] = {
        ProcessId("g.1"): _answer("g.1", together),
        ProcessId("g.2"): _answer("g.2", together),
        ProcessId("g.3"): _answer("g.3", apart),
    }
    assert list(_views(found)) == ["g.1 and g.2 are together in view 5@g.2.", "g.3 is in view 7@g.1, alone."]
    found[ProcessId("g.2")] = None
    assert list(_views(found)) == [
        "g.1 is in view 5@g.2. Of its other members, g.2 does not answer.",
        "g.3 is in view 7@g.1, alone.",
    ]
    found[ProcessId("g.1")] = _answer("g.1", ("1@g.2", ["g.1", "g.2", "g.3"]))
    assert (
        next(_views(found))
        == "g.1 is in view 1@g.2. Of its other members, g.3 is not in it now, and g.2 does not answer."
    )
    found[ProcessId("g.3")] = None
    assert cluster.without_majority(folder, found) == {}
    found[ProcessId("g.1")] = _answer("g.1", None)
    assert cluster.without_majority(folder, found) == {"g": None}
    assert list(_views(found)) == []


def test_who_does_not_answer_a_command_may_or_may_not_have_been_told(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.client.known.ASKING_SECONDS", (0.1,))
    folder = cluster.create(path, {"g": 1})
    with socket.create_server(folder.config.address("g.1")):  # it is heard, and says nothing
        with pytest.raises(OutcomeUnknown) as unknown:
            cluster.tell(folder.config, "g.1", ["leave"], timeout=0.1)
        assert str(unknown.value) == "g.1 did not answer: it may or may not have been told."

        async def ask() -> None:
            async with connect(folder.config.addresses["g.1"]):
                pass

        with pytest.raises(Unavailable) as silent:
            asyncio.run(ask())
        assert str(silent.value) == f"{folder.config.addresses['g.1']} did not answer within 0.1 seconds."


@pytest.mark.parametrize("said", [b"\0", encode(FrameKind.BUSY)], ids=["trickle", "busy"])
def test_who_says_something_for_ever_and_never_answers_is_not_waited_for(path: Path, said: bytes) -> None:
    folder = cluster.create(path, {"g": 1})
    ended = threading.Event()

    def talk(server: socket.socket) -> None:
        for _ in range(2):
            with server.accept()[0] as caller, suppress(OSError):
                caller.sendall(HEADER.pack(10**6, FrameKind.WELCOME) if said == b"\0" else b"")
                while not ended.wait(0.02):
                    caller.sendall(said)

    with socket.create_server(folder.config.address("g.1")) as server:
        talker = threading.Thread(target=talk, args=(server,))
        talker.start()
        begun = time.monotonic()
        try:
            assert cluster.ask(folder.config, "g.1", timeout=0.2) is None
            with pytest.raises(OutcomeUnknown):
                cluster.tell(folder.config, "g.1", ["leave"], timeout=0.2)
            assert time.monotonic() - begun < IN_TIME_SECONDS
        finally:
            ended.set()
            talker.join()


def test_status_is_not_well_when_processes_have_no_room_or_do_not_reach_one_another(path: Path) -> None:
    folder = cluster.create(path, {"g": 3})
    one, two, three = folder.config.processes

    def look(**each: dict[str, object]) -> tuple[bool, list[str], list[str]]:
        """Of three processes, each with its peculiarities: whether all is well, who is cut off, which group waits."""
        found: dict[ProcessId, StatusAnswer | Rejected | None] = {}
        for process, short in ((one, "one"), (two, "two"), (three, "three")):
            connected = [peer for peer in folder.config.processes if peer != process]
            found[process] = _answer(process, **{"connected": connected, **each.get(short, {})})
        cut = [" ".join((process, *others)) for process, others in cluster.unreached(found).items()]
        return cluster.is_well(folder, found), cut, list(cluster.without_majority(folder, found))

    alone: dict[str, object] = {"connected": []}
    assert look() == (True, [], [])
    assert look(one={"full": True}) == (False, [], []), "like one that is down"
    assert look(one={"full": True}, two={"full": True}) == (False, [], ["g"])
    assert look(one={"full": True}, two={"returning": [one]}) == (False, [], ["g"])
    assert look(one=alone, two=alone, three=alone) == (False, ["g.1 g.2 g.3", "g.2 g.1 g.3", "g.3 g.1 g.2"], ["g"])
    assert look(one={"connected": [three]}, two={"connected": [three]}) == (False, ["g.1 g.2", "g.2 g.1"], [])
    assert look(one={"connected": [two]}, two={"connected": [three]}, three={"connected": [one]})[2] == ["g"], "one way"
    assert list(_cuts({one: [two], two: [one, three]})) == [
        "g.1 does not reach g.2, though it is there.",
        "g.2 does not reach g.1 and g.3, though they are there.",
    ]


def test_status_tells_a_process_that_turns_a_command_away_from_one_that_is_silent(path: Path) -> None:
    folder = cluster.create(path, {"g": 1})
    busy = Rejected("too many commands", "More than 16 commands asked this process at the same time.")
    assert _cells(7, busy)[:2] == ["7", "turns away"]
    assert _cells(7, None)[:2] == ["7", "no answer"]
    assert _cells(None, None)[:2] == ["", "no"]
    assert list(_notes({ProcessId("g.1"): busy})) == [f"g.1 turns this command away: {busy.sentence}"]
    assert cluster.without_majority(folder, {ProcessId("g.1"): busy}) == {}, "it is there"
    assert cluster.without_majority(folder, {ProcessId("g.1"): Rejected("wrong cluster", "")}) == {"g": None}
    cluster.start(folder)
    folder.config = msgspec.structs.replace(folder.config, cluster="another")
    folder.save()
    code, shown, _ = antiphon("status", "--dir", str(path))
    assert code == 1
    assert "g.1 turns this command away: The caller belongs to cluster 'another', not to this one." in shown


def test_a_process_that_does_not_answer_in_time_is_not_said_to_have_failed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.runtime.cluster.processes.START_SECONDS", 0.0)
    monkeypatch.setattr("antiphon.runtime.cluster.processes.ask_all", lambda config, asked, **_: dict.fromkeys(asked))
    folder = cluster.create(path, {"a": 1}, trace=False)
    with pytest.raises(Unavailable) as failure:
        cluster.start(folder)
    own = folder.process(ProcessId("a.1"))
    while own.pid() is None:
        time.sleep(0.01)
    cluster.kill(folder, "a.1")
    late = f"a.1 was started, but does not answer after 0 seconds; what it says is in {own.log}."
    assert str(failure.value) == late


def test_a_process_that_others_keep_from_the_processor_is_given_that_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside busy processes of higher rank a start has taken more than twenty seconds, nearly all in the queue."""
    looks: list[StatusAnswer | None] = [None, None, _answer("a.1")]

    def ask_all(config: object, asked: list[str], **_: object) -> dict[str, StatusAnswer | None]:
        return {process: looks.pop(0) for process in asked}

    monkeypatch.setattr("antiphon.runtime.cluster.processes.START_SECONDS", 0.0)
    monkeypatch.setattr("antiphon.runtime.cluster.processes.ask_all", ask_all)
    monkeypatch.setattr("antiphon.runtime.cluster.processes.starved_seconds", lambda pid: 3600.0)
    folder = cluster.create(path, {"a": 1}, trace=False)
    cluster.start(folder)
    own = folder.process(ProcessId("a.1"))
    while own.pid() is None:
        time.sleep(0.01)
    cluster.kill(folder, "a.1")
    assert looks == []


def test_what_is_under_way_is_waited_for_as_long_as_something_is_delivered(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up ten seconds after the last delivery, not counting those in which others had the processor."""
    folder = cluster.create(path, {"a": 1}, trace=False)
    now = starved = 0.0
    looks: list[StatusAnswer] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += 6.0

    def ask_all(config: object, asked: Iterable[str], **_: object) -> dict[str, StatusAnswer]:
        return {process: looks.pop(0) for process in asked}

    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    monkeypatch.setattr(processes, "ask_all", ask_all)
    monkeypatch.setattr(processes, "starved_seconds", lambda pid: now * starved)
    monkeypatch.setattr(ProcessFolder, "pid", lambda own: 7)
    slow = [_answer("a.1", pending=1, delivered=count) for count in (0, 0, 1, 1, 2)]
    looks[:] = [*slow, _answer("a.1", delivered=3), _answer("a.1", delivered=3)]
    assert cluster.wait_idle(folder, 10.0)
    assert looks == []
    for share, taken in ((0.0, 3), (0.5, 5)):
        starved = share
        looks[:] = [slow[-1]] * 9
        assert not cluster.wait_idle(folder, 10.0)
        assert len(looks) == 9 - taken, "it gives up in the end"


def test_the_time_in_which_a_process_could_have_run_is_the_kernels() -> None:
    """Two processes that never wait share one processor: each is in the queue half of the time, but not if stopped."""
    one = min(os.sched_getaffinity(0))
    busy = [
        subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{one}])\nwhile True: pass"])
        for _ in range(2)
    ]
    stopped, *_ = busy
    try:
        while min(starved_seconds(process.pid) for process in busy) < 0.3:
            time.sleep(0.02)
        stopped.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
        waited = starved_seconds(stopped.pid)
        time.sleep(0.1)
        assert starved_seconds(stopped.pid) == waited
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert starved_seconds(stopped.pid) == 0.0


def test_what_is_ending_when_a_cluster_is_started_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cluster.create(path, {"a": 2}, trace=False)
    ending, well = _answer("a.1", draining=True), _answer("a.2")
    looks: list[StatusAnswer | None] = []

    def ask_all(config: object, asked: list[str], **_: object) -> dict[str, StatusAnswer | None]:
        return {process: looks.pop(0) if process == "a.1" else well for process in asked}

    monkeypatch.setattr(processes, "ask_all", ask_all)
    monkeypatch.setattr(processes.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(ProcessFolder, "pid", lambda own: 7 if looks or own.path.name == "a.2" else None)
    for script in ([_answer("a.1")], [ending, ending, None, None], [ending, _answer("a.1")], [None, ending, None]):
        looks[:] = script
        processes._wait_for_ending(folder, folder.config.processes)
        assert looks == []
    monkeypatch.setattr(processes, "GONE_SECONDS", 0.0)
    looks[:] = [ending, ending]
    with pytest.raises(Unavailable, match=r"^a\.1 was told to end, but still runs after 0 seconds\.$"):
        processes._wait_for_ending(folder, folder.config.processes)
    monkeypatch.setattr(processes, "MOMENT_SECONDS", 0.0)
    looks[:] = [None, None]
    processes._wait_for_ending(folder, folder.config.processes)  # it does not answer, for whatever reason


def test_a_group_without_a_majority_waits_says_so_and_goes_on_when_enough_return(path: Path) -> None:
    where = ("--dir", str(path))
    folder = cluster.create(path, {"a": 3, "b": 1}, protocol="tom")
    cluster.start(folder)
    assert antiphon("send", *where, "--to", "a,b", "first")[0] == 0
    assert cluster.wait_idle(folder, 60)
    for process in ("a.2", "a.3"):
        cluster.kill(folder, process)
    assert "Group b" not in status_becomes(path, 1, "Group a has had no majority since 20")
    assert antiphon("send", *where, "--to", "a,b", "second")[0] == 0
    answers = cluster.statuses(folder)
    assert {p: s.delivered for p, s in answers.items() if s is not None} == {"a.1": 1, "b.1": 1}, "it waits"
    cluster.start(folder)
    assert cluster.wait_idle(folder, 60)
    assert [s.delivered for s in cluster.statuses(folder).values() if s is not None] == [2, 2, 2, 2]
    assert "no majority" not in status_becomes(path, 0)
    cluster.kill(folder, "a.3")
    assert "no majority" not in status_becomes(path, 1), "one is down, and the group goes on"
    for process in ("a.1", "a.2"):
        cluster.kill(folder, process)
    code, shown, _ = antiphon("send", *where, "--to", "b", "waits for nobody of a")
    code, shown, _ = antiphon("down", *where, "--json")
    assert (code, json.loads(shown)["drained"]) == (1, False)
    cluster.start(folder)
    assert antiphon("down", *where)[0] == 0
    code, shown, _ = antiphon("status", *where)
    assert (code, shown.count("\n")) == (1, 1)
    assert "Every process was stopped cleanly" in shown


def test_status_asks_at_the_addresses_also_for_processes_of_another_folder(path: Path, tmp_path: Path) -> None:
    folder = cluster.create(path, {"a": 2}, trace=False)
    cluster.start(folder)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(path / "cluster.json", elsewhere)
    assert status_becomes(elsewhere, 0).count("yes") == 2


def test_a_process_is_gone_when_it_has_closed_all_it_had(path: Path) -> None:
    """At its end it gives up its lock first, and its address after that."""
    folder = cluster.create(path, {"g": 1})
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"]) as without_its_lock:
        assert not processes._wait_gone(folder, {ProcessId("g.1"): without_its_lock.pid}, 60)
        with pytest.raises(ProcessLookupError):
            os.kill(without_its_lock.pid, 0)


def test_down_completes_the_trace_of_a_killed_process(path: Path) -> None:
    """What a killed process did is in its journal, and other processes' rows rest on it."""
    folder = cluster.create(path, {"a": 3, "b": 1}, protocol="tom", run="killed")
    cluster.start(folder)
    assert antiphon("send", "--dir", str(path), "--to", "a,b", stdin=b"x\n" * 50)[0] == 0
    cluster.kill(folder, "a.1")
    assert cluster.untraced(folder)
    cluster.stop(folder, drain_seconds=5)
    assert cluster.untraced(folder) == []
    (facts,) = read_facts(folder.trace)
    rows = read_rows(folder.trace, facts.run)
    assert facts.faulty == ["a.1"]
    assert {row.process for row in rows} == {"a.1", "a.2", "a.3", "b.1"}
    assert check_run(msgspec.structs.replace(facts, drained=True), rows) == []
    cluster.start(folder)
    assert cluster.wait_idle(folder, 60), "and it still returns"


def test_who_runs_from_another_folder_is_not_faulty_but_missing_in_the_trace(path: Path, tmp_path: Path) -> None:
    here = cluster.create(path, {"a": 1, "b": 1}, protocol="skeen", run="spread")
    (tmp_path / "there").mkdir()
    shutil.copy(path / "cluster.json", tmp_path / "there")
    there = ClusterFolder.load(tmp_path / "there")

    def verdict() -> tuple[list[str], list[str], list[str]]:
        (facts,) = read_facts(here.trace)
        violations = check_run(facts, read_rows(here.trace, "spread"))
        return facts.faulty, facts.incomplete, [str(violation) for violation in violations]

    try:
        cluster.start(there, ["b.1"])
        cluster.start(here, ["a.1"])
        assert antiphon("send", "--dir", str(path), "--to", "a,b", stdin=b"x\n" * 20)[0] == 0
        assert cluster.end(here).elsewhere == ("b.1",), "it answers"
        assert verdict() == ([], ["b.1"], [])
        assert cluster.end(there).ended == ("b.1",)
        code, shown, _ = antiphon("down", "--dir", str(path))
        assert code == 1
        assert "The trace is incomplete: what b.1 saw is where it was started, not here." in shown, "it was heard"
        assert verdict() == ([], ["b.1"], [])
        shutil.move(there.path / "b.1", path)
        for rows in (there.trace / "events" / "run=spread").iterdir():
            shutil.move(rows, here.trace / "events" / "run=spread")
        assert not cluster.end(here).elsewhere, "all that there is was put together"
        assert verdict() == ([], [], [])
    finally:
        cluster.kill(there, "b.1")


def test_a_folder_of_the_first_edition_is_refused_in_one_sentence(path: Path, refused: Callable[..., str]) -> None:
    path.mkdir()
    first_edition = {
        "version": 1,
        "cluster": "c0ffee",
        "protocol": "skeen",
        "options": {},
        "groups": {"orders": ["orders.1"]},
        "addresses": {"orders.1": "127.0.0.1:12345"},
        "journal": True,
        "trace": True,
        "run": "old",
        "snapshot_bytes": 1,
        "segment_bytes": 1,
        "spill_bytes": 1,
    }
    (path / "cluster.json").write_text(json.dumps(first_edition))
    where = ("--dir", str(path))
    for arguments in (
        ("up", *where),
        ("node", *where, "orders.1"),
        ("status", *where),
        ("down", *where),
        ("send", *where, "--to", "orders", "x"),
        ("tail", *where, "orders"),
    ):
        assert "0.2 does not read" in refused(*arguments)


def test_a_cluster_goes_on_when_a_minority_is_down_unless_told_otherwise(path: Path) -> None:
    """The default protocol tolerates it."""
    folder = cluster.create(path, {"a": 3, "b": 3}, trace=False)
    cluster.start(folder)
    assert antiphon("send", "--dir", str(path), "--to", "a,b", "first")[0] == 0
    for process in ("a.1", "b.3"):
        cluster.kill(folder, process)
    assert antiphon("send", "--dir", str(path), "--to", "a,b", "second")[0] == 0
    for group in ("a", "b"):
        deadline = time.monotonic() + IN_TIME_SECONDS
        while len(shown := antiphon("tail", "--dir", str(path), group)[1].splitlines()) < 2:
            assert time.monotonic() < deadline
        assert [line.split("\t")[-1] for line in shown] == ["first", "second"]
