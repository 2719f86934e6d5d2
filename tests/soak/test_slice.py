"""One minute of `antiphon soak`, as its own program: a real cluster under faults of all kinds, and every judge."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SEED = 1


@pytest.mark.long
def test_a_minute_of_faults_breaks_no_promise(tmp_path: Path) -> None:
    folder = tmp_path / "soak"
    command = [sys.executable, "-m", "antiphon", "soak", "--minutes", "1", "--json"]
    command += ["--seed", str(SEED), "--dir", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert ended.stdout, ended.stderr
    report = json.loads(ended.stdout)
    # How fast deliveries go on is judged where a soak is recorded: what runs beside a test may take all the time.
    found = [finding for finding in report["findings"] if finding["kind"] != "late"]
    assert found == [], ended.stderr
    assert report["came_to_its_end"]
    assert ended.returncode == (1 if report["findings"] else 0)
    assert len(report["episodes"]) >= 3
    assert sum(report["faults"].values()) >= 4
    assert report["receipts"] > 1000
    assert set(report["verdicts"].values()) == {"holds", "not promised"}
    at_first = {"g1.1", "g1.2", "g1.3", "g2.1", "g2.2", "g2.3", "c1", "c2", "c3"}
    replaced = report["faults"].get("lost disk", 0) - report["unfelt"].get("lost disk", 0)
    assert at_first <= set(report["memory"])
    assert len(report["memory"]) == len(at_first) + replaced
    assert not list(folder.glob("*.kept")), "what was on the small disks is in its place"
    assert all((folder / process / "delivered").is_dir() for process in ("g1.3", "g2.3"))
