"""A process that has lost its journal is refused, whatever it is called; a spare joins in its place."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import antiphon
from antiphon.cli.app import app
from antiphon.core.errors import Unavailable, UsageError
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from antiphon.runtime.net.frames import StatusAnswer

MakeCluster = Callable[..., ClusterFolder]

VIEWS = {"membership": "true"}


@pytest.mark.parametrize(
    ("spares", "options", "sentence"),
    [
        (["g.9"], VIEWS, "There is no process 'g.9' that could be a spare; the processes are g.1, g.2."),
        (["g.1", "g.2"], VIEWS, "Not all members of group g can be spares."),
        (["g.2"], {}, "transis, allack and toto with -o membership=true can have spares."),
    ],
)
def test_spares_that_a_cluster_cannot_have(
    tmp_path: Path, spares: list[str], options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(UsageError) as refused:
        cluster.create(tmp_path / "c", {"g": 2}, protocol="toto", options=options, spares=spares)
    assert sentence in str(refused.value)


def test_who_cannot_be_replaced(tmp_path: Path) -> None:
    folder = cluster.create(tmp_path / "c", {"g": 2, "h": 1}, protocol="toto", options=VIEWS, spares=["g.2"])
    with pytest.raises(UsageError, match=r"No spare is left in the group of h.1"):
        cluster.replace(folder, "h.1")
    with pytest.raises(UsageError, match=r"There is no process 'g.9'"):
        cluster.replace(folder, "g.9")
    assert folder.in_use() == ["g.1", "h.1"]
    assert cluster.replace(folder, "g.1") == "g.2"
    assert folder.in_use() == ["h.1"]


def test_who_is_replaced_takes_one_spare(tmp_path: Path) -> None:
    """Where that one did not start, it is asked for again."""
    spares = ["g.3", "g.4"]
    folder = cluster.create(tmp_path / "c", {"g": 4}, protocol="toto", options=VIEWS, spares=spares)
    assert [cluster.replace(folder, "g.1"), cluster.replace(folder, "g.1")] == ["g.3", "g.3"]
    folder.process("g.3").path.mkdir()
    folder.process("g.3").next_incarnation()  # it was started
    with pytest.raises(UsageError, match=r"^g.1 was replaced before, and another process is in its place; "):
        cluster.replace(folder, "g.1")
    assert cluster.replace(folder, "g.3") == "g.4"
    assert folder.in_use() == ["g.2"]


def views(folder: ClusterFolder, *processes: str) -> list[list[str]]:
    answers = [cluster.ask(folder.config, process) for process in processes]
    return [list(answer.view[1]) for answer in answers if isinstance(answer, StatusAnswer) and answer.view]


def together(folder: ClusterFolder, *processes: str) -> None:
    """Wait until these, and nobody else, are in one view."""
    deadline = time.monotonic() + 300  # where there is next to no processor, minutes
    while views(folder, *processes) != [list(processes)] * len(processes):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_spare_joins_in_the_place_of_one_that_has_lost_its_folder(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"g": 3}, protocol="toto", options=VIEWS, spares=["g.3"])
    together(folder, "g.1", "g.2")

    async def send(count: int) -> None:
        async with antiphon.connect(folder.path) as client:
            await asyncio.gather(*(client.multicast("g", b"x") for _ in range(count)))

    asyncio.run(asyncio.wait_for(send(5), 60))
    cluster.kill(folder, "g.2")
    shutil.rmtree(folder.process("g.2").path)
    with pytest.raises(Unavailable) as refused:
        cluster.start(folder)
    assert str(refused.value).endswith(
        f"; `antiphon up --dir {folder.path} --replace g.2` has a new one join in its place."
    )
    together(folder, "g.1")
    done = CliRunner().invoke(app, ["up", "--dir", str(folder.path), "--replace", "g.2"])
    assert [line.split()[::2] for line in done.output.splitlines()[1:]] == [
        ["g.1", "was"],
        ["g.2", "lost"],
        ["g.3", "started"],
    ]
    together(folder, "g.1", "g.3")
    asyncio.run(asyncio.wait_for(send(5), 60))
    assert cluster.wait_idle(folder, 60)
    assert cluster.is_well(folder, cluster.answers(folder))
    assert cluster.end(folder).delivered


def test_who_is_up_stays_and_who_is_down_with_its_disk_can_be_replaced(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"g": 3}, protocol="toto", options=VIEWS, spares=["g.3"])
    together(folder, "g.1", "g.2")
    command = ["up", "--dir", str(folder.path), "--replace", "g.2"]
    refused = CliRunner().invoke(app, command).exception
    assert isinstance(refused, UsageError)
    assert str(refused) == "g.2 is running: only a process that is down can be replaced."
    assert folder.in_use() == ["g.1", "g.2"]
    together(folder, "g.1", "g.2")
    cluster.kill(folder, "g.2")
    assert CliRunner().invoke(app, command).exit_code == 0
    together(folder, "g.1", "g.3")
    assert cluster.start(folder) == []  # whose place is taken does not come back
    assert isinstance(CliRunner().invoke(app, command).exception, UsageError)

    async def send() -> None:
        async with antiphon.connect(folder.path) as client:
            await asyncio.gather(*(client.multicast("g", b"x", timeout=None) for _ in range(5)))

    def delivered() -> list[int]:
        return [answer.delivered for answer in cluster.statuses(folder).values() if answer is not None]

    before = delivered()
    asyncio.run(send())
    assert cluster.wait_idle(folder, 60)
    assert delivered() == [count + 5 for count in before]
    assert len(before) == 2
    assert cluster.end(folder).delivered
