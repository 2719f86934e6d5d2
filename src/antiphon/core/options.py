"""A protocol's options: texts become typed values, and the values that there are."""

from __future__ import annotations

from collections.abc import Mapping
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


def parse_options(protocol: type[OrderingProtocol], given: Mapping[str, str]) -> msgspec.Struct:
    """Turn ``-o name=value`` texts into the protocol's typed options."""
    name, known = protocol.declaration.name, protocol.Options.__struct_fields__
    for option in given:
        if option not in known:
            choice = f"its options are {', '.join(known)}" if known else "it has no options"
            raise UsageError(f"The {name} protocol has no option {option!r}; {choice}.")
    for option, values in option_choices(protocol).items():
        if given.get(option, values[0]) not in values:
            known_values = f"{', '.join(values[:-1])} or {values[-1]}"
            raise UsageError(f"The {name} protocol's option {option} must be {known_values}, not {given[option]!r}.")
    try:
        return msgspec.convert(dict(given), type=protocol.Options, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"A bad option for {name}: {error}.") from None
