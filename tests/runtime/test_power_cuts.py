"""A slice of benchmarks/power_cuts.py, and logs that it must catch."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from antiphon.runtime.disk import scan, segments
from antiphon.runtime.disk.files import LogFiles, Spare
from benchmarked import benchmark


@pytest.fixture
def power_cuts() -> ModuleType:
    return benchmark("power_cuts")


def test_nothing_durable_is_lost_by_power_cuts(power_cuts: ModuleType) -> None:
    ends: Counter[str] = Counter()
    for seed in range(40):
        ends += power_cuts.run_seed(seed)
    assert ends.total() > 150
    assert len(ends) > 12, "cuts of many kinds"


def without_syncs(patch: pytest.MonkeyPatch, power_cuts: ModuleType) -> None:
    patch.setattr(power_cuts.Disk, "_fdatasync", lambda disk, descriptor: None)


def without_syncs_of_names(patch: pytest.MonkeyPatch, power_cuts: ModuleType) -> None:
    patch.setattr(LogFiles, "sync", lambda files: None)


def with_names_before_contents(patch: pytest.MonkeyPatch, power_cuts: ModuleType) -> None:
    def publish(files: LogFiles, spare: Spare, path: Path) -> int:
        spare.path.rename(path)
        files.sync()
        files._spares.remove(spare)
        return spare.fd

    patch.setattr(LogFiles, "publish", publish)


def without_salt(patch: pytest.MonkeyPatch, power_cuts: ModuleType) -> None:
    class NoChance:
        def __getattr__(self, name: str) -> Any:
            return bytes if name == "urandom" else getattr(os, name)

    patch.setattr(segments, "os", NoChance())


def with_blocks_that_are_never_checked(patch: pytest.MonkeyPatch, power_cuts: ModuleType) -> None:
    patch.setattr(scan, "is_whole", lambda data, offset, header: True)


@pytest.mark.parametrize(
    "broken",
    [
        without_syncs,
        without_syncs_of_names,
        with_names_before_contents,
        without_salt,
        with_blocks_that_are_never_checked,
    ],
)
def test_a_broken_log_is_caught(
    power_cuts: ModuleType, monkeypatch: pytest.MonkeyPatch, broken: Callable[[pytest.MonkeyPatch, ModuleType], None]
) -> None:
    broken(monkeypatch, power_cuts)
    for seed in range(60):
        try:
            power_cuts.run_seed(seed)
        except power_cuts.Wrong:
            return
    pytest.fail("it survived 60 seeds")
