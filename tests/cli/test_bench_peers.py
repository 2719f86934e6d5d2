"""`antiphon bench peers`, as a user meets it where nothing is installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from antiphon.bench.cluster import Percentiles
from antiphon.bench.peers import PEERS, Figures, Served
from antiphon.bench.peers.compare import PeerComparison
from cli.command import Command

FIGURES = Figures(messages_per_second=1000.0, receipt_ms=Percentiles(1.0, 2.0), latency_ms=Percentiles(1.5, 3.0))


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is: tests/bench/test_peers.py does that."""
    monkeypatch.setattr(Served, "measure", lambda self, folder, work: FIGURES)
    monkeypatch.setattr(type(PEERS["bare-log"]), "measure", lambda self, folder, work: FIGURES)


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("antiphon.bench.peers.pysyncobj._is_installed", lambda: False)


@pytest.mark.usefixtures("nothing_installed")
def test_what_is_not_installed_is_skipped_with_a_line(antiphon: Command, tmp_path: Path) -> None:
    result = antiphon("bench", "peers", "--dir", tmp_path, "--plot", tmp_path / "figures.svg")
    assert result.code == 0
    assert {"Antiphon, primcast", "bare replicated log"} <= {
        line.strip().partition("  ")[0] for line in result.out.splitlines()
    }
    skipped = [line for line in result.out.splitlines() if "is skipped" in line]
    assert skipped == [
        "etcd is skipped: etcd is not on the PATH (on Debian: apt-get install etcd-server).",
        "Redis Streams, in memory is skipped: redis-server is not on the PATH "
        "(on Debian: apt-get install redis-server).",
        "Redis Streams, append-only file is skipped: redis-server is not on the PATH "
        "(on Debian: apt-get install redis-server).",
        "NATS JetStream, 3 replicas in files is skipped: nats-server is not on the PATH "
        "(on Debian: apt-get install nats-server).",
        "PySyncObj, with its journal is skipped: the module pysyncobj is not installed (pip install pysyncobj).",
        "Corosync CPG is skipped: corosync is not on the PATH (on Debian: apt-get install corosync libcpg4).",
    ]
    assert "<svg" in (tmp_path / "figures.svg").read_text()[:1000]
    assert [each.name for each in tmp_path.iterdir()] == ["figures.svg"]  # nothing is left of the others


def test_machines_get_json(antiphon: Command) -> None:
    result = antiphon("bench", "peers", "bare-log", "--protocol", "tom", "--protocol", "skeen", "--json")
    found = json.loads(result.out)
    assert [(row["work"], row["title"]) for row in found["rows"]] == [
        *(("rate", title) for title in ("Antiphon, tom", "Antiphon, skeen", "bare replicated log")),
        *(("idle", title) for title in ("Antiphon, tom", "Antiphon, skeen", "bare replicated log")),
        *(("wide", title) for title in ("Antiphon, tom", "Antiphon, skeen")),
    ]
    assert found["rows"][0]["figures"]["messages_per_second"] == 1000.0
    assert set(PeerComparison.__struct_fields__) == set(found)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["kafka"], "'kafka' is not a peer: there are bare-log, etcd, redis, redis-aof, nats, pysyncobj, corosync."),
        (["--work", "sleep"], "'sleep' is not a kind of work: there are rate, idle, wide."),
        (["--dir", "nowhere"], "'nowhere' is not a folder."),
        (["--protocol", "rumour"], "rumour"),
    ],
    ids=str,
)
def test_bad_input_gets_a_sentence(antiphon: Command, arguments: list[str], complaint: str) -> None:
    result = antiphon("bench", "peers", *arguments)
    assert (result.code, result.out) == (2, "")
    assert complaint in result.err
    assert result.err.count("\n") == 1
