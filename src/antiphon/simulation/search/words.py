"""A move in words, for people."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.core.buffers import Buffers
from antiphon.core.model import Message, MessageId
from antiphon.core.process import Process
from antiphon.simulation.search.values import Move, MoveKind, Players


def tell(players: Players, process: Process, move: Move) -> str:
    """``process``: one of those to whom it may happen, which knows how to read its frames and timers."""
    me = players.names[move.process]
    match move.kind:
        case MoveKind.MULTICAST:
            planned = players.plans[move.process][move.number]
            return f"{me} multicasts {planned.id} to {' and '.join(planned.destinations)}"
        case MoveKind.FRAME:
            part, message = process.decode(move.frame)
            return f"{me} receives {_shown(message)} from {players.names[move.peer]} ({part.layer})"
        case MoveKind.TELL:
            command = process.protocol.contract.decode_command(players.commands[move.process][move.number])
            return f"{me} is told {_shown(command)}"
        case MoveKind.FIRE:
            timer = process.parts[move.part].contract.decode_timer(move.timer)
            return f"{me}'s timer {_shown(timer)} fires"
        case MoveKind.CRASH | MoveKind.RESTART | MoveKind.TURN_END:
            return f"{me} {move.kind}"
        case MoveKind.CUT if move.during is not None:
            return f"{me} crashes after {move.number} of what it does as {tell(players, process, move.during)}"
        case _:
            return f"{me} {move.kind} {players.names[move.peer]}"


def _shown(value: Any) -> str:
    """A value without what would only fill the line: messages are their ids, bodies their sizes."""
    if isinstance(value, MessageId):
        return str(value)
    if isinstance(value, Message):
        return str(value.id)
    if isinstance(value, Buffers):
        return f"{value.size} bytes"
    fields = value.__struct_fields__ if isinstance(value, msgspec.Struct) else getattr(value, "_fields", None)
    if fields is not None:
        inside = ", ".join(f"{name}={_shown(getattr(value, name))}" for name in fields)
        return f"{type(value).__name__}({inside})"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_shown, value))})"
    return repr(value)
