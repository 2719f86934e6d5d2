"""What can go wrong where inputs that only bring the word of others hold nothing up (docs/protocols/primcast.md, L36).

BY_HAND are primcast's, SLIPS the host's and the process's; tests/papers/test_hearsay.py has schedules for all of them.
"""

from __future__ import annotations

from antiphon.core import GroupId, Message, ProcessId
from antiphon.core.contract import Wire
from antiphon.core.effects import Assured, Log
from antiphon.core.floors import least_number
from antiphon.core.host import Host, Turn
from antiphon.core.inputs import Submit, TurnEnd
from antiphon.core.process import Process
from antiphon.protocols.primcast import Ack, Announce, Append, Primcast, Start
from antiphon.services.epochs import StartEpoch
from antiphon.services.retention import Handed
from mutants.host import Slip

# What is more than hearsay -------------------------------------------------------------------------------------------


class TakesAnyAppendForHearsay(Primcast):
    """Also one with entries that are new: its own vote."""

    def on_append(self, sender: ProcessId, append: Append) -> None:
        super().on_append(sender, append)
        self.only_heard()


class TakesTheEarlyAppendForHearsay(Primcast):
    """Which nobody counts, but for itself."""

    def foretold(self, sender: ProcessId, message: Wire) -> None:
        super().foretold(sender, message)
        if isinstance(message, Append):
            self.only_heard()


class TakesAnyAnnouncementForHearsay(Primcast):
    """Also one that raises the clock that it counts itself."""

    def note(self, group: GroupId, announce: Announce) -> None:
        super().note(group, announce)
        self.only_heard()


class TakesAnyStartForHearsay(Primcast):
    """Also one to which it gives a timestamp."""

    def on_start(self, sender: ProcessId, start: Start) -> None:
        super().on_start(sender, start)
        self.only_heard()


class TakesTheEarlyStartForHearsay(Primcast):
    def foretold(self, sender: ProcessId, message: Wire) -> None:
        super().foretold(sender, message)
        if isinstance(message, Start):
            self.only_heard()


class TakesTheBeginningOfAnEpochForHearsay(Primcast):
    """The log and the clock with which it takes part in that."""

    def on_start_epoch(self, sender: ProcessId, start: StartEpoch) -> None:
        super().on_start_epoch(sender, start)
        self.only_heard()


class TakesWhatIsHandedForHearsay(Primcast):
    """Deliveries that readers see when they are durable, and others behind them that they see at once."""

    def on_handed(self, sender: ProcessId, handed: Handed) -> None:
        super().on_handed(sender, handed)
        self.only_heard()


class TakesAnyAckForHearsay(Primcast):
    """Also one that makes it stand for an epoch, or ask somebody to: what it says of that makes it more than hearsay
    for the host, so nothing shows."""

    def on_ack(self, sender: ProcessId, ack: Ack) -> None:
        super().on_ack(sender, ack)
        self.only_heard()


# The time when a message was sent ------------------------------------------------------------------------------------


class TakesAnyTime(Primcast):
    """Of a sender whose clock is an hour ahead."""

    def time_of(self, sent: int) -> int:
        return sent or super().time_of(sent)


class GivesTheTimeItself(Primcast):
    """Also where the clock is there already: two messages that were sent at one time get one timestamp."""

    def tick(self, m: Message, time: int) -> None:
        self.clock = max(self.clock, least_number(m), time or self.clock + 1)


class TakesItsOwnTimeOnly(Primcast):
    """And so each group another one."""

    def time_of(self, sent: int) -> int:
        return super().time_of(0)


# Of the host and the process -----------------------------------------------------------------------------------------

_hold, _release_early = Host._hold, Host.release_early


def _answers_are_hearsay(self: Host, turn: Turn) -> None:
    """Whatever the process says itself."""
    turn.is_hearsay = self.process.is_hearsay
    _hold(self, turn)


def _the_end_of_a_turn_is_hearsay(self: Host, turn: Turn) -> None:
    turn.is_hearsay = turn.is_hearsay or type(turn.happened) is TurnEnd
    _hold(self, turn)


def _requests_are_hearsay(self: Host, turn: Turn) -> None:
    turn.is_hearsay = turn.is_hearsay or type(turn.happened) is Submit
    _hold(self, turn)


def _once_hearsay_always_hearsay(self: Host, turn: Turn) -> None:
    """What was said of one input holds for those that follow."""
    self.__dict__["was"] = turn.is_hearsay = turn.is_hearsay or self.__dict__.get("was", False)
    _hold(self, turn)


def _overtakes_what_is_not_early(self: Host, turn: Turn) -> None:
    """A delivery that waits for its input."""
    is_late = any(type(e) in (Log, Assured) and not e.early for e in turn.effects)  # type: ignore[union-attr]
    turn.is_hearsay = turn.is_hearsay or (is_late and self.process.is_hearsay)
    _hold(self, turn)


def _stops_once(self: Host) -> bool:
    """At an input that is more than hearsay; the next time it goes on behind that."""
    left = _release_early(self)
    if self._held and self.journal is not None:
        self._heard = max(self._heard, min(self._heard + 1, self.next_index))
    return left


def _looks_no_further(self: Host) -> bool:
    """Than the first input that is not durable, as if that were all."""
    held = self._held
    if self.journal is None or not held:
        return False
    self._foretell()
    return self._begin_turn(held[0])


def _nobody_waits(self: Host, turn: Turn) -> None:
    """For what stands behind an input that is more than hearsay, and that nothing came of."""
    _hold(self, turn)
    self._early = 0


def _what_it_tells_itself_is_hearsay(self: Process) -> None:
    while self._local:
        part, message = self._local.popleft()
        part.handlers[type(message)](self.me, message)


ANSWERS_ARE_HEARSAY = Slip(Host, "_hold", _answers_are_hearsay)
THE_END_OF_A_TURN_IS_HEARSAY = Slip(Host, "_hold", _the_end_of_a_turn_is_hearsay)
REQUESTS_ARE_HEARSAY = Slip(Host, "_hold", _requests_are_hearsay)
ONCE_HEARSAY_ALWAYS_HEARSAY = Slip(Host, "_hold", _once_hearsay_always_hearsay)
OVERTAKES_WHAT_IS_NOT_EARLY = Slip(Host, "_hold", _overtakes_what_is_not_early)
STOPS_ONCE = Slip(Host, "release_early", _stops_once)
LOOKS_NO_FURTHER = Slip(Host, "release_early", _looks_no_further)
NOBODY_WAITS = Slip(Host, "_hold", _nobody_waits)
WHAT_IT_TELLS_ITSELF_IS_HEARSAY = Slip(Process, "_handle_local", _what_it_tells_itself_is_hearsay)

BY_HAND: tuple[type[Primcast], ...] = (
    TakesAnyAppendForHearsay,
    TakesTheEarlyAppendForHearsay,
    TakesAnyAnnouncementForHearsay,
    TakesAnyStartForHearsay,
    TakesTheEarlyStartForHearsay,
    TakesTheBeginningOfAnEpochForHearsay,
    TakesWhatIsHandedForHearsay,
    TakesAnyTime,
    GivesTheTimeItself,
    TakesItsOwnTimeOnly,
)
UNSEEN = (TakesAnyAckForHearsay,)  # nobody can tell it from the protocol
SLIPS = (
    ANSWERS_ARE_HEARSAY,
    THE_END_OF_A_TURN_IS_HEARSAY,
    REQUESTS_ARE_HEARSAY,
    ONCE_HEARSAY_ALWAYS_HEARSAY,
    OVERTAKES_WHAT_IS_NOT_EARLY,
    STOPS_ONCE,
    LOOKS_NO_FURTHER,
    NOBODY_WAITS,
    WHAT_IT_TELLS_ITSELF_IS_HEARSAY,
)
