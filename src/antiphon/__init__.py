"""Totally ordered multicast to any set of groups: durable, genuine, and proved by Spark on every trace."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon.core.errors import AntiphonError, OutcomeUnknown, Unavailable, UsageError
    from antiphon.runtime.client import Client, Delivery, Receipt, connect

__version__ = "0.1.0"

__all__ = [
    "AntiphonError",
    "Client",
    "Delivery",
    "OutcomeUnknown",
    "Receipt",
    "Unavailable",
    "UsageError",
    "__version__",
    "connect",
]

_HOMES = {
    "AntiphonError": "antiphon.core.errors",
    "Client": "antiphon.runtime.client",
    "Delivery": "antiphon.runtime.client",
    "OutcomeUnknown": "antiphon.core.errors",
    "Receipt": "antiphon.runtime.client",
    "Unavailable": "antiphon.core.errors",
    "UsageError": "antiphon.core.errors",
    "connect": "antiphon.runtime.client",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for, and no more: a simulation needs no sockets, a client no simulation."""
    if name not in _HOMES:
        raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
