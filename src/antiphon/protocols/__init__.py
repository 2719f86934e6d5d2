"""One ordering protocol, one file that reads like its paper's figure. A file here is found by itself."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from antiphon.core.component import OrderingProtocol
from antiphon.core.errors import UsageError

DEFAULT_PROTOCOL = "tom"  # goes on when a minority of each group is down


@cache
def protocols() -> dict[str, type[OrderingProtocol]]:
    """Every protocol by its name."""
    found: dict[str, type[OrderingProtocol]] = {}
    for module_info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, OrderingProtocol) and value.__module__ == module.__name__:
                found[value.declaration.name] = value
    return found


def protocol_named(name: str) -> type[OrderingProtocol]:
    found = protocols().get(name)
    if found is None:
        raise UsageError(f"There is no protocol {name!r}; the protocols are {', '.join(protocols())}.")
    return found
