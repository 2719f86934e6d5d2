"""What a process can be told to do: refused in one sentence where it cannot, else an input like any other."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.core import (
    Assumptions,
    Command,
    Declaration,
    Failures,
    NoOptions,
    OrderingProtocol,
    Process,
    ProcessId,
    Topology,
)
from antiphon.core.commands import command_names, parse_command
from antiphon.core.errors import UsageError
from antiphon.core.inputs import Begin, Tell, decode_input, encode_input


class Rest(Command, frozen=True):
    pass


class MoveTo(Command, frozen=True):
    place: str
    speed: int = 1


class Walker(OrderingProtocol):
    declaration = Declaration(
        name="walker", title="", source="", assumes=Assumptions(failures=Failures.MINORITY), promises=()
    )
    walked: list[tuple[str, int]]

    def initialise(self) -> None:
        self.walked = []

    def on_rest(self, command: Rest) -> None:
        self.walked.append(("here", 0))

    def on_move_to(self, command: MoveTo) -> None:
        self.walked.append((command.place, command.speed))


class Sitter(Walker):
    @classmethod
    def commands(cls, options: Any) -> tuple[type[Command], ...]:
        return ()


def walker() -> Process:
    return Process(ProcessId("a.1"), Topology.sized({"a": 1}), Walker)


def told(*words: str) -> bytes:
    return parse_command(Walker, NoOptions(), words)


def test_a_command_is_an_input_and_survives_the_journal_and_a_snapshot() -> None:
    process = walker()
    process.step(Begin(0))
    for words in (["rest"], ["move_to", "place=x"], ["move_to", "speed=3", "place=y"]):
        happened = decode_input(bytes(encode_input(Tell(1, told(*words)))))
        assert process.step(happened) == []
    again = walker()
    again.restore(process.snapshot())
    for each in (process, again):
        assert each.protocol.walked == [("here", 0), ("x", 1), ("y", 3)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "The walker protocol has no command ''; it can be told to move_to or rest."),
        (["jump"], "The walker protocol has no command 'jump'; it can be told to move_to or rest."),
        (["rest", "x=1"], "The command rest has no value 'x'; it takes none."),
        (["move_to", "x=1"], "The command move_to has no value 'x'; its values are place, speed."),
        (["move_to", "place=x", "speed=fast"], "A bad value for the command move_to: .*int.*"),
        (["move_to"], "A bad value for the command move_to: .*place.*"),
    ],
)
def test_what_it_cannot_do(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=f"^{sentence}$"):
        told(*words)


def test_a_protocol_may_have_commands_with_some_options_only() -> None:
    assert command_names(Walker, NoOptions()) == ["rest"]  # the other one wants a value
    assert command_names(Sitter, NoOptions()) == []
    with pytest.raises(UsageError, match="has no command 'rest'; with these options it has no commands"):
        parse_command(Sitter, NoOptions(), ["rest"])
