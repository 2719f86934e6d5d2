"""A slice of the campaign in benchmarks/kills.py: kill -9 of any process at any moment, under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarked import benchmark


@pytest.mark.parametrize(("protocol", "seed"), [("skeen", 1), ("tom", 1)])
def test_nothing_is_lost_doubled_or_out_of_order_through_kills(tmp_path: Path, protocol: str, seed: int) -> None:
    run_campaign = benchmark("kills").run_campaign
    report = run_campaign(tmp_path / "cluster", {"a": 3, "b": 3}, kills=6, seed=seed, protocol=protocol, outstanding=8)
    assert report.faults == []
    assert report.kills >= 6
    assert report.receipts > 100
    assert report.unknown == 0
