"""A primary that is killed between what it foretells and its sync, on real processes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import antiphon
from antiphon.checks import check_run
from antiphon.core.process import LIFE
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from antiphon.trace import read_facts
from antiphon.trace.parquet import read_rows
from waiting import IN_TIME_SECONDS

MakeCluster = Callable[..., ClusterFolder]

# A node that ends, once a file is there, where it has foretold something and comes to its sync.
NODE = """
import os, runpy, signal, sys
from pathlib import Path
from antiphon.runtime.disk import committer
from antiphon.runtime.node import links

mark, *sys.argv[1:] = sys.argv[1:]
foretell, commit = links.PeerLink.foretell, committer.Committer.commit
said = []

def foretells(link, *arguments):
    foretell(link, *arguments)
    said.append(link)

def commits(self):
    if said and Path(mark).exists():
        os.kill(os.getpid(), signal.SIGKILL)
    said.clear()
    commit(self)

links.PeerLink.foretell, committer.Committer.commit = foretells, commits
runpy.run_module("antiphon.runtime.node", run_name="__main__", alter_sys=True)
"""


def test_what_a_primary_foretold_and_forgot_is_delivered_once(make_cluster: MakeCluster, tmp_path: Path) -> None:
    folder = make_cluster({"a": 3}, only=[], protocol="primcast", trace=True)
    mark = tmp_path / "now"
    command = [sys.executable, "-c", NODE, str(mark), "--dir", str(folder.path), "--process", "a.1"]
    primary = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert primary.stdout is not None

    async def send() -> list[str]:
        async with antiphon.connect(folder.path) as client:
            names = [(await client.multicast(("a",), b"%d" % i, timeout=IN_TIME_SECONDS)).name for i in range(20)]
            mark.touch()
            load = [client.multicast(("a",), b"%d" % i, timeout=IN_TIME_SECONDS) for i in range(20, 60)]
            return names + [receipt.name for receipt in await asyncio.gather(*load)]

    try:
        assert "listens" in primary.stdout.readline()  # it leads as long as nobody suspects it
        cluster.start(folder, ["a.2", "a.3"])
        names = asyncio.run(send())
        assert primary.wait(IN_TIME_SECONDS) == -9
    finally:
        primary.kill()
        primary.stdout.close()
    assert cluster.start(folder) == ["a.1"]
    assert cluster.stop(folder)
    (facts,) = read_facts(folder.trace)
    rows = read_rows(folder.trace, facts.run)
    assert (facts.drained, facts.incomplete, check_run(facts, rows)) == (True, [], [])
    assert sum(cell.payloads for row in rows if row.kind == "deliver" for cell in row.requests or ()) == 3 * len(names)
    mine = {row.message: row.seq for row in rows if row.process == "a.1" and row.kind == "multicast"}
    back = next(row.seq for row in rows if row.process == "a.1" and row.kind == "recover")
    again = [message for message, seq in mine.items() if seq > back and int(str(message).split(":")[1]) < LIFE]
    assert again, "it says again what it had forgotten, as others have delivered it"
