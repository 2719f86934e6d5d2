"""The symmetric protocol with one mistake each. Every one must be caught by the suite's own seeds."""

from __future__ import annotations

from antiphon.core import Message, ProcessId
from antiphon.protocols.symmetric import Acknowledge, Flush, Hand, Relay, Stamped, Symmetric
from antiphon.services.timestamp import Timestamp


class DeliversOnReceipt(Symmetric):
    def missing(self, timestamp: Timestamp) -> list[ProcessId]:
        return []


class WaitsForAMajority(Symmetric):
    def missing(self, timestamp: Timestamp) -> list[ProcessId]:
        missing = super().missing(timestamp)
        return missing if 2 * len(missing) >= len(self.members) else []


class DoesNotRaiseTheClock(Symmetric):
    def take(self, timestamp: Timestamp, m: Message) -> None:
        clock = self.clock
        super().take(timestamp, m)
        self.clock = max(clock, 1)


class DoesNotAcknowledge(Symmetric):
    """Waits for its own next message to say as much."""

    def acknowledge(self, holds: dict[ProcessId, int]) -> None:
        if self.clock % 5:
            super().acknowledge(holds)


class AcknowledgesToTheSendersOnly(Symmetric):
    def acknowledge(self, holds: dict[ProcessId, int]) -> None:
        self.told = self.clock
        self.send([p for p in self.untold if p not in self.dead], Acknowledge(self.clock, holds))


class PromisesTooMuch(Symmetric):
    """Says that nothing earlier will come than a time that its clock has yet to reach."""

    def acknowledge(self, holds: dict[ProcessId, int]) -> None:
        self.clock += 1
        super().acknowledge(holds)
        self.clock -= 1


class SaysWhatItHasSaid(Symmetric):
    """Takes every message of its own for an acknowledgement, even one that was sent before."""

    def on_turn_end(self) -> None:
        if self.told:
            self.untold = {}
        else:
            super().on_turn_end()


class DoesNotCountItsOwnMessages(Symmetric):
    """Two messages of a member can have one timestamp."""

    def stamp(self, m: Message) -> None:
        self.clock -= 1 if self.clock > self.told else 0
        super().stamp(m)


class ForgetsItsClockOnRestart(Symmetric):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.clock = 0


class ForgetsWhatItHeardOnRestart(Symmetric):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.latest = dict.fromkeys(self.latest, 0)


class BreaksTiesByArrival(Symmetric):
    def deliver_ready(self) -> None:
        while self.queue and not self.missing(self.queue[0]):
            time = self.queue[0].time
            timestamp = next(t for t in self.holdback if t.time == time)
            self.queue.remove(timestamp)
            self.queue.sort()
            m = self.holdback.pop(timestamp)
            if self.is_new(m):
                self.deliver(m, timestamp)
            if self.options.leave_out:
                self.settle(timestamp, m)


class EverybodyStampsForThoseOutside(Symmetric):
    """Messages from outside are handed to all members in turn: the order of their sender is lost."""

    def multicast(self, m: Message) -> None:
        (group,) = m.destinations
        if self.topology.group_of.get(self.me) == group:
            self.stamp(m)
        else:
            members = self.topology.members(group)
            self.handed.setdefault(group, []).append(m)
            self.send(members[m.id.number % len(members)], Hand(m))


class ShowsTheMessageToABystander(Symmetric):
    def stamp(self, m: Message) -> None:
        super().stamp(m)
        bystanders = [p for p in self.topology.processes if p not in self.members]
        self.send(bystanders[:1], Stamped(self.clock, m))


class AcknowledgesAlsoToOtherGroups(Symmetric):
    """As if all processes of the system were one group."""

    def others(self) -> list[ProcessId]:
        return [p for p in self.topology.processes if p != self.me and p not in self.dead]


# Without the dead ----------------------------------------------------------------------------------------------------


class DoesNotWaitUntilAllHaveIt(Symmetric):
    """Later timestamps from everybody are enough for it: a sender that dies may leave it alone with the message."""

    def missing(self, timestamp: Timestamp) -> list[ProcessId]:
        return [p for p in super().missing(timestamp) if self.latest[p] < timestamp.time]


class LeavesOutAtOnce(Symmetric):
    """Does not wait for what the others have of the dead."""

    def leave_out(self) -> None:
        self.left_out = list(self.dead)
        self.deliver_ready()


class NeverLeavesOut(Symmetric):
    def leave_out(self) -> None:
        pass


class TellsNothingOfTheDead(Symmetric):
    """Flushes without its messages of the dead."""

    def send(self, to, message) -> None:  # type: ignore[no-untyped-def]
        if not isinstance(message, Relay):
            super().send(to, message)


class TakesFramesOfTheDead(Symmetric):
    """What was under way comes after it has said what it has."""

    def is_heard(self, sender: ProcessId) -> bool:
        return sender in self.latest

    def on_flush(self, sender: ProcessId, flush: Flush) -> None:
        if sender not in self.dead:
            super().on_flush(sender, flush)


class TakesAnOldFlush(Symmetric):
    """Whoever has flushed once is not waited for again, when somebody else has died."""

    def on_flush(self, sender: ProcessId, flush: Flush) -> None:
        super().on_flush(sender, Flush([*self.members]))


class FlushesTheNewestDeadOnly(Symmetric):
    """Of those who died before, it takes its earlier words to be enough."""

    def send(self, to, message) -> None:  # type: ignore[no-untyped-def]
        if not isinstance(message, Relay) or message.process == self.dead[-1]:
            super().send(to, message)


class DoesNotAcknowledgeWhatWasRelayed(Symmetric):
    def on_relay(self, sender: ProcessId, relay: Relay) -> None:
        super().on_relay(sender, relay)
        self.untold.pop(relay.process, None)


class DropsTheMessagesOfTheDead(Symmetric):
    """When it leaves a member out it also drops what of it is not delivered."""

    def leave_out(self) -> None:
        before = self.left_out
        super().leave_out()
        if self.left_out != before:
            for timestamp in [t for t in self.queue if t.process in self.left_out]:
                self.queue.remove(timestamp)
                del self.holdback[timestamp]
            self.queue.sort()
            self.deliver_ready()


class DoesNotHandAgain(Symmetric):
    def hand_again(self, process: ProcessId) -> None:
        pass


class HandsTheNewestFirst(Symmetric):
    """When it hands its messages to the next contact."""

    def hand_again(self, process: ProcessId) -> None:
        for messages in self.handed.values():
            messages.reverse()
        super().hand_again(process)
        for messages in self.handed.values():
            messages.reverse()


class DeliversWhatWasHandedTwiceTwice(Symmetric):
    def is_new(self, m: Message) -> bool:
        return True


class IsDoneBeforeAllHaveIt(Symmetric):
    """Tells the sender outside that its message is delivered when it has only been multicast."""

    def stamp(self, m: Message) -> None:
        super().stamp(m)
        if self.options.leave_out and m.id.origin != self.me and Timestamp(self.clock, self.me) in self.holdback:
            self.settle_early(m)

    def settle_early(self, m: Message) -> None:
        numbers = dict(self.numbers)
        self.settle(Timestamp(self.clock, self.me), m)
        self.numbers = numbers


class ForgetsTheDeadOnRestart(Symmetric):
    def restore(self, data: bytes) -> None:
        super().restore(data)
        self.dead, self.left_out = [], []


MUTANTS = (
    DeliversOnReceipt,
    WaitsForAMajority,
    DoesNotRaiseTheClock,
    DoesNotAcknowledge,
    AcknowledgesToTheSendersOnly,
    PromisesTooMuch,
    SaysWhatItHasSaid,
    DoesNotCountItsOwnMessages,
    ForgetsItsClockOnRestart,
    ForgetsWhatItHeardOnRestart,
    BreaksTiesByArrival,
    EverybodyStampsForThoseOutside,
    ShowsTheMessageToABystander,
    AcknowledgesAlsoToOtherGroups,
    DoesNotWaitUntilAllHaveIt,
    LeavesOutAtOnce,
    NeverLeavesOut,
    TellsNothingOfTheDead,
    TakesAnOldFlush,
    DoesNotAcknowledgeWhatWasRelayed,
    DropsTheMessagesOfTheDead,
    DoesNotHandAgain,
    HandsTheNewestFirst,
    DeliversWhatWasHandedTwiceTwice,
    IsDoneBeforeAllHaveIt,
)

# What takes a coincidence, and the seed that shows it where all runs have ``leave_out=true`` (test_kept_symmetric.py).
# FlushesTheNewestDeadOnly has a run of its own in tests/papers/test_classics.py.
RARE = {
    ForgetsTheDeadOnRestart: 63,
    TakesFramesOfTheDead: 2545,
}
