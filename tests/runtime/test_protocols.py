"""Every protocol that the simulator knows also runs on real processes, with nothing to add: two of them each day.

Those that can mend losses take their turn a second time, with datagrams of which a tenth is thrown away.

All of them: `python benchmarks/real_processes.py`.
"""

from __future__ import annotations

import os

import pytest

from antiphon.protocols import DEFAULT_PROTOCOL
from benchmarked import benchmark

DAY = int(os.environ["ANTIPHON_TESTS_OF_DAY"])
ALL = [asked for asked in benchmark("real_processes").everything() if asked[0] != DEFAULT_PROTOCOL]  # most tests run it
TODAY = [ALL[(2 * DAY + place) % len(ALL)] for place in (0, 1)]


@pytest.mark.parametrize(("protocol", "options"), TODAY)
def test_a_protocol_keeps_its_promises_on_real_processes(protocol: str, options: dict[str, str]) -> None:
    (ran,) = benchmark("real_processes").run_all([(protocol, options)])
    assert ran.refused == ""
    assert ran.broken == []
    assert ran.drained
    assert ran.holds, ran
    assert ran.delivered >= 2 * ran.receipts, "each in a group of two members at least"
