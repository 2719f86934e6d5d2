"""Who leads a group, and what the next one goes on with.

E1-E29 are the lines of docs/protocols/epochs.md. Epochs are numbered, and the members own them in turn. A member that
has promised itself to an epoch does nothing more in an earlier one; the owner of an epoch begins it with what a
majority has promised: the log that went farthest, and a clock that is behind nobody's.

Where a member is replaced, the group goes on in epochs beyond all earlier ones. Whoever takes the place of another
knows nothing of what that one has promised and acknowledged. So it counts in no majority that begins an epoch before
it has taken part in one, with the log of those who count, and what follows from all that they had delivered; and not
before all others have what it cannot give them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, TypeVar

import msgspec

from antiphon.core import Message, MessageId, ProcessId, Table, Timer, Topology, Wire
from antiphon.core.errors import BadFrame
from antiphon.services.group_log import Extent, Logged, Runs, common
from antiphon.services.label import check_numbers, majority
from antiphon.services.retention import NOTHING, Adoption, Known, Retention, SayDelivered

Of = TypeVar("Of")

EPOCHS = 1 << 32  # with the same members; the first of them belongs to nobody, but for those before any replacement


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A log's entry as it travels."""

    timestamp: int
    message: Message
    numbers: tuple[int, ...]


class Elect(Wire, frozen=True, tag=5):
    """Member to the owner of an epoch: begin it, for those before you are suspected."""

    epoch: int


class NewEpoch(Wire, frozen=True, tag=6):
    """Candidate to its group: promise me to leave all earlier epochs. This is the log that I have."""

    epoch: int
    extent: Extent


class Promised(Wire, frozen=True, tag=7):
    """Member to candidate: I have left them; this is my clock, my log, and what of it you lack, from ``first`` on."""

    epoch: int
    clock: int
    extent: Extent
    floor: int
    first: int
    entries: list[Entry]
    delivered: int
    learns: bool  # I do not count yet


class StartEpoch(Wire, frozen=True, tag=8):
    """The owner of an epoch to a member that has promised: we begin with this log. You lack it from ``first`` on."""

    epoch: int
    clock: int
    extent: Extent
    floor: int
    first: int
    entries: list[Entry]
    adoption: Adoption | None  # for one that has nothing


class Learnt(Wire, frozen=True, tag=16):
    """Who has taken another's place to its group: I count from now on."""


class Vote(NamedTuple):
    """The newest acknowledgement of a member: in this epoch it has the log up to this length, and this clock."""

    epoch: int
    length: int
    clock: int


class Patience(Timer, frozen=True):
    """The owner of the epoch promised last has had its time."""


class Epochs(Retention):
    led = True

    clock: int
    promised: int  # the last epoch that was promised
    epoch: int  # the last one that was adopted
    resigned: bool  # it owned the epoch promised last, and may have forgotten what it said in it
    votes: Table[ProcessId, Vote]  # of the members of the own group
    pledges: Table[ProcessId, Promised]  # to a candidate, until it begins its epoch
    followers: list[ProcessId]  # to whom a primary has sent what it leads
    asked: int  # the last epoch for which somebody was asked to stand
    failed: int  # epochs promised since something was last delivered
    patient: bool  # whether it waits before it asks
    newcomers: list[ProcessId]  # the mates of which it must be supposed that they do not
    calls: Table[ProcessId, Elect | NewEpoch]  # from those who know of a topology that has yet to come here
    goal: int  # as owner of an epoch: how much some member had delivered that promised
    pupils: Table[ProcessId, Promised]  # those who have nothing, until this one has delivered so much

    PATIENCE_NS: ClassVar[int] = 10_000_000
    DOUBLINGS_MAX: ClassVar[int] = 6

    def initialise(self) -> None:
        super().initialise()
        self.clock = self.promised = self.epoch = self.asked = self.failed = self.goal = 0
        self.votes, self.pledges, self.calls, self.pupils = {}, {}, {}, {}
        self.newcomers, self.followers = [], []
        self.patient = self.resigned = False

    def begin(self) -> None:
        if self.members:
            self.monitor(self.mates)
            self.promised = self.vacant
            self.newcomers = [p for p in self.mates if p in self.topology.joined]
            if self.me in self.topology.joined:  # E21
                self.learns, self.begun = True, NOTHING
            elif self.owner(self.epoch) == self.me:
                self.followers = list(self.mates)

    def validate(self, message: Wire) -> None:
        super().validate(message)
        extent = getattr(message, "extent", None)
        if extent is not None:
            check_runs(extent)
        if isinstance(message, (Promised, StartEpoch)):
            for entry in message.entries:
                check_numbers((entry.timestamp,))
                self.check_entry(entry.message, entry.numbers)
            if message.entries and message.first + len(message.entries) != message.extent.length:
                raise BadFrame("What comes of a log is its end.")
        if isinstance(message, StartEpoch) and message.adoption is not None:
            self.check_adoption(message.adoption)

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        if isinstance(message, (Promised, StartEpoch)):
            return tuple(entry.message.id for entry in message.entries)
        return super().about(message)

    # Who leads ------------------------------------------------------------------------------------------------------

    def owner(self, epoch: int) -> ProcessId:
        return owner_among(self.members, epoch)

    @property
    def vacant(self) -> int:
        """The epoch that is beyond all those with other members. Nobody leads it, where others were members before."""
        return self.topology.since(self.group) * EPOCHS

    def is_of_others(self, epoch: int) -> bool:
        """Whether it is of a topology that has yet to come here."""
        return epoch // EPOCHS > self.topology.since(self.group)

    @property
    def lacks_leader(self) -> bool:
        return self.is_vacant or self.resigned or self.owner(self.promised) in self.suspects

    @property
    def is_vacant(self) -> bool:
        """Members were replaced, and nobody has been promised anything since."""
        return self.vacant > 0 and self.promised == self.vacant

    @property
    def is_active(self) -> bool:
        """Whether it takes part in the epoch that it has adopted."""
        return self.promised == self.epoch and not self.resigned

    @property
    def leads(self) -> bool:
        return self.is_active and self.owner(self.epoch) == self.me

    def led_by(self) -> ProcessId | None:
        return self.owner(self.promised) if self.members and not self.resigned else None

    def resign(self) -> None:
        """Somebody else is to begin an epoch: in the one that it owns this member does and acknowledges nothing more,
        as if it had promised another one."""
        if self.members and not self.is_vacant and self.owner(self.promised) == self.me:
            self.resigned = True  # E28
            self.pledges, self.pupils = {}, {}
            self.move_on()

    def on_suspect(self, process: ProcessId) -> None:  # E1
        self.move_on()

    def move_on(self) -> None:
        """An owner that is suspected makes way for the next one, but not for all of them as fast as they come, and not
        where there was never anything to lead. Who has promised and takes no part knows that there is, whatever it has
        of it: somebody stood. In the first epoch nobody did, and who has resigned may remember less than others."""
        if not self.lacks_leader:
            return
        knows = self.held or self.log.length or (self.promised > self.vacant and not self.is_active)
        if not knows and self.resigned:
            knows = any(vote.length for vote in self.votes.values())  # E29
        if not knows:
            return
        if not self.failed:
            self.elect()
        elif not self.patient:
            self.patient = True
            self.set_timer(Patience(), self.PATIENCE_NS << min(self.failed - 1, self.DOUBLINGS_MAX))  # E2

    def on_patience(self, timer: Patience) -> None:
        self.patient = False
        if self.lacks_leader:
            self.elect()

    def elect(self) -> None:
        """Of the later owners the first that is not suspected is to stand; a member does not suspect itself."""
        count = len(self.members)
        later = range(self.promised + 1, self.promised + count + 1)
        out = {*self.suspects, *self.newcomers, *([self.me] if self.learns else [])}  # E22
        epoch = next((e for e in later if self.owner(e) not in out), None)  # E3
        if epoch is None or epoch == self.asked:
            return
        self.asked = epoch
        if self.owner(epoch) == self.me:
            self.stand(epoch)
        else:
            self.send(self.owner(epoch), Elect(epoch))  # E4

    def on_elect(self, sender: ProcessId, elect: Elect) -> None:
        if sender not in self.mates or elect.epoch <= self.promised or self.owner(elect.epoch) != self.me:
            return
        if self.is_of_others(elect.epoch):
            self.calls[sender] = elect
        elif not self.learns:
            self.stand(elect.epoch)

    def promise(self, epoch: int) -> None:
        assert epoch > self.promised, "promises only grow"
        self.promised, self.asked, self.pledges, self.pupils = epoch, 0, {}, {}
        self.resigned = False
        self.failed += 1

    # Promises -------------------------------------------------------------------------------------------------------

    def stand(self, epoch: int) -> None:
        self.promise(epoch)  # E5
        self.send(self.mates, NewEpoch(epoch, self.log.extent(self.epoch)))  # E6
        self.lead()

    def on_new_epoch(self, sender: ProcessId, new: NewEpoch) -> None:  # E7
        if sender not in self.mates or new.epoch <= self.promised or self.owner(new.epoch) != sender:
            return
        if self.is_of_others(new.epoch):
            self.calls[sender] = new
            return
        self.has_learnt(sender)
        self.promise(new.epoch)
        mine, its = self.log.extent(self.epoch), new.extent
        first = mine.length
        if mine.rank > its.rank:
            first = max(common(mine.runs, its.runs), mine.base)
        entries = self.entries_since(first)
        promised = Promised(new.epoch, self.clock, mine, self.floor, first, entries, self.delivered, self.learns)
        self.send(sender, promised)  # E8
        self.move_on()  # E9

    def on_promised(self, sender: ProcessId, promised: Promised) -> None:  # E10
        if sender not in self.mates or promised.epoch != self.promised or self.owner(self.promised) != self.me:
            return
        if self.resigned:
            return
        if not promised.learns:
            self.has_learnt(sender)
        if self.is_active:
            self.start(sender, promised)  # E11
        else:
            self.pledges[sender] = promised
            self.lead()

    def lead(self) -> None:
        if not self.has_majority:
            return
        self.clock = self.greatest_clock()  # E12
        self.goal = max((self.delivered, *(pledge.delivered for pledge in self.pledges.values())))
        best = self.best_log()
        if best is not None:
            self.adopt_log(best)  # E13
        pledges, self.pledges, self.followers = self.pledges, {}, []
        self.adopt_epoch()
        for member in self.mates:
            if member in pledges:
                self.start(member, pledges[member])  # E14
        self.begin_epoch()

    @property
    def has_majority(self) -> bool:
        return sum(not pledge.learns for pledge in self.pledges.values()) + 1 >= majority(self.members)  # E23

    def greatest_clock(self) -> int:
        return max((self.clock, *(pledge.clock for pledge in self.pledges.values())))

    def best_log(self) -> Promised | None:
        """None where nobody's is farther than the own one. An epoch counts more than a length: a log of an epoch that
        nobody followed may be as long as it likes. Of logs that are the same, the one that is cut least."""
        best = max(self.pledges.values(), key=lambda p: (p.extent.rank, -p.extent.base), default=None)
        return best if best is not None and best.extent.rank > (self.epoch, self.log.length) else None

    def start(self, member: ProcessId, pledge: Promised) -> None:
        mine, its = self.log.extent(self.epoch), pledge.extent
        has_nothing = pledge.learns and not its.epoch
        if has_nothing and self.delivered < self.goal:
            self.pupils[member] = pledge  # E24
            return
        first = max(common(mine.runs, its.runs), mine.base)
        entries = self.entries_since(first)
        adoption = self.adoption() if has_nothing else None  # E25
        self.send(member, StartEpoch(self.epoch, self.clock, mine, self.floor, first, entries, adoption))
        self.followers.append(member)

    def on_say_delivered(self, timer: SayDelivered) -> None:
        """Something was delivered, some time ago."""
        super().on_say_delivered(timer)
        if self.pupils and self.delivered >= self.goal:
            pupils, self.pupils = self.pupils, {}
            for member, pledge in pupils.items():
                self.start(member, pledge)

    def on_start_epoch(self, sender: ProcessId, start: StartEpoch) -> None:  # E15
        if start.epoch != self.promised or self.is_active or self.owner(start.epoch) != sender:
            return
        if (self.begun == NOTHING) != (start.adoption is not None):
            return  # it answers a promise that this member never gave
        self.clock = max(self.clock, start.clock)
        if start.adoption is not None:
            self.take_over(sender, start.adoption)  # E26
        self.adopt_log(start)
        if start.adoption is not None:
            self.keep_on()
        self.adopt_epoch()
        self.votes[sender] = Vote(start.epoch, self.log.length, start.clock)
        self.begin_epoch()

    def adopt_epoch(self) -> None:
        self.epoch = self.promised
        self.votes[self.me] = Vote(self.epoch, self.log.length, self.clock)

    def begin_epoch(self) -> None:
        """The epoch promised last is adopted: go on in it."""
        raise NotImplementedError

    # Members that take another's place --------------------------------------------------------------------------------

    @property
    def counts(self) -> bool:
        return not self.learns

    def when_learnt(self) -> None:
        self.send(self.mates, Learnt())

    def on_learnt(self, sender: ProcessId, learnt: Learnt) -> None:  # E27
        if sender not in self.mates:
            return
        self.has_learnt(sender)
        if sender in self.pledges:
            self.pledges[sender] = msgspec.structs.replace(self.pledges[sender], learns=False)
            self.lead()
        self.move_on()

    def has_learnt(self, mate: ProcessId) -> None:
        if mate in self.newcomers:
            self.newcomers.remove(mate)

    def on_topology(self, before: Topology) -> None:
        """Of members that are no more nothing counts, and all go on in an epoch that they never promised."""
        super().on_topology(before)
        if not self.members:
            return
        gone = self.topology.gone_since(before)
        for process in gone:
            for table in (self.votes, self.pledges, self.calls, self.pupils):
                table.pop(process, None)
        self.followers = [p for p in self.followers if p not in gone]
        self.newcomers = [p for p in self.newcomers if p not in gone]
        self.monitor(self.mates)
        if self.promised < self.vacant:
            self.newcomers += [p for p in self.mates if p not in before.group_of]
            self.promise(self.vacant)  # E18
            self.failed = 0
        calls, self.calls = self.calls, {}
        for sender, call in calls.items():  # E19
            if isinstance(call, Elect):
                self.on_elect(sender, call)
            else:
                self.on_new_epoch(sender, call)
        self.move_on()  # E20

    # The log ----------------------------------------------------------------------------------------------------------

    def entries_since(self, first: int) -> list[Entry]:
        return [self.entry(logged) for logged in self.log.since(first)]

    def entry(self, logged: Logged) -> Entry:
        known = self.known[logged.id]
        return Entry(logged.timestamp, known.message, known.numbers)

    def adopt_log(self, end: Promised | StartEpoch) -> None:
        """Go on with the log of another. What of the own one is not in it has no timestamp any more."""
        runs: Runs = end.extent.runs
        same = common(self.log.runs, runs)
        assert self.decided <= same, "what is decided is in every later log"
        if same < end.first:  # what is between the two was cut there
            self.decided, self.floor = end.first, max(self.floor, end.floor)  # E16
        entries = [Logged(entry.timestamp, entry.message.id) for entry in end.entries]
        for logged in self.log.adopt(end.first, runs, entries):
            known = self.known[logged.id]
            known.timestamp = 0  # E17
            self.forget(known)
        for entry in end.entries:
            self.enter(entry)
        if same < end.first:
            self.ahead = {id: place for id, place in self.ahead.items() if place[1] >= end.floor}
        for logged in self.log.entries:
            known = self.known[logged.id]
            decided = known.stamps.get(self.group, logged.timestamp)
            assert logged.timestamp == decided == known.timestamp, "what is decided stays as it is"

    def enter(self, entry: Entry) -> Known:
        """An entry of the log: know its message, also if it was delivered and forgotten."""
        m = entry.message
        known = self.hold(m, entry.numbers) or self.known.get(m.id)
        if known is None:
            assert m.id in self.ahead, "the place of what was forgotten is known until the log has it"
            final, position = self.ahead.pop(m.id)
            known = self.known[m.id] = Known(m, entry.numbers, final=final, position=position)
        known.timestamp = entry.timestamp
        return known


def owner_among(members: Sequence[Of], epoch: int) -> Of:
    """Who owns an epoch among the members of a group; or what is the owner's, of what they have in their order."""
    return members[epoch % EPOCHS % len(members)]


def check_runs(extent: Extent) -> None:
    last = (-1, 0)
    for run in extent.runs:
        check_numbers(run)
        if not (run[0] > last[0] and run[1] > last[1]):
            raise BadFrame("The epochs of a log follow one another.")
        last = run
    if not extent.base <= extent.length or (extent.runs and extent.runs[-1][0] > extent.epoch):
        raise BadFrame("A log has as many entries as it says, of epochs that its member has adopted.")
    check_numbers((extent.epoch, extent.base))
