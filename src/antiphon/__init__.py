"""Totally ordered multicast to any set of groups: durable, genuine, and proved by Spark on every trace."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon.client import Batch, Client, Delivery, Gap, Receipt, Subscription, View, connect
    from antiphon.core.errors import AntiphonError, OutcomeUnknown, PositionGone, Unavailable, UsageError
    from antiphon.core.version import __version__

__all__ = [
    "AntiphonError",
    "Batch",
    "Client",
    "Delivery",
    "Gap",
    "OutcomeUnknown",
    "PositionGone",
    "Receipt",
    "Subscription",
    "Unavailable",
    "UsageError",
    "View",
    "__version__",
    "connect",
]

_ERRORS = ("AntiphonError", "OutcomeUnknown", "PositionGone", "Unavailable", "UsageError")
_HOMES = dict.fromkeys(_ERRORS, "antiphon.core.errors")
_HOMES["__version__"] = "antiphon.core.version"


def __getattr__(name: str) -> Any:
    """Load what is asked for, and no more: a simulation needs no sockets, a client no simulation, a start nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
    home = importlib.import_module(_HOMES.get(name, "antiphon.client"))
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
