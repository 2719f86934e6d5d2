"""A slice of the campaign in benchmarks/kills.py: kill -9 of any process at any moment, under load."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def load_campaign() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "kills.py"
    spec = importlib.util.spec_from_file_location("kills", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kills"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("protocol", "seed"), [("skeen", 1), ("tom", 1)])
def test_nothing_is_lost_doubled_or_out_of_order_through_kills(tmp_path: Path, protocol: str, seed: int) -> None:
    run_campaign = load_campaign().run_campaign
    report = run_campaign(tmp_path / "cluster", {"a": 3, "b": 3}, kills=6, seed=seed, protocol=protocol, outstanding=8)
    assert report.faults == []
    assert report.kills >= 6
    assert report.receipts > 100
    assert report.unknown == 0
