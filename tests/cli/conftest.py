from __future__ import annotations

import pytest

from cli.command import Command


@pytest.fixture
def antiphon(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capfd)
