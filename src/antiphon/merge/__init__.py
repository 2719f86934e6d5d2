"""The groups' delivered logs become one table in the order of all of them, on Spark: docs/merge.md."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from antiphon.merge.asking import Asked, advance, await_disks, is_running
from antiphon.merge.floors import Floor, behind, floors_of
from antiphon.merge.logs import MergeError, check_protocol, find_logs
from antiphon.merge.table import Increment, MergedTable

if TYPE_CHECKING:
    from antiphon.merge.increment import Merged, merge

__all__ = [
    "Asked",
    "Floor",
    "Increment",
    "MergeError",
    "Merged",
    "MergedTable",
    "advance",
    "await_disks",
    "behind",
    "check_protocol",
    "find_logs",
    "floors_of",
    "is_running",
    "merge",
]


def __getattr__(name: str) -> Any:
    """Spark is loaded when it is asked for: what is refused is refused at once, and a task does not need all of it."""
    if name not in ("Merged", "merge"):
        raise AttributeError(f"module 'antiphon.merge' has no attribute {name!r}")
    return getattr(importlib.import_module("antiphon.merge.increment"), name)
