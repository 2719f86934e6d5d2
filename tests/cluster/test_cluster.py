"""Jobs on a cluster: they get the same verdicts, find the package, read what only Spark can, and outlive a worker."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from antiphon import checks
from antiphon.checks import check_run
from antiphon.simulation import simulate
from antiphon.sweep.folder import SweepFolder
from antiphon.sweep.spec import parse_spec
from antiphon.trace import read_facts
from antiphon.trace.parquet import read_rows, to_table, write_run
from cluster.standalone import Cluster, end_of, wait_until
from forgeries import FORGERIES, honest_run
from pipeline.test_merge import Shop, history

PROMISES = ["integrity", "total_order"]  # each takes its seconds
SHUFFLED_FILES = 4  # that a worker holds when it is killed
SPEC = """
seeds = "1-8"
[[grid]]
protocol = ["skeen", "tom"]
groups = "2x2"
messages = 500
"""


@pytest.fixture(scope="session")
def trace(cluster: Cluster) -> Path:
    """A good run, a forged one, and one that pandas wrote, which Spark alone does not read."""
    folder = cluster.folder / "trace of three"
    forgery = next(forgery for forgery in FORGERIES if forgery.name == "neighbours_swapped_at_one_member")
    runs = {"good": honest_run(1, messages=12), "forged": forgery.forge(*honest_run(7)), "pandas": honest_run(2)}
    for name, (facts, rows) in runs.items():
        write_run(folder, msgspec.structs.replace(facts, run=name, promises=PROMISES), rows)
    (file,) = folder.glob("events/run=pandas/*.parquet")
    to_table(runs["pandas"][1]).to_pandas().to_parquet(file)
    return folder


def verdicts_here(trace: Path) -> dict[tuple[str, str], str]:
    """By the judge that needs no Spark."""
    return {
        (facts.run, str(name)): str(status)
        for facts in read_facts(trace)
        for name, status in checks.verdicts(facts, check_run(facts, read_rows(trace, facts.run))).items()
    }


def verdicts_of(found: Any) -> dict[tuple[str, str], str]:
    return {(row["run"], row["property"]): row["status"] for row in found["verdicts"]}


def test_the_workers_python_has_everything_but_the_package(cluster: Cluster) -> None:
    """Else the others would not show that it travels."""
    words = [cluster.python, "-c", "import msgspec, isal, pyarrow, pandas; print('here'); import antiphon"]
    ended = subprocess.run(words, env={}, capture_output=True, text=True, check=False)
    assert ended.stdout == "here\n"
    assert "No module named 'antiphon'" in ended.stderr


def test_a_worker_that_is_killed_changes_no_verdict(cluster: Cluster, trace: Path) -> None:
    """It goes when it holds what others are to fetch. All files are read by Spark: Python does not know the scheme."""
    verify = cluster.start_command("verify", cluster.address(trace), "--master", cluster.master, "--json")
    held = cluster.workers[0].folder
    wait_until(lambda: verify.poll() is not None or len(list(held.rglob("shuffle_*.data"))) >= SHUFFLED_FILES)
    cluster.kill_worker()
    ended = end_of(verify)
    assert ended.code == 1, ended.err
    assert "SparkListenerTaskEnd" in after_the_loss(cluster), "it was killed in the middle"
    assert verdicts_of(ended.json) == verdicts_here(trace)
    assert {row["run"] for row in ended.json["violations"]} == {"forged"}


def after_the_loss(cluster: Cluster) -> list[str]:
    happened = cluster.happened()
    return happened[happened.index("SparkListenerExecutorRemoved") :]


def test_a_sweep_commits_each_run_once_though_a_worker_is_killed(cluster: Cluster) -> None:
    cluster.refill()
    out = cluster.folder / "sweep"
    (cluster.folder / "grid.toml").write_text(SPEC)
    sweep = cluster.start_command("sweep", "grid.toml", "--out", out.as_uri(), "--master", cluster.master, "--json")
    wait_until(lambda: sweep.poll() is not None or any(out.glob("rounds/*/outcomes/[0-9]*.parquet")))
    cluster.kill_worker()
    ended = end_of(sweep)
    assert ended.code == 0, ended.err
    assert "SparkListenerTaskEnd" in after_the_loss(cluster), "it was killed in the middle"
    points = parse_spec(SPEC, "spec").points
    rows = pq.read_table(SweepFolder(out).metrics).to_pylist()
    assert sorted((row["point"], row["seed"]) for row in rows) == [(p, seed) for p in (0, 1) for seed in range(1, 9)]
    for row in rows:
        outcome = simulate(points[row["point"]].scenario(row["seed"]))
        assert (row["events"], row["sends"]) == (outcome.events, outcome.messages_sent)
    assert len(read_facts(SweepFolder(out).trace)) == len(rows)


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> str:
    if find_spec("grpc") is None:
        pytest.skip("Spark Connect's packages are not here: antiphon[connect]")
    return cluster.connect_server()


def test_spark_connect_gives_the_same_verdicts(cluster: Cluster, trace: Path, server: str) -> None:
    ended = cluster.run("verify", cluster.address(trace), "--remote", server, "--json")
    assert ended.code == 1, ended.err
    assert verdicts_of(ended.json) == verdicts_here(trace)


def test_a_sweep_runs_through_spark_connect(cluster: Cluster, server: str) -> None:
    out = cluster.folder / "sweep by connect"
    (cluster.folder / "few.toml").write_text(SPEC.replace("1-8", "1-2").replace("500", "10"))
    ended = cluster.run("sweep", "few.toml", "--out", out.as_uri(), "--remote", server, "--json")
    assert (ended.code, ended.json["runs"], ended.json["failed"]) == (0, 4, 0), ended.err
    rows = pq.read_table(SweepFolder(out).metrics, columns=["point", "seed", "sends"]).to_pylist()
    points = parse_spec((cluster.folder / "few.toml").read_text(), "spec").points
    assert {(row["point"], row["seed"]): row["sends"] for row in rows} == {
        (at, seed): simulate(point.scenario(seed)).messages_sent for at, point in enumerate(points) for seed in (1, 2)
    }


def test_logs_are_merged_through_spark_connect(cluster: Cluster, server: str) -> None:
    shop, out, done = Shop(cluster.folder / "shop"), cluster.folder / "table", dict[str, int]()
    events = history(12, seed=1)
    for rows, until in ((None, 3), (sum(event.count for event in events), 12)):
        shop.deliver(events, done, dict.fromkeys(("orders.1", "billing.1", "shipping.1"), until))
        ended = cluster.run("merge", shop.path.as_uri(), "--out", out.as_uri(), "--remote", server, "--json")
        assert ended.code == 0, ended.err
        assert rows is None or ended.json["rows"] + ended.json["waiting"] == rows
    merged = pq.read_table(sorted(out.glob("increment=*/part-*.parquet"))).to_pylist()
    assert [row["position"] for row in merged] == list(range(len(merged)))
    assert [row["key"] for row in merged] == sorted(row["key"] for row in merged)
