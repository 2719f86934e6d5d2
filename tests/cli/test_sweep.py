"""`antiphon sweep`: what is refused before Spark starts, and what is shown of a sweep that is done."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from antiphon.sweep.folder import POINT, SweepFolder, parameters
from antiphon.sweep.spec import parse_spec
from antiphon.sweep.task import OUTCOMES
from cli.command import Command, Result

SPEC = 'seeds = [7]\n[[grid]]\nprotocol = ["skeen", "tom"]\ngroups = "2x2"\n'


def refused(result: Result, words: str) -> None:
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert words in result.err


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(SPEC)
    return path


def test_what_cannot_be_run_is_refused(antiphon: Command, spec: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused(antiphon("sweep", tmp_path / "none.toml", "--out", out), "none.toml cannot be read: No such file")
    for flag, master in (("master", "spark://far:7077"), ("remote", "sc://far"), ("master", "local-cluster[2,1,1024]")):
        words = f"{out} is a path of this machine, and {master} runs tasks on others: "
        refused(antiphon("sweep", spec, "--out", out, f"--{flag}", master), f"{words}if all of them have")
    refused(antiphon("sweep", spec, "--out", "s3://bucket/out"), "a folder that can be mounted, not s3://bucket/out.")
    refused(antiphon("sweep", spec, "--out", tmp_path), f"{tmp_path} holds something else than a sweep")
    spec.write_text(SPEC.replace("2x2", "2x2x2"))
    refused(antiphon("sweep", spec, "--out", out), "grid.toml, grid 1: '2x2x2' does not name groups")
    assert not out.exists()


def test_a_sweep_that_is_done_is_shown_without_spark(antiphon: Command, spec: Path, tmp_path: Path) -> None:
    sweep = parse_spec(SPEC, "spec")
    folder = SweepFolder.prepare(tmp_path / "a b", sweep, SPEC)
    figures = ("steps_max", "sends_per_multicast", "latency_ms_p50", "latency_ms_p99")
    schema = pa.schema([*OUTCOMES, *POINT, *((name, pa.float64()) for name in figures)])
    rows = [
        {"run": f"p{point}-s7", "point": point, "seed": 7, "cpu_seconds": 0.5, **parameters(sweep.points[point])}
        for point in range(2)
    ]
    rows[0] |= dict.fromkeys(figures, 3.0)
    rows[1]["error"] = "agreement: [g1.1] never delivers c1:1"
    folder.measured(folder.begin([(0, 1)]), pa.Table.from_pylist(rows, schema))
    folder.end(folder.under_way(), keep_trace=False)  # type: ignore[arg-type]
    result = antiphon("sweep", spec, "--out", folder.path.as_uri())
    assert result.code == 1
    assert "2 runs of 2 points, 1 failed: " in result.out
    assert "point 1, seed 7: agreement: [g1.1] never delivers c1:1" in result.out
    found = antiphon("sweep", spec, "--out", folder.path, "--json").json
    assert (found["runs"], found["failed"], found["cpu_seconds"]) == (2, 1, 1.0)
    assert found["failures"] == [
        {"run": "p1-s7", "point": 1, "seed": 7, "error": "agreement: [g1.1] never delivers c1:1"}
    ]
    assert [point["latency_ms_p50"] for point in found["by_point"]] == [3.0, None]
