"""A member that is lost with its disk is replaced, under load: nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

import antiphon
from antiphon.checks import Status, check_run, verdicts
from antiphon.cli.app import app
from antiphon.core.errors import PositionGone, Unavailable, UsageError
from antiphon.core.events import Adopted, Delivered
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder, Succession
from antiphon.runtime.cluster.config import Replacement
from antiphon.runtime.cluster.control import ask, tell_replaced
from antiphon.runtime.cluster.ports import HOST, free_ports
from antiphon.runtime.cluster.processes import untraced
from antiphon.runtime.disk import JournalIdentity, events_of
from antiphon.runtime.net.frames import StatusAnswer
from antiphon.trace import read_facts
from antiphon.trace.coverage import last_rows
from antiphon.trace.parquet import read_rows
from waiting import IN_TIME_SECONDS, becomes

MakeCluster = Callable[..., ClusterFolder]


def lose(folder: ClusterFolder, process: str) -> None:
    """kill -9, and the disk is gone."""
    cluster.kill(folder, process)
    shutil.rmtree(folder.process(process).path)


def replace(folder: ClusterFolder, lost: str) -> Succession:
    with folder.commanded():
        return cluster.replace_lost(folder, lost)


def log_of(folder: ClusterFolder, process: str) -> tuple[int, list[bytes]]:
    """Where the log of a stopped process begins, and its payloads."""
    identity = JournalIdentity(folder.config.cluster, process, "")
    own = folder.process(process)
    first, payloads = 0, []
    for event in events_of(own.delivered, own.journal, identity):
        if isinstance(event, Adopted):
            assert not payloads
            first = event.position
        assert isinstance(event, Adopted | Delivered)
        assert event.position == first + len(payloads)
        payloads += [bytes(payload) for request in event.requests for payload in request.payloads()]
    return first, payloads


class Load:
    """Clients that multicast, one after the other, until they are told to end; and what was acknowledged to each."""

    def __init__(self, target: Path | str, routes: list[list[str]]) -> None:
        self.acknowledged: dict[int, list[bytes]] = {number: [] for number in range(len(routes))}
        self.routes = routes
        self._target = target
        self._is_ending = False

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._send(number)) for number in self.acknowledged]
        try:
            yield
        finally:
            self._is_ending = True
            await asyncio.gather(*tasks)

    async def _send(self, number: int) -> None:
        async with antiphon.connect(self._target) as client:
            while not self._is_ending:
                payload = b"%d:%d" % (number, len(self.acknowledged[number]))
                await client.multicast(self.routes[number], payload, timeout=IN_TIME_SECONDS)
                self.acknowledged[number].append(payload)

    async def goes_on(self, more: int = 100) -> None:
        goal = self.count + more
        async with asyncio.timeout(IN_TIME_SECONDS):
            while self.count < goal:
                await asyncio.sleep(0.01)


def check_logs(folder: ClusterFolder, load: Load) -> None:
    """Of a cluster that is down: all members of a group have the same, in the order of each client, and all of it."""
    for group, members in folder.config.groups.items():
        logs = {member: log_of(folder, member) for member in members}
        whole = max((payloads for first, payloads in logs.values() if not first), key=len)
        for first, payloads in logs.values():
            assert payloads == whole[first:]
        for number, acknowledged in load.acknowledged.items():
            if group in load.routes[number]:
                assert [each for each in whole if each.startswith(b"%d:" % number)] == acknowledged


ROUTES = [["orders"], ["orders", "billing"], ["billing"], ["orders", "billing"]]


def test_a_member_that_lost_its_disk_is_replaced_under_load_and_a_second_loss_survived(
    make_cluster: MakeCluster,
) -> None:
    folder = make_cluster({"orders": 3, "billing": 3})
    load = Load(folder.path, ROUTES)
    read: list[bytes] = []

    async def run() -> None:
        async with antiphon.connect(folder.path) as client, load.running():
            reader = client.subscribe("orders")

            async def keep_reading() -> None:
                async for delivery in reader:
                    read.append(delivery.payload)

            reading = asyncio.create_task(keep_reading())
            await load.goes_on()
            await asyncio.to_thread(lose, folder, "orders.2")
            await load.goes_on()
            done = await asyncio.to_thread(replace, folder, "orders.2")
            assert (done.lost, done.newcomer) == ("orders.2", "orders.4")
            assert done.position > 0
            await asyncio.to_thread(cluster.kill, folder, "orders.1")  # the newcomer and one other are a majority
            await load.goes_on(300)
            await asyncio.to_thread(cluster.start, folder)
            await load.goes_on()
            first = await anext(aiter(client.subscribe("orders", member="orders.3", follow=False)))
            assert first.position == 0
            with pytest.raises(PositionGone) as gone:
                await anext(aiter(client.subscribe("orders", member="orders.4", follow=False)))
            assert gone.value.first == done.position
            for _ in range(8):  # by chance at the newcomer first, which sends the reader on
                assert (await anext(aiter(client.subscribe("orders", follow=False)))).position == 0
            assert client.groups["orders"] == ["orders.1", "orders.4", "orders.3"]
            reading.cancel()

    asyncio.run(run())
    assert cluster.stop(folder)
    check_logs(folder, load)
    whole = log_of(folder, "orders.3")[1]
    assert len(read) > load.count // 3
    assert read == whole[: len(read)]
    assert log_of(folder, "orders.4")[0] > 0


def test_a_trace_with_a_replacement_is_whole_and_every_promise_holds(make_cluster: MakeCluster) -> None:
    """Where the journal of the lost one is still there: only its machine was gone."""
    folder = make_cluster({"orders": 3, "billing": 3}, trace=True)
    load = Load(folder.path, ROUTES)

    async def run() -> None:
        async with load.running():
            await load.goes_on()
            await asyncio.to_thread(cluster.kill, folder, "billing.1")
            await asyncio.to_thread(replace, folder, "billing.1")
            await load.goes_on()
            await asyncio.to_thread(cluster.kill, folder, "billing.2")  # its trace is written again from its journal
            await load.goes_on()
            await asyncio.to_thread(cluster.start, folder)

    asyncio.run(run())
    assert cluster.stop(folder)
    check_logs(folder, load)
    (facts,) = read_facts(folder.trace)
    assert facts.groups["billing"] == ["billing.1", "billing.2", "billing.3", "billing.4"]
    assert (facts.faulty, facts.incomplete, facts.drained) == (["billing.1"], [], True)
    rows = list(read_rows(folder.trace, facts.run))
    (adopted,) = [row for row in rows if row.kind == "adopt"]
    assert (adopted.process, adopted.position) == ("billing.4", log_of(folder, "billing.4")[0])
    assert set(verdicts(facts, check_run(facts, rows)).values()) == {Status.HOLDS, Status.NOT_PROMISED}


def test_what_was_kept_on_disk_for_the_lost_one_is_let_go(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"g": 3}, spill_bytes=1 << 14)

    async def send(count: int) -> None:
        async with antiphon.connect(folder.path) as client:
            for _ in range(count):
                await client.multicast("g", bytes(20_000))

    def spilled() -> list[Path]:
        return [path for process in ("g.1", "g.3") for path in folder.process(process).spill.glob("*g.2-*")]

    asyncio.run(send(5))
    lose(folder, "g.2")
    asyncio.run(send(50))
    assert becomes(lambda: bool(spilled()))
    replace(folder, "g.2")
    asyncio.run(send(5))
    assert becomes(lambda: not spilled())
    for process in folder.config.processes:
        cluster.kill(folder, process)
    cluster.start(folder)
    asyncio.run(send(5))
    assert cluster.stop(folder)
    assert log_of(folder, "g.4")[0] + len(log_of(folder, "g.4")[1]) == 65


def test_one_after_the_other_until_all_are_others_and_a_client_by_address_follows(make_cluster: MakeCluster) -> None:
    """What a member learns of replacements while it is down, it takes from the folder before anything else."""
    folder = make_cluster({"g": 3})
    load = Load(",".join(folder.config.addresses.values()), [["g"], ["g"]])

    async def run() -> None:
        async with load.running():
            await load.goes_on()
            for lost, newcomer in (("g.1", "g.4"), ("g.2", "g.5"), ("g.3", "g.6"), ("g.4", "g.7")):
                await asyncio.to_thread(lose, folder, lost)
                assert (await asyncio.to_thread(replace, folder, lost)).newcomer == newcomer
                await load.goes_on()

    asyncio.run(run())
    assert folder.config.groups == {"g": ["g.7", "g.5", "g.6"]}
    assert folder.config.ever == {"g": ["g.1", "g.2", "g.3", "g.4", "g.5", "g.6", "g.7"]}
    assert cluster.stop(folder)
    cluster.start(folder)  # their journals, and clean ends

    async def once_more() -> bytes:
        async with antiphon.connect(folder.path) as client:
            await client.multicast("g", b"last")
            read = [delivery.payload async for delivery in client.subscribe("g", start="earliest", follow=False)]
            return read[-1]

    assert asyncio.run(once_more()) == b"last"
    assert cluster.stop(folder)
    logs = {member: log_of(folder, member) for member in folder.config.groups["g"]}
    assert len({payloads[-1000:][-1] for _, payloads in logs.values()}) == 1


def test_who_was_down_takes_it_from_the_folder_and_who_was_replaced_never_returns(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"g": 5, "h": 3})
    for down in ("g.5", "h.1"):
        cluster.kill(folder, down)
    cluster.kill(folder, "g.2")  # its disk is intact, and nobody knows
    done = replace(folder, "g.2")
    assert done.newcomer == "g.6"
    cluster.start(folder)
    assert becomes(
        lambda: all(a is not None and a.epoch == 1 and not a.learns for a in cluster.statuses(folder).values())
    )
    status = cluster.statuses(folder)["g.5"]
    assert status is not None
    assert becomes(lambda: "g.6" in (cluster.statuses(folder)["g.5"] or status).connected)
    with pytest.raises(UsageError, match=r"^g.2 was replaced by g.6.$"):
        cluster.start(folder, ["g.2"])
    # Where somebody starts it on a folder that has not heard of it, its peers tell it.
    copy = folder.path.with_name("copy")
    shutil.copytree(folder.path / "g.2", copy / "g.2")
    before = ClusterFolder(copy, folder.config)
    text = (folder.path / "cluster.json").read_text()
    assert '"g.6"' in text
    before.config = undone(folder)
    before.save()
    ended = subprocess.run(
        [sys.executable, "-m", "antiphon.runtime.node", "--dir", str(copy), "--process", "g.2"],
        capture_output=True,
        text=True,
        timeout=IN_TIME_SECONDS,
        check=False,
    )
    assert ended.returncode == 3
    assert "g.2 stops: g.2 was replaced by g.6." in ended.stderr
    assert becomes(lambda: cluster.is_well(folder, cluster.answers(folder)))


def undone(folder: ClusterFolder) -> cluster.ClusterConfig:
    """The description before anybody was replaced."""
    config = folder.config
    groups = {str(group): [str(p) for p in members] for group, members in config.topology(0).groups.items()}
    back = {each.newcomer: each.lost for each in config.replaced}
    addresses = {back.get(p, p): at for p, at in config.addresses.items()}
    _, port = config.address("g.1")
    addresses["g.2"] = f"127.0.0.1:{port + 1}"  # nobody dials it there
    return msgspec.structs.replace(config, groups=groups, addresses=addresses, replaced=[])


@pytest.mark.parametrize("seconds", [0.05, 0.3, 0.5, 0.7, 0.9])
def test_a_command_that_was_killed_is_called_again_and_goes_on(make_cluster: MakeCluster, seconds: float) -> None:
    folder = make_cluster({"g": 3})
    load = Load(folder.path, [["g"], ["g"]])
    command = [sys.executable, "-m", "antiphon", "replace", "--dir", str(folder.path), "g.3"]

    async def run() -> None:
        async with load.running():
            await load.goes_on()
            await asyncio.to_thread(lose, folder, "g.3")
            began = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            await asyncio.sleep(seconds)
            began.kill()
            await asyncio.to_thread(began.wait)
            again = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
            if again.returncode:  # the first one had done it all
                assert "g.3 was replaced before, by g.4." in again.stderr
            else:
                assert again.stdout.startswith("g.4 took the place of g.3 after ")
            await load.goes_on()

    asyncio.run(run())
    folder.reload()
    assert folder.config.groups == {"g": ["g.1", "g.2", "g.4"]}
    assert cluster.stop(folder)
    check_logs(folder, load)


def test_of_two_commands_at_once_one_replaces(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"g": 3})
    cluster.kill(folder, "g.3")
    command = [sys.executable, "-m", "antiphon", "replace", "--dir", str(folder.path), "g.3"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ends = [(each.communicate(timeout=IN_TIME_SECONDS), each.returncode) for each in both]
    assert sorted(code for _, code in ends) == [0, 2]
    assert [err for (_, err), code in ends if code] == ["antiphon: g.3 was replaced before, by g.4.\n"]


def test_who_cannot_be_replaced_and_when_not(make_cluster: MakeCluster, tmp_path: Path) -> None:
    folder = make_cluster({"g": 3, "one": 1, "two": 2})

    def refused(name: str, kind: type[Exception] = UsageError, of: ClusterFolder = folder) -> str:
        with pytest.raises(kind) as error:
            replace(of, name)
        return str(error.value)

    pid = folder.process("g.1").pid()
    assert refused("g.1") == f"g.1 is alive, as process {pid}: only a member that is lost for good is replaced."
    assert refused("g.9").startswith("There is no process 'g.9'; the processes are g.1, ")
    why = "so nobody surely knows what it knew."
    assert refused("one.1") == f"one.1 cannot be replaced: its group has no other member, {why}"
    assert refused("two.1") == f"two.1 cannot be replaced: its group has no majority without it, {why}"
    cluster.kill(folder, "g.1", signal.SIGSTOP)  # silent, and not lost
    assert refused("g.1").startswith("g.1 is alive, as process ")
    cluster.kill(folder, "g.1")
    cluster.kill(folder, "g.2")
    assert refused("g.1", Unavailable) == (
        "There is no majority to learn from: of the 3 members of g 2 others have to take part, "
        "and only g.3 can be reached and does."
    )
    assert folder.config.epoch == 0
    for process in folder.config.processes:
        cluster.kill(folder, process)
    assert refused("g.1", Unavailable).startswith(f"Nothing runs in {folder.path}: start the other members")
    other = cluster.create(tmp_path / "skeen", {"g": 3}, protocol="skeen")
    sentence = "A member of skeen cannot be replaced: of the protocols primcast can do that."
    assert refused("g.1", of=other) == sentence
    result = CliRunner().invoke(app, ["replace", "--dir", str(other.path), "g.1"])
    assert isinstance(result.exception, UsageError)


def test_a_wiped_member_is_told_what_to_do_and_status_shows_who_learns(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"g": 3})

    async def send() -> None:
        async with antiphon.connect(folder.path) as client:
            for number in range(20):
                await client.multicast("g", b"%d" % number)

    asyncio.run(send())
    lose(folder, "g.2")
    with pytest.raises(Unavailable) as refused:
        cluster.start(folder)
    assert f"; `antiphon replace --dir {folder.path} g.2` has a new one take its place." in str(refused.value)
    assert replace(folder, "g.2").position == 20
    found = cluster.statuses(folder)
    assert list(found) == ["g.1", "g.4", "g.3"]
    assert all(isinstance(answer, StatusAnswer) and answer.epoch == 1 for answer in found.values())
    assert cluster.is_well(folder, cluster.answers(folder))
    began = time.monotonic()
    cluster.kill(folder, "g.4")
    cluster.start(folder)  # its own journal, in which it adopted
    assert time.monotonic() - began < IN_TIME_SECONDS
    assert becomes(lambda: (cluster.statuses(folder)["g.4"] or found["g.1"]).delivered == 20)
    asyncio.run(send())
    assert cluster.stop(folder)
    assert log_of(folder, "g.4")[0] == 20
    assert log_of(folder, "g.1")[1][20:] == log_of(folder, "g.4")[1]


def test_what_a_caller_makes_up_about_members_changes_nothing(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"g": 3, "two": 2})
    before = (folder.path / "cluster.json").read_bytes()

    def told(*replaced: tuple[str, str, str]) -> str:
        config = folder.config
        for lost, newcomer, address in replaced:
            config = config.replacing(lost, newcomer, address)
        with pytest.raises(UsageError) as refused:
            tell_replaced(config, "g.1")
        return str(refused.value)

    assert told(("g.2", "g.7", "127.0.0.1:1")) == "g.7 cannot have the place of g.2: that is for g.4."
    assert told(("g.9", "g.4", "127.0.0.1:1")) == (
        "There is no process 'g.9'; the processes are g.1, g.2, g.3, two.1, two.2."
    )
    assert told(("two.1", "two.3", "127.0.0.1:1")) == (
        "two.1 cannot be replaced: its group has no majority without it, so nobody surely knows what it knew."
    )
    assert "'nowhere' is not an address" in told(("g.2", "g.4", "nowhere"))
    assert (folder.path / "cluster.json").read_bytes() == before
    cluster.kill(folder, "g.3")
    replace(folder, "g.3")
    folder.config = msgspec.structs.replace(folder.config, replaced=[Replacement("g.2", "g.4")])
    path = folder.path / "cluster.json"
    assert told() == f"g.2 was replaced by g.4 elsewhere: in {path} g.3 was, by g.4."
    folder.config = msgspec.structs.replace(folder.config, replaced=[Replacement("g.1", "g.4")])
    assert told() == "g.1 is alive, and was not replaced."
    folder.reload()
    other = make_cluster({"h": 3}, protocol="tom")
    with pytest.raises(UsageError, match=r"^A member of tom cannot be replaced.$"):
        tell_replaced(other.config.replacing("h.2", "h.4", "127.0.0.1:1"), "h.1")
    assert cluster.is_well(folder, cluster.answers(folder))
    assert cluster.is_well(other, cluster.answers(other))


def test_status_says_what_was_not_seen_to_its_end(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"g": 3})
    cluster.kill(folder, "g.2")
    folder.config = folder.config.replacing("g.2", "g.4", f"{HOST}:{free_ports(1, None)[0]}")
    folder.save()  # and nobody was told
    again = f"call `antiphon replace --dir {folder.path} g.2`."
    sentence = f"g.4 is to take the place of g.2, which was not seen to its end: {again}"
    shown = CliRunner().invoke(app, ["status", "--dir", str(folder.path)])
    assert shown.exit_code == 1
    assert sentence in shown.output
    cluster.start(folder)  # they tell one another, but nobody has seen that
    assert sentence in CliRunner().invoke(app, ["status", "--dir", str(folder.path)]).output
    replace(folder, "g.2")
    shown = CliRunner().invoke(app, ["status", "--dir", str(folder.path)])
    assert shown.exit_code == 0
    assert "is to take" not in shown.output


def epochs(folder: ClusterFolder) -> dict[str, int | None]:
    return {p: None if a is None else a.epoch for p, a in cluster.statuses(folder).items()}


def test_who_was_paused_or_just_starting_hears_of_it_from_those_it_has_not_heard_of(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"g": 3, "h": 3})
    command = [sys.executable, "-m", "antiphon", "replace", "--dir", str(folder.path), "g.2"]
    cluster.kill(folder, "h.3")
    starting = subprocess.Popen(
        [sys.executable, "-m", "antiphon.runtime.node", "--dir", str(folder.path), "--process", "h.3"],
        stdout=subprocess.DEVNULL,
    )
    try:
        assert becomes(lambda: folder.process("h.3").pid() is not None)  # its folder is read, and no peer met
        for paused in ("h.2", "h.3"):
            cluster.kill(folder, paused, signal.SIGSTOP)
        cluster.kill(folder, "g.2")
        said = subprocess.run(command, capture_output=True, text=True, check=True)  # it does not wait long for them
        assert said.stdout.endswith(" h.2 and h.3 have not heard of it yet, and will on meeting g.4.\n")
        for paused in ("h.2", "h.3"):
            cluster.kill(folder, paused, signal.SIGCONT)
        folder.reload()
        assert becomes(lambda: set(epochs(folder).values()) == {1})
        assert becomes(lambda: cluster.is_well(folder, cluster.answers(folder)))
        for lost in ("g.1", "h.1"):  # they are majorities with the newcomer
            cluster.kill(folder, lost)

        async def send() -> None:
            async with antiphon.connect(folder.path) as client:
                await client.multicast(["g", "h"], b"one", timeout=IN_TIME_SECONDS)

        asyncio.run(send())
        again = subprocess.run(command, capture_output=True, text=True, check=False)
        assert again.stderr == "antiphon: g.2 was replaced before, by g.4.\n"
        cluster.start(folder)
        assert cluster.stop(folder)
    finally:
        starting.kill()
        starting.wait()


def test_called_again_it_tells_those_who_have_not_heard(make_cluster: MakeCluster, tmp_path: Path) -> None:
    """Where a member has a folder of its own, which has not heard of it either."""
    folder = make_cluster({"g": 3, "h": 3})
    cluster.kill(folder, "h.3")
    cluster.kill(folder, "g.2")
    elsewhere = ClusterFolder(tmp_path / "elsewhere", folder.config)
    elsewhere.save()
    shutil.move(folder.process("h.3").path, elsewhere.process("h.3").path)
    done = replace(folder, "g.2")
    assert (done.unaware, done.told) == (("h.3",), ())
    try:
        cluster.start(elsewhere, ["h.3"])
        assert becomes(lambda: epochs(folder)["h.3"] == 0)
        said = CliRunner().invoke(app, ["replace", "--dir", str(folder.path), "g.2"])
        assert said.output == "g.2 was replaced before, by g.4; h.3 has heard of it now.\n"
        assert said.exit_code == 0
        assert becomes(lambda: epochs(folder)["h.3"] == 1)
        elsewhere.reload()
        assert elsewhere.config.groups == folder.config.groups
        with pytest.raises(UsageError, match=r"^g.2 was replaced before, by g.4.$"):
            replace(folder, "g.2")
    finally:
        cluster.kill(elsewhere, "h.3")


def test_a_folder_of_another_history_is_refused_and_nothing_is_written(make_cluster: MakeCluster) -> None:
    """As where members were replaced on two machines at once: as many, and others."""
    folder = make_cluster({"g": 3, "h": 3})
    path = folder.path / "cluster.json"
    at_first = folder.config
    cluster.kill(folder, "g.2")
    replace(folder, "g.2")
    own = path.read_text()
    address = f"{HOST}:{free_ports(1, None)[0]}"
    folder.config = at_first.replacing("h.2", "h.4", address).settled("h.4")
    folder.save()
    other = path.read_text()
    history = (
        f"knows of other replacements than {path}: that file has another history, as where members were replaced on two"
    )
    cluster.kill(folder, "h.3")
    for name in ("h.2", "h.3"):
        with pytest.raises(UsageError, match=r"^h.2 was replaced before|knows of other replacements") as refused:
            replace(folder, name)
    assert f"g.1 {history} machines at once." in str(refused.value)
    with pytest.raises(UsageError) as refused:
        tell_replaced(folder.config, "g.1")
    assert f"g.1 {history}" in str(refused.value)
    with pytest.raises(UsageError) as refused:  # as many, but those of the process are told
        tell_replaced(msgspec.structs.replace(at_first.replacing("g.2", "g.4", address)), "g.1")
    assert str(refused.value) == f"g.2 was replaced by g.4 elsewhere: in {path} h.2 was, by h.4."
    assert path.read_text() == other
    cluster.kill(folder, "g.3")
    with pytest.raises(Unavailable) as stopped:
        cluster.start(folder, ["g.3"])
    assert f"g.3 {history}" in str(stopped.value)
    # A longer history that does not follow from the present one.
    folder.config = folder.config.replacing("g.2", "g.4", address).settled("g.4")
    folder.save()
    with pytest.raises(Unavailable) as stopped:
        cluster.start(folder, ["g.3"])
    assert f"g.3 {history}" in str(stopped.value)
    assert epochs(ClusterFolder(folder.path, at_first))["g.1"] == 1
    path.write_text(own)
    cluster.start(folder, ["g.3", "h.3"])
    folder.reload()
    assert becomes(lambda: cluster.is_well(folder, cluster.answers(folder)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"groups": {"g": ["g.1", "g.2", "g.3"]}}, "its members are not those that its replacements have left"),
        ({"addresses": {"g.1": "127.0.0.1:1"}}, "g.4 has no address"),
        ({"replaced": [Replacement("g.8", "g.4")]}, "g.4 cannot have the place of g.8: that is for g.9"),
        ({"replaced": [Replacement("g.8", "g.9")]}, "g.8 cannot have been replaced by g.9: it was no member"),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(tmp_path: Path, change: dict[str, object], why: str) -> None:
    folder = cluster.create(tmp_path / "shop", {"g": 3})
    folder.config = folder.config.replacing("g.2", "g.4", "127.0.0.1:9")
    folder.save()
    assert ClusterFolder.load(folder.path).config == folder.config
    folder.config = msgspec.structs.replace(folder.config, **change)
    folder.save()
    with pytest.raises(UsageError) as refused:
        ClusterFolder.load(folder.path)
    assert str(refused.value) == f"{folder.path}/cluster.json does not describe a cluster: {why}."


def test_a_newcomer_that_has_yet_to_begin_does_not_count(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"g": 3})
    cluster.kill(folder, "g.2")
    folder.config = folder.config.replacing("g.2", "g.4", f"{HOST}:{free_ports(1, None)[0]}")
    folder.save()
    for paused in ("g.1", "g.3"):
        cluster.kill(folder, paused, signal.SIGSTOP)
    cluster.start(folder, ["g.4"])
    answer = ask(folder.config, "g.4")
    assert isinstance(answer, StatusAnswer)
    assert answer.returning
    assert answer.learns
    for paused in ("g.1", "g.3"):
        cluster.kill(folder, paused, signal.SIGCONT)
    replace(folder, "g.2")
    assert not any(a is None or a.learns for a in cluster.statuses(folder).values())


def test_a_command_that_waits_for_another_one_says_so(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"g": 3})
    cluster.kill(folder, "g.2")
    for words in (["up"], ["replace", "g.2"], ["down"]):
        name, *more = words
        command = [sys.executable, "-m", "antiphon", name, "--dir", str(folder.path), *more]
        with folder.commanded():
            waits = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert waits.stderr is not None
            said = "Another command of antiphon's is at work on this folder: waiting."
            assert waits.stderr.readline().strip() == said
            assert waits.poll() is None
        waits.communicate(timeout=IN_TIME_SECONDS)
        assert waits.returncode == 0, name
        if name == "up":
            cluster.kill(folder, "g.2")


@pytest.mark.parametrize("begins_with", ["up", "alone"])
@pytest.mark.parametrize("count", [50, 400])
def test_what_a_member_saw_before_its_folder_was_lost_is_not_said_to_be_there(
    make_cluster: MakeCluster, begins_with: str, count: int
) -> None:
    """Also where it was started once more on an empty folder: what that knows is not all that there was."""
    folder = make_cluster({"g": 3}, trace=True, snapshot_bytes=1 << 16, segment_bytes=1 << 16)

    async def send() -> None:
        async with antiphon.connect(folder.path) as client:
            for _ in range(count):
                await client.multicast("g", bytes(1000))

    asyncio.run(send())
    if count > 100:  # a part of its rows is in files, since a snapshot was taken
        assert becomes(lambda: "g.2" in last_rows(folder.trace, folder.config.run, {}))
    lose(folder, "g.2")
    if begins_with == "up":
        with pytest.raises(Unavailable, match=r"^g.2 did not start: "):
            cluster.start(folder)
    else:
        for away in ("g.1", "g.3"):
            cluster.kill(folder, away)
        cluster.start(folder, ["g.2"])
        cluster.stop(folder)  # cleanly, though it met nobody
        assert folder.process("g.2").stopped_cleanly == (count < 100)
        cluster.start(folder, ["g.1", "g.3"])
    replace(folder, "g.2")
    asyncio.run(send())
    ending = cluster.end(folder)
    (facts,) = read_facts(folder.trace)
    assert facts.incomplete == ["g.2"]
    assert ending.untraced == ("g.2",)
    found = verdicts(facts, check_run(facts, list(read_rows(folder.trace, facts.run))))
    assert Status.BROKEN not in found.values()
    assert Status.INCOMPLETE in found.values()


def test_who_was_refused_on_an_old_copy_has_not_completed_its_trace(make_cluster: MakeCluster, tmp_path: Path) -> None:
    folder = make_cluster({"g": 3}, trace=True)
    own = folder.process("g.2")

    async def send() -> None:
        async with antiphon.connect(folder.path) as client:
            for _ in range(20):
                await client.multicast("g", b"one")

    def put(source: Path, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)

    asyncio.run(send())
    cluster.kill(folder, "g.2")
    put(own.path, tmp_path / "old")
    cluster.start(folder)
    asyncio.run(send())
    assert becomes(lambda: {a and a.delivered for a in cluster.statuses(folder).values()} == {40})
    cluster.kill(folder, "g.2")
    put(own.path, tmp_path / "new")
    put(tmp_path / "old", own.path)
    with pytest.raises(Unavailable, match=r"^g.2 did not start: "):
        cluster.start(folder)
    assert untraced(folder) == ["g.1", "g.2", "g.3"]
    cluster.end(folder)
    assert untraced(folder) == ["g.2"]
    for path in (tmp_path / "new").iterdir():  # its own disk is found again; what it was told meanwhile does not matter
        if path.is_dir():
            put(path, own.path / path.name)
    cluster.start(folder)
    assert cluster.stop(folder)
    assert untraced(folder) == []
