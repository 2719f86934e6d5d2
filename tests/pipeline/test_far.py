"""A trace that only Spark can see is read as one of this machine; and where Spark is to run is understood."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

import antiphon
from antiphon.cli.flags import master_of
from antiphon.cli.session import _why, placed
from antiphon.core.errors import NotJudged, TraceError, UsageError
from antiphon.pipeline import far, masters, read
from antiphon.pipeline.travel import pack
from antiphon.trace import write_facts
from antiphon.trace.parquet import to_table, write_run, write_runs
from antiphon.trace.survey import Survey
from forgeries import honest_run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good runs, alone and in a file of two, with a stranger; one that pandas wrote; others that are not whole."""
    folder = tmp_path_factory.mktemp("far") / "a trace"
    runs = {name: honest_run(i, run=name, messages=2) for i, name in enumerate(["good", "torn", "lost", "odd"])}
    for run in runs.values():
        write_run(folder, *run)
    next(folder.glob("events/run=torn/*.parquet")).write_bytes(b"PAR1 half of it")
    (folder / "runs" / "lost.json").unlink()
    (folder / "runs" / "odd.json").write_text("{")
    of_many = [(msgspec.structs.replace(facts, run=f"many-{i}"), rows) for i, (facts, rows) in enumerate(runs.values())]
    write_runs(folder, "many", of_many)
    lines = (folder / "runs" / "many.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "runs" / "many.jsonl").write_bytes(b"".join(lines[:-1]))
    facts, rows = honest_run(5, run="pandas", messages=2)
    write_facts(folder, msgspec.structs.replace(facts, driver="runtime", rows={"g1.1": 99}))
    (folder / "events" / "run=pandas").mkdir()
    to_table(rows).to_pandas().to_parquet(folder / "events" / "run=pandas" / "g1.1-000000000001-000000000050.parquet")
    (folder / "events" / "README").touch()
    return folder


def told(found: Survey) -> tuple[object, ...]:
    """All of a survey but the addresses."""
    refused = {run: why.replace("file:/", "/") for run, why in found.refused.items() if run != "lost"}
    sizes = list(found.files.values())
    return found.facts, sizes, len(found.recast), refused, len(found.nameless), found.strangers


def rows_of(events: DataFrame) -> list[object]:
    return sorted((row.run, row.process, row.seq, row.kind, row.message) for row in events.collect())


@pytest.mark.parametrize(("by_name", "small_files"), [(256, 64), (1, 1)])
def test_spark_sees_what_this_machine_would_see(
    spark: SparkSession, trace: Path, monkeypatch: pytest.MonkeyPatch, by_name: int, small_files: int
) -> None:
    monkeypatch.setattr(far, "NAMED_MAX", by_name)
    monkeypatch.setattr(read, "SMALL_FILES", small_files)
    here, there = read.open_trace(spark, trace), read.open_trace(spark, trace.as_uri())
    assert told(there.survey) == told(here.survey)
    assert sorted(there.survey.refused) == ["lost", "many-3", "odd", "torn"]
    (incomplete,) = (facts for facts in there.survey.facts if facts.run == "pandas")
    assert incomplete.incomplete == ["g1.1"]
    assert rows_of(there.events) == rows_of(here.events)
    assert there.runs.collect() == here.runs.collect()


def test_what_is_no_trace_there_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        TraceError, match=r"is not a trace, or Spark cannot see it: there is no folder file:///.*/runs\.$"
    ):
        read.read_runs(spark, tmp_path.as_uri())
    (tmp_path / "runs").mkdir()
    with pytest.raises(TraceError, match="it has no runs/"):
        read.read_events(spark, tmp_path.as_uri())
    facts, rows = honest_run(1, run="r", messages=1)
    write_facts(tmp_path, facts)
    assert read.read_runs(spark, tmp_path.as_uri()).count() == 1
    with pytest.raises(TraceError, match="it has no events/"):
        read.read_events(spark, tmp_path.as_uri())
    write_run(tmp_path, facts, rows)
    monkeypatch.setattr(far, "EXAMINED_BYTES_MAX", 100)
    with pytest.raises(TraceError, match=r"\.parquet has more than 0 MiB, and files elsewhere are examined as a whole"):
        read.open_trace(spark, tmp_path.as_uri())


# ---- where to run


def test_where_spark_runs_and_what_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert placed(str(tmp_path), None) == placed(tmp_path.as_uri(), None) == tmp_path
    assert placed(f"{tmp_path.as_uri()}/", "spark://far:7077") == tmp_path.as_uri()
    assert placed("hdfs://far/trace", None) == "hdfs://far/trace"
    with pytest.raises(
        UsageError, match=r"^/here is a path of this machine, and yarn runs tasks on others: .*file:///here"
    ):
        placed("/here", "yarn")
    monkeypatch.setenv("SPARK_REMOTE", "sc://far")
    with pytest.raises(UsageError, match="sc://far runs tasks on others"):
        placed("/here", None)
    assert placed("/here", masters.HERE) == Path("/here"), "a flag outranks the environment"
    monkeypatch.delenv("SPARK_REMOTE")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master 'spark://far:7077' pyspark-shell")
    assert masters.chosen_master() == "spark://far:7077"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("local[2]", "sc://far"), "not both"),
        (("sc://far", None), "--remote sc://far"),
        ((None, "far:15002"), "sc://host:port"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(flags: tuple[str | None, str | None], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        master_of(*flags)


def test_a_server_is_asked_before_spark_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        masters.check_answer(f"spark://127.0.0.1:1,127.0.0.1:{port}")
        masters.check_answer(f"sc://127.0.0.1:{port}/;user_id=me")
    for master in (f"sc://127.0.0.1:{port}", "spark://127.0.0.1:1", "spark://127.0.0.1:many"):
        with pytest.raises(NotJudged, match=f"nobody answers at {master}"):
            masters.check_answer(master)
    masters.check_answer("yarn")


def test_the_package_can_be_imported_from_what_is_sent(tmp_path: Path) -> None:
    """All protocols, too: the search for them must not need a folder."""
    pack(Path(antiphon.__file__).parent, tmp_path / "antiphon.zip")
    simulates = (
        "from antiphon.simulation import simulate; from antiphon.simulation.settings import Settings; import antiphon; "
        "assert '.zip' in antiphon.__file__; assert simulate(Settings(messages=2).scenario(1)).multicasts"
    )
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, 'antiphon.zip'); {simulates}"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("x: Error while reading file file:/a/b.parquet. y", "Spark cannot read /a/b.parquet: it is damaged."),
        ("Error while reading file hdfs://n/b.parquet.\n", "Spark cannot read hdfs://n/b.parquet: it is damaged."),
        ("at\nModuleNotFoundError: No module named 'isal'\n", "The Python of Spark's workers has no isal: "),
        (
            "An error occurred while calling o1.load.\n: java.io.IOException: No",
            "Spark failed: java.io.IOException: No",
        ),
    ],
)
def test_what_spark_says_becomes_one_sentence(said: str, told: str) -> None:
    assert (_why(said) or "").startswith(told)


def test_nothing_is_used_that_spark_connect_does_not_have() -> None:
    used = [
        f"{file.name}: {word}"
        for file in Path(antiphon.__file__).parent.rglob("*.py")
        for word in (".sparkContext", ".rdd", "._jvm", "._jdf", "._jsparkSession")
        if word in file.read_text()
    ]
    assert not used
