"""One ordering protocol, one file that reads like its paper's figure. A file here is found by itself."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from antiphon.core.component import OrderingProtocol
from antiphon.core.errors import UsageError
from antiphon.core.options import option_choices, parse_options

DEFAULT_PROTOCOL = "primcast"  # durable at a majority in three steps; goes on when a minority of each group is down


@cache
def protocols() -> dict[str, type[OrderingProtocol]]:
    """Every protocol by its name."""
    return {name: protocol for file in _files() for name, protocol in _declared_in(file).items()}


@cache
def _files() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


@cache
def _declared_in(file: str) -> dict[str, type[OrderingProtocol]]:
    module = importlib.import_module(f"{__name__}.{file}")
    return {
        value.declaration.name: value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, OrderingProtocol) and value.__module__ == module.__name__
    }


def protocol_named(name: str) -> type[OrderingProtocol]:
    """One protocol; the file of its name is looked at first, so that a process does not load all of them."""
    found = (_declared_in(name) if name in _files() else {}).get(name) or protocols().get(name)
    if found is None:
        raise UsageError(f"There is no protocol {name!r}; the protocols are {', '.join(protocols())}.")
    return found


def options_of(protocol: type[OrderingProtocol], given: Mapping[str, str]) -> msgspec.Struct:
    """The typed options of a protocol; of one that it does not have, those are named that have it."""
    for option in given:
        others = [] if option in protocol.Options.__struct_fields__ else protocols_with(option)
        if others:
            raise UsageError(
                f"The {protocol.declaration.name} protocol has no option {option!r}; {in_words(others)} "
                f"{'has' if len(others) == 1 else 'have'} it."
            )
    return parse_options(protocol, given)


def protocols_with(option: str, value: str | None = None) -> list[str]:
    """The names of those that have an option, or this value of it."""
    return [
        name
        for name, protocol in protocols().items()
        if (option in protocol.Options.__struct_fields__ if value is None else value in _values(protocol, option))
    ]


def _values(protocol: type[OrderingProtocol], option: str) -> list[str]:
    return option_choices(protocol).get(option, [])


def in_words(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
