"""What a class says is checked when the class is made: a wrong handler never reaches the run that needs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from antiphon.core import Command, Component, MessageId, ProcessId, Timer, Wire
from antiphon.core.contract import contract_of


class Ping(Wire, frozen=True, tag=1):
    count: int


class LongName(Wire, frozen=True, tag=2):
    id: MessageId


class SameTag(Wire, frozen=True, tag=1):
    pass


class Resend(Timer, frozen=True):
    to: ProcessId
    number: int


class Tick(Timer, frozen=True):
    pass


class GoAway(Command, frozen=True):
    pass


def test_handlers_are_found_by_type_and_named_for_it() -> None:
    class Good(Component):
        def on_ping(self, sender: ProcessId, message: Ping) -> None: ...
        def on_long_name(self, sender: ProcessId, message: LongName) -> None: ...
        def on_resend(self, timer: Resend) -> None: ...
        def on_go_away(self, command: GoAway) -> None: ...
        def on_suspect(self, process: ProcessId) -> None: ...
        def on_trust(self, process: ProcessId) -> None: ...
        def on_turn_end(self) -> None: ...

    contract = contract_of(Good)
    assert contract.handlers == {Ping: "on_ping", LongName: "on_long_name"}
    assert contract.timers == {Resend: "on_resend"}
    assert contract.commands == {GoAway: "on_go_away"}
    id = MessageId(ProcessId("p"), 3)
    assert contract.subjects[LongName](LongName(id)) == (id,)
    assert contract.subjects[Ping](Ping(1)) == ()


def test_a_message_handler_of_another_name_fails() -> None:
    with pytest.raises(TypeError, match=r"Bad\.on_pong handles a Ping: it must be called on_ping"):

        class Bad(Component):
            def on_pong(self, sender: ProcessId, message: Ping) -> None: ...


def test_a_timer_handler_of_another_name_fails() -> None:
    with pytest.raises(TypeError, match=r"Bad\.on_resent handles a Resend: it must be called on_resend"):

        class Bad(Component):
            def on_resent(self, timer: Resend) -> None: ...


def test_a_command_handler_of_another_name_fails() -> None:
    with pytest.raises(TypeError, match=r"Bad\.on_leave handles a GoAway: it must be called on_go_away"):

        class Bad(Component):
            def on_leave(self, command: GoAway) -> None: ...


def test_a_timer_without_a_handler_fails() -> None:
    with pytest.raises(TypeError, match="Bad sets a Tick, but has no on_tick"):

        class Bad(Component):
            def begin(self) -> None:
                self.set_timer(Tick(), 5)


def test_a_timer_that_is_set_inside_something_else_counts_too() -> None:
    def in_a_comprehension() -> None:
        class Bad(Component):
            def begin(self) -> None:
                for timer in [Resend(self.me, number) for number in range(3)]:
                    self.set_timer(timer, 1)

    def in_a_function() -> None:
        class Bad(Component):
            def begin(self) -> None:
                def again() -> None:
                    self.set_timer(Resend(self.me, 1), 1)

                again()

    def in_a_property() -> None:
        class Bad(Component):
            @property
            def soon(self) -> Timer:
                return Resend(self.me, 1)

    def in_a_class_method() -> None:
        class Bad(Component):
            @classmethod
            def soon(cls, me: ProcessId) -> Timer:
                return Resend(me, 1)

    for make in (in_a_comprehension, in_a_function, in_a_property, in_a_class_method):
        with pytest.raises(TypeError, match="Bad sets a Resend, but has no on_resend"):
            make()


def test_a_timer_whose_handler_an_heir_took_away_fails_in_the_heir() -> None:
    class Good(Component):
        def begin(self) -> None:
            self.set_timer(Tick(), 5)

        def on_tick(self, timer: Tick) -> None: ...

    with pytest.raises(TypeError, match="on_tick handles nothing"):

        class Bad(Good):
            def on_tick(self) -> None:  # type: ignore[override]
                ...


def test_an_upcall_that_is_named_like_a_handler_fails() -> None:
    with pytest.raises(TypeError, match=r"Bad\.on_decided handles nothing"):

        class Bad(Component):
            def on_decided(self, number: int, value: bytes) -> None: ...


def test_a_handler_that_takes_no_message_fails() -> None:
    with pytest.raises(TypeError, match="handles nothing"):

        class NoMessage(Component):
            def on_ping(self, sender: ProcessId) -> None: ...

    with pytest.raises(TypeError, match="handles nothing"):

        class NoTypes(Component):
            def on_ping(self, sender, message): ...


def test_a_handler_that_would_not_run_when_it_is_called_fails() -> None:
    with pytest.raises(TypeError, match=r"Later\.on_tick would not run when it is called"):

        class Later(Component):
            async def on_tick(self, timer: Tick) -> None: ...

    with pytest.raises(TypeError, match=r"Yielding\.on_ping would not run when it is called"):

        class Yielding(Component):
            def on_ping(self, sender: ProcessId, message: Ping) -> Iterator[None]:
                yield


def test_two_messages_with_the_same_tag_fail() -> None:
    class Bad(Component):
        def on_ping(self, sender: ProcessId, message: Ping) -> None: ...
        def on_same_tag(self, sender: ProcessId, message: SameTag) -> None: ...

    with pytest.raises(AssertionError, match="same tag"):
        contract_of(Bad)
