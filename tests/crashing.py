"""A process that ends at each step of what it does to its disk, in turn."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest


class Crash(BaseException):
    """Stands for the end of the process."""


def crashing_at_each_step(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> Iterator[int]:
    """Run the action again and again, crashing before (odd) or after (even) its 1st, 2nd, ... system call."""
    for crash_at in count(1):
        steps = count(1)

        def stepped(call: Callable[..., Any], steps: Iterator[int], at: int) -> Callable[..., Any]:
            def run(*args: Any) -> Any:
                if next(steps) == at:
                    raise Crash
                result = call(*args)
                if next(steps) == at:
                    raise Crash
                return result

            return run

        with monkeypatch.context() as patch:
            for owner, name in [
                (os, "fsync"),
                (os, "fdatasync"),
                (os, "pwritev"),
                (os, "posix_fallocate"),
                (os, "ftruncate"),
                (Path, "rename"),
                (Path, "unlink"),
            ]:
                patch.setattr(owner, name, stepped(getattr(owner, name), steps, crash_at))
            try:
                action()
            except Crash:
                crashed = True
            else:
                crashed = False
        yield crash_at
        if not crashed:
            return
