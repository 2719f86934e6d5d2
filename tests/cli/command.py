"""Runs a command as the shell would, in this process."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from antiphon.cli import main


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Command:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capfd = capfd

    def __call__(self, *arguments: object) -> Result:
        self._monkeypatch.setattr(sys, "argv", ["antiphon", *(str(argument) for argument in arguments)])
        self._capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return Result(ended.value.code, out, err)
