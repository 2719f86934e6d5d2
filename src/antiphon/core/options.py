"""A protocol's options: texts become typed values, and the values that there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, get_args, get_origin

import msgspec

from antiphon.core.component import OrderingProtocol
from antiphon.core.errors import UsageError


def option_choices(protocol: type[OrderingProtocol]) -> dict[str, list[str]]:
    """Every value of every option with few values; a campaign runs over all of them."""
    return {name: list(values) for name, values in _choices(protocol.Options).items()}


@lru_cache(maxsize=256)  # reading a class's annotations is slow, and every process of a simulation asks
def _choices(options: type[msgspec.Struct]) -> dict[str, list[str]]:
    choices: dict[str, list[str]] = {}
    for field in msgspec.structs.fields(options):
        if field.type is bool:
            choices[field.name] = ["false", "true"]
        elif get_origin(field.type) is Literal:
            choices[field.name] = [str(value) for value in get_args(field.type)]
    return choices


def in_order(values: Sequence[str]) -> list[str]:
    """As people look for them: numbers by size. Campaigns draw by the order of the declaration."""
    return sorted(values, key=int) if all(value.isdecimal() for value in values) else list(values)


def described_options(protocol: type[OrderingProtocol]) -> list[str]:
    """Every option with the values that it may have and the one that it has by default."""
    choices, described = option_choices(protocol), []
    for name, default in msgspec.to_builtins(protocol.Options()).items():
        any_value = "..." if isinstance(default, str) else "N"
        values = "|".join(in_order(choices[name])) if name in choices else any_value
        shown = str(default).lower() if isinstance(default, bool) else default
        described.append(f"{name}={values}" + ("" if shown in (None, "") else f", by default {shown}"))
    return described


def parse_options(protocol: type[OrderingProtocol], given: Mapping[str, str]) -> msgspec.Struct:
    """Turn ``-o name=value`` texts into the protocol's typed options."""
    return _parsed(protocol, tuple(given.items()))  # type: ignore[arg-type]  # a class has a hash


@lru_cache(maxsize=1024)  # every process of a simulation asks
def _parsed(protocol: type[OrderingProtocol], items: tuple[tuple[str, str], ...]) -> msgspec.Struct:
    given = dict(items)
    name, known = protocol.declaration.name, protocol.Options.__struct_fields__
    for option in given:
        if option not in known:
            choice = f"its options are {', '.join(known)}" if known else "it has no options"
            raise UsageError(f"The {name} protocol has no option {option!r}; {choice}.")
    for option, values in option_choices(protocol).items():
        if given.get(option, values[0]) not in values:
            *others, last = in_order(values)
            known_values = f"{', '.join(others)} or {last}"
            raise UsageError(f"The {name} protocol's option {option} must be {known_values}, not {given[option]!r}.")
    try:
        return msgspec.convert(given, type=protocol.Options, strict=False)
    except msgspec.ValidationError:
        option = next(option for option in given if not _is_valid(protocol.Options, option, given[option]))
        wanted, why = _wanted(protocol.Options, option)
        raise UsageError(
            f"The {name} protocol's option {option} must be {wanted}, not {given[option]!r}{why and f': {why}'}."
        ) from None


def _is_valid(options: type[msgspec.Struct], option: str, value: str) -> bool:
    try:
        msgspec.convert({option: value}, type=options, strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _wanted(options: type[msgspec.Struct], option: str) -> tuple[str, str]:
    """Which numbers an option may have, and what its description says of them."""
    kind = next(field.type for field in msgspec.structs.fields(options) if field.name == option)
    found = [note for part in (kind, *get_args(kind)) for note in getattr(part, "__metadata__", ())]
    meta = next((note for note in found if isinstance(note, msgspec.Meta)), msgspec.Meta())
    if meta.le is not None:
        return f"a whole number from {meta.ge or 0} to {meta.le}", meta.description or ""
    return "a whole number" + (f" of at least {meta.ge}" if meta.ge is not None else ""), meta.description or ""
