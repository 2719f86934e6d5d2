"""When the member that numbers its group's messages is gone for good: the next one goes on where it stopped.

T1-T11 are the lines of docs/protocols/takeover.md. It stands on services/stability.py, which keeps what the next
sequencer needs: members the messages that not every member has, senders those that are not known to be safe.
"""

from __future__ import annotations

from antiphon.core import GroupId, MessageId, ProcessId, Wire
from antiphon.core.errors import BadFrame
from antiphon.services.stability import Ordered, Stability, Stable, Taken


class Collect(Wire, frozen=True, tag=8):
    """The next sequencer to the group: I take over, and hold everything up to ``received``. What do you hold?"""

    epoch: int
    received: int


class Report(Wire, frozen=True, tag=9):
    """Member to the next sequencer: I hold everything up to ``received``, and here is what you miss of it."""

    epoch: int
    received: int
    more: list[Ordered]


class Takeover(Stability):
    def begin(self) -> None:
        if self.options.takeover:
            self.monitor(self.topology.processes)  # T1

    def validate(self, message: Wire) -> None:
        super().validate(message)
        if isinstance(message, Collect | Report) and not self.options.takeover:
            raise BadFrame("With these options nobody takes over.")
        if isinstance(message, Report):
            for each in message.more:
                self.check_numbers(each.number, each.index)
                self.check_group(each.message)
                self.process.checks.body(each.message)

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        return tuple(e.message.id for e in message.more) if isinstance(message, Report) else super().about(message)

    # What the protocol does ------------------------------------------------------------------------------------------

    def sequencer(self, group: GroupId) -> ProcessId:
        """The first member that is left, as far as this process knows."""
        raise NotImplementedError

    def advance(self) -> None:
        """Go on as far as there is no gap."""
        raise NotImplementedError

    def number_all(self) -> None:
        """Number all requests that can have a number."""
        raise NotImplementedError

    # From one sequencer to the next ----------------------------------------------------------------------------------

    def on_suspect(self, process: ProcessId) -> None:
        """The failure detector is perfect: the process is gone for good, though frames of it may still arrive."""
        for group, kept in self.outbox.items():
            members = self.topology.members(group)
            if process in members[: members.index(self.sequencer(group))]:
                for index, m in kept.items():
                    self.ask_for_number(group, index, m)  # T2
        if process not in self.members:
            return
        place = self.members.index(self.me)
        if self.leading:
            self.at_turn_end()  # it is no longer waited for
        elif self.epoch == place:
            self.lead()
        elif all(p in self.suspects for p in self.members[:place]):
            self.enter(place)  # T3
            self.acknowledged = {self.me: self.received}
            self.send(self.unheard(), Collect(self.epoch, self.received))  # T4
            self.repeat_later()
            self.lead()

    def enter(self, epoch: int) -> None:
        """Take nothing from earlier sequencers from now on, and keep nothing of theirs that has a gap before it.

        So what the members that are left hold when all have entered differs in length only: where two of them have a
        message of the same number, it is the same message. The next sequencer goes on with the longest of these.
        """
        self.epoch, self.leading = epoch, False
        self.newest = self.received
        self.held = {number: entry for number, entry in self.held.items() if number <= self.received}

    def unheard(self) -> list[ProcessId]:
        return [p for p in self.remaining() if p not in self.acknowledged]

    def repeat_as_sequencer(self) -> bool:
        if self.leading or self.members[self.epoch :][:1] != (self.me,):
            return super().repeat_as_sequencer()
        unheard = self.unheard()
        self.send(unheard, Collect(self.epoch, self.received))  # T5
        return bool(unheard)

    def on_collect(self, sender: ProcessId, collect: Collect) -> None:  # T6
        if collect.epoch < self.epoch or self.members[collect.epoch] != sender:
            return
        if collect.epoch > self.epoch:
            self.enter(collect.epoch)
        more = [self.held[n] for n in range(collect.received + 1, self.received + 1) if n in self.held]
        self.send(sender, Report(self.epoch, self.received, more))

    def on_report(self, sender: ProcessId, report: Report) -> None:  # T7
        if self.leading or report.epoch != self.epoch or sender not in self.remaining():
            return
        self.acknowledged[sender] = report.received
        for entry in report.more:
            if entry.number > self.received:
                self.held[entry.number] = entry
        self.advance()
        self.lead()

    def lead(self) -> None:
        """Begin to number when every member that is left has said what it holds."""
        if self.unheard():
            return
        self.leading = True  # T8
        self.numbered = self.newest = self.received
        for p in self.remaining():
            self.repeat_to(p, self.acknowledged[p], self.received)  # T9
        # What its predecessor told it may have reached nobody else.
        self.send(self.remaining(), Stable(self.epoch, self.stable, self.numbered))  # T10
        for origin, index in self.safe.items():
            self.send(origin, Taken(index))
        self.number_all()  # T11
        self.at_turn_end()
