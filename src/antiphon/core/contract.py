"""What the class of a component says about it, worked out once: handlers, timers, commands, wire format, state."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any, ClassVar, NamedTuple, Union, get_origin, get_type_hints

import msgspec

from antiphon.core.buffers import decoder_beside, decoder_inside
from antiphon.core.errors import BadFrame
from antiphon.core.model import MessageId


class Wire(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message between components of the same kind at different processes. Each kind has its own small tag."""


class Timer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Something to be reminded of. Two timers of a component are the same when they are equal, values included."""


class Command(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Something that whoever runs the system tells one process to do. Only an ordering protocol takes commands."""


class Contract(msgspec.Struct, frozen=True):
    """Of one class of components."""

    handlers: dict[type[Wire], str]
    timers: dict[type[Timer], str]
    commands: dict[type[Command], str]
    subjects: dict[type[Wire], Callable[[Any], tuple[MessageId, ...]]]
    messages: dict[type[Wire], str | None]  # the field of a wire message that holds a multicast message
    decode: Callable[..., Any]
    decode_timer: Callable[[bytes], Any]
    decode_command: Callable[[bytes], Any]
    state: type[msgspec.Struct]
    decode_state: Callable[[bytes], Any]


def contract_of(kind: type) -> Contract:
    contract = _contracts.get(kind)
    if contract is None:
        contract = _contracts[kind] = _contract(kind)
    return contract


_contracts: dict[type, Contract] = {}
_RUNS_LATER = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_HOOKS = frozenset({"on_suspect", "on_trust", "on_topology", "on_turn_end", "on_recover"})


def _contract(kind: type) -> Contract:
    handlers, timers, commands = handlers_of(kind)
    tags = [wire.__struct_config__.tag for wire in handlers]
    assert all(isinstance(tag, int) for tag in tags), f"{kind}: every wire message has a small number as its tag"
    assert len(set(tags)) == len(tags), f"{kind}: two wire messages have the same tag"
    state = msgspec.defstruct(f"{kind.__name__}State", _state_fields(kind), array_like=True)
    return Contract(
        handlers=handlers,
        timers=timers,
        commands=commands,
        subjects={wire: _subjects(wire) for wire in handlers},
        messages={wire: "message" if "message" in wire.__struct_fields__ else None for wire in handlers},
        decode=decoder_beside(Union[tuple(handlers)]) if handlers else _decode_nothing,  # noqa: UP007 - at run time
        decode_timer=decoder_inside(Union[tuple(timers)]) if timers else _decode_nothing,  # type: ignore[arg-type] # noqa: UP007
        decode_command=decoder_inside(Union[tuple(commands)]) if commands else _decode_nothing,  # type: ignore[arg-type] # noqa: UP007
        state=state,
        decode_state=decoder_inside(state),
    )


def _decode_nothing(*_: Any) -> Any:
    raise BadFrame("This component has no handler for anything of this kind.")


class Handlers(NamedTuple):
    """The names of a component's handlers, by what they handle."""

    messages: dict[type[Wire], str]
    timers: dict[type[Timer], str]
    commands: dict[type[Command], str]


def handlers_of(kind: type) -> Handlers:
    """Find ``on_<message>(self, sender, message: SomeWire)``, ``on_<timer>(self, timer: SomeTimer)`` and
    ``on_<command>(self, command: SomeCommand)``."""
    messages, timers, commands = found = Handlers({}, {}, {})
    for name in dir(kind):
        if not name.startswith("on_") or name in _HOOKS:
            continue
        handler = getattr(kind, name)
        hints = [hint for key, hint in get_type_hints(handler).items() if key != "return"]
        handled = hints[-1] if hints and isinstance(hints[-1], type) else None
        if handled is not None and len(hints) == 2 and issubclass(handled, Wire):
            messages[handled] = name
        elif handled is not None and len(hints) == 1 and issubclass(handled, Timer):
            timers[handled] = name
        elif handled is not None and len(hints) == 1 and issubclass(handled, Command):
            commands[handled] = name
        else:
            raise TypeError(
                f"{kind.__name__}.{name} handles nothing: write on_<message>(self, sender, message: Message), "
                f"on_<timer>(self, timer: Timer) or on_<command>(self, command: Command)"
            )
        expected = f"on_{name_of(handled)}"
        if name != expected:
            raise TypeError(f"{kind.__name__}.{name} handles a {handled.__name__}: it must be called {expected}")
        if not inspect.isfunction(handler) or handler.__code__.co_flags & _RUNS_LATER:
            raise TypeError(f"{kind.__name__}.{name} would not run when it is called: a handler is a plain function")
    for timer in _timers_named_in(kind):
        if timer not in timers:
            raise TypeError(f"{kind.__name__} sets a {timer.__name__}, but has no on_{name_of(timer)}")
    return found


def _timers_named_in(kind: type) -> Iterator[type[Timer]]:
    """The types of timers that a component's own methods speak of, also inside a comprehension or a lambda."""
    for method in vars(kind).values():
        for function in _functions_of(method):
            for name in _names_in(function.__code__):
                found = function.__globals__.get(name)
                if isinstance(found, type) and issubclass(found, Timer) and found is not Timer:
                    yield found


def _functions_of(method: object) -> Iterator[FunctionType]:
    if isinstance(method, property):
        parts: tuple[object, ...] = (method.fget, method.fset, method.fdel)
    else:
        parts = (inspect.unwrap(method) if callable(method) else getattr(method, "__func__", None),)
    yield from (part for part in parts if isinstance(part, FunctionType))


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names_in(inner)


def name_of(kind: type) -> str:
    """What a type is called where people write it: in a handler's name, or as a command."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def _subjects(wire: type[Wire]) -> Callable[[Any], tuple[MessageId, ...]]:
    """How to find the multicast messages that a wire message is about: its ``message`` or its ``id``."""
    fields = wire.__struct_fields__
    if "message" in fields:
        return lambda sent: (sent.message.id,)
    if "id" in fields:
        return lambda sent: (sent.id,)
    return lambda sent: ()


def _state_fields(kind: type) -> list[tuple[str, Any]]:
    """The annotated variables of a component, but for its parts and upcalls: they are wiring, not state."""
    fields: dict[str, Any] = {}
    for ancestor in reversed(kind.__mro__):
        if "FRAMEWORK" in vars(ancestor) or not hasattr(ancestor, "FRAMEWORK"):
            continue
        hints = get_type_hints(ancestor, include_extras=True)
        for name in inspect.get_annotations(ancestor):
            hint = hints[name]
            is_part = isinstance(hint, type) and hasattr(hint, "FRAMEWORK")
            if name != "options" and not is_part and get_origin(hint) not in (ClassVar, _CALLABLE):
                fields[name] = hint
    return list(fields.items())


_CALLABLE = get_origin(Callable[[], None])
