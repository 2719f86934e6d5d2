"""What a process can be told to do: words become a typed command, and its bytes an input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from antiphon.core.buffers import encode_inside
from antiphon.core.component import OrderingProtocol
from antiphon.core.contract import Command, name_of
from antiphon.core.errors import UsageError


def command_names(protocol: type[OrderingProtocol], options: Any) -> list[str]:
    """Those that can be told without any value."""
    kinds = protocol.commands(options)
    return sorted(name_of(kind) for kind in kinds if not any(f.required for f in msgspec.structs.fields(kind)))


def parse_command(protocol: type[OrderingProtocol], options: Any, words: Sequence[str]) -> bytes:
    """``leave``, or a command with values: ``name value=1``. Encoded, as the input Tell carries it."""
    name = words[0] if words else ""
    known = {name_of(kind): kind for kind in protocol.commands(options)}
    if name not in known:
        what = f"it can be told to {' or '.join(sorted(known))}" if known else "with these options it has no commands"
        raise UsageError(f"The {protocol.declaration.name} protocol has no command {name!r}; {what}.")
    return encode_inside(_with_values(name, known[name], words[1:]))


def _with_values(name: str, kind: type[Command], words: Sequence[str]) -> Command:
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    try:
        for value, _, text in (word.partition("=") for word in words):
            if value not in types:
                choice = f"its values are {', '.join(types)}" if types else "it takes none"
                raise UsageError(f"The command {name} has no value {value!r}; {choice}.")
            values[value] = msgspec.convert(text, types[value], strict=False)
        return kind(**values)
    except (msgspec.ValidationError, TypeError) as error:
        raise UsageError(f"A bad value for the command {name}: {error}.") from None
