"""What `antiphon verify` ends with, by its verdicts."""

from __future__ import annotations

import pytest

from antiphon.checks import Status
from antiphon.cli.spark import exit_code


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([], 0),
        ([Status.HOLDS, Status.NOT_PROMISED], 0),
        ([Status.HOLDS, Status.UNCHECKED], 0),
        ([Status.UNCHECKED, Status.INCOMPLETE], 3),
        ([Status.INCOMPLETE, Status.BROKEN, Status.UNCHECKED], 1),
    ],
)
def test_broken_outranks_incomplete_and_unchecked_is_no_failure(statuses: list[Status], code: int) -> None:
    assert exit_code([{"status": str(status)} for status in statuses]) == code
