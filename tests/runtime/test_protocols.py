"""Every protocol that the simulator knows also runs on real processes, with nothing to add: two of them each day.

All of them: `python benchmarks/real_processes.py`.
"""

from __future__ import annotations

import time

import pytest

from antiphon.protocols import DEFAULT_PROTOCOL, protocols
from benchmarked import benchmark

DAY = int(time.time()) // 86_400
NAMES = sorted(set(protocols()) - {DEFAULT_PROTOCOL})  # the default runs in most tests
TODAY = [NAMES[(2 * DAY + place) % len(NAMES)] for place in (0, 1)]


@pytest.mark.parametrize("protocol", TODAY)
def test_a_protocol_keeps_its_promises_on_real_processes(protocol: str) -> None:
    (ran,) = benchmark("real_processes").run_all([(protocol, {})])
    assert ran.refused == ""
    assert ran.broken == []
    assert ran.drained
    assert ran.holds, ran
    assert ran.delivered >= 2 * ran.receipts, "each in a group of two members at least"
