"""A log for each group, led by a primary; messages to several groups are ordered by the greatest of their timestamps.

L1-L36 are the lines of docs/protocols/primcast.md. Who leads, and what the next one goes on with, is
services/epochs.py; what is known of messages, and how long, services/retention.py; the order of real time, where that
is asked for, services/real_time.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar, Literal

from antiphon.core import (
    Assumptions,
    Declaration,
    Detector,
    Failures,
    GroupId,
    Heap,
    Message,
    MessageId,
    ProcessId,
    Promise,
    Table,
    Timer,
    Topology,
    Transport,
    Wire,
)
from antiphon.core.errors import BadFrame
from antiphon.core.floors import least_number
from antiphon.services.epochs import Entry, Epochs, Vote, owner_among
from antiphon.services.group_log import Logged
from antiphon.services.label import Labeller, check_numbers
from antiphon.services.learner import Announced, Learner, of_majority
from antiphon.services.real_time import RealTime
from antiphon.services.retention import Adoption, Known, RetentionOptions


class Start(Wire, frozen=True, tag=9):
    """Sender to primaries, or member to its own one: here is m, give it your group's timestamp."""

    message: Message
    numbers: tuple[int, ...]
    sent: int = 0  # when m was multicast, by the sender's clock, in microseconds; 0: some time ago


class Append(Wire, frozen=True, tag=10):
    """Primary to followers: what the log goes on with from ``index`` on. It is also its own acknowledgement."""

    epoch: int
    index: int
    clock: int
    entries: list[Entry]


class Announce(Wire, frozen=True, tag=11):
    """Primary to another group: our timestamps for messages to you. It is also its own acknowledgement."""

    epoch: int
    length: int
    entries: list[Announced]


class Ack(Wire, frozen=True, tag=12):
    """Member to its group: I have the log up to ``length``, and give no timestamp up to ``clock`` to anything new."""

    epoch: int
    length: int
    clock: int


class Vouch(Wire, frozen=True, tag=13):
    """Follower to another group, to which new entries are addressed: I have our log up to ``length``."""

    epoch: int
    length: int
    to: GroupId


class Stuck(Wire, frozen=True, tag=14):
    """Member to a group that has given m no timestamp for long: perhaps you never heard of it."""

    message: Message
    numbers: tuple[int, ...]


class Retry(Timer, frozen=True):
    """What was held when the timer was set should be delivered by now."""


class PrimcastOptions(RetentionOptions, frozen=True):
    hybrid: bool = True  # whether clocks keep up with the time of day, so that groups differ by little
    order: Literal["total", "realtime"] = "total"  # realtime: also after all that was delivered when it was multicast
    early: bool = True  # whether what a primary appends leaves before it is durable there


class Primcast(Epochs):
    declaration = Declaration(
        name="primcast",
        title="A log for each group, and the greatest of its timestamps",
        source="after White-Box Atomic Multicast (2019) and PrimCast (2023); docs/protocols/primcast.md",
        assumes=Assumptions(failures=Failures.MINORITY, detector=Detector.EVENTUALLY_STRONG),
        promises=(
            Promise.VALIDITY,
            Promise.INTEGRITY,
            Promise.UNIFORM_AGREEMENT,
            Promise.TOTAL_ORDER,
            Promise.ACYCLIC_ORDER,
            Promise.CLIENT_TURN_ORDER,
            Promise.DURABLE_RECEIPTS,
            Promise.GENUINENESS,
        ),
    )
    Options = PrimcastOptions
    options: PrimcastOptions
    transport = Transport.FIFO
    advances = True
    replaces = True

    real_time: RealTime  # where the options say so

    labeller: Labeller
    learners: Table[GroupId, Learner]
    early: Table[MessageId, Table[GroupId, Announced]]  # what is decided of messages that are not here yet
    announced: int  # the clock of the last acknowledgement to the own group
    appended: int  # as primary: how much of the log was sent
    queue: Heap[tuple[int, MessageId]]  # what is in the log and not delivered, by bound; outdated ones are skipped
    due: dict[MessageId, tuple[GroupId, ...]]  # what the turn's acknowledgement is about, and who hears it
    retries: int  # since something was delivered, as far as intervals grow
    retrying: bool
    overdue: int  # what had come when the timer was set should be delivered when it rings

    RECENT_US: ClassVar[int] = 10_000  # clocks differ by less, and messages are on the way for less, or nobody cares
    RETRY_NS: ClassVar[int] = 200_000_000
    RETRIED_MAX: ClassVar[int] = 64  # messages in one retry: those before stand in the way of all others

    def initialise(self) -> None:
        super().initialise()
        self.labeller = Labeller()
        self.learners, self.early, self.due = {}, {}, {}
        self.queue = []
        self.announced = self.appended = self.retries = self.overdue = 0
        self.retrying = False
        if self.keeps_real_time:
            self.real_time = self.part(
                RealTime,
                "realtime",
                was_delivered=lambda label: self.done.has(label, self.group),
                comes_next=lambda id: (known := self.next_one(self.limit())) is not None and known.message.id == id,
                heard=self.deliver_lowest,
            )

    @property
    def keeps_real_time(self) -> bool:
        return self.options.order == "realtime"

    @classmethod
    def own_promises(cls, options: Any) -> tuple[Promise, ...]:
        promised = super().own_promises(options)
        return (*promised, Promise.REAL_TIME_ORDER) if options.order == "realtime" else promised

    @classmethod
    def foretells(cls, options: Any) -> bool:
        return bool(options.early)

    @classmethod
    def drawn_last(cls, topology: Topology) -> Mapping[str, tuple[str, ...]]:
        kept = ("0", "400", "4000", str(RetentionOptions().kept))
        return {"kept": kept, "order": ("total", "realtime"), "early": ("true", "true", "false")}

    def validate(self, message: Wire) -> None:
        super().validate(message)
        if isinstance(message, (Start, Stuck)):
            self.check_entry(message.message, message.numbers)
            if isinstance(message, Start):
                check_numbers((message.sent,))
        elif isinstance(message, Append):
            for entry in message.entries:
                check_numbers((entry.timestamp,))
                self.check_entry(entry.message, entry.numbers)
        elif isinstance(message, Announce):
            for announced in message.entries:
                check_numbers((announced.at, announced.timestamp, announced.number))
        elif isinstance(message, Vouch) and message.to != self.group:
            raise BadFrame(f"What is for {message.to} is not for {self.me}.")

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        if isinstance(message, Append):
            return tuple(entry.message.id for entry in message.entries)
        if isinstance(message, Announce):
            return tuple(announced.id for announced in message.entries)
        if isinstance(message, Ack):
            return tuple(self.due)
        if isinstance(message, Vouch):
            return tuple(id for id, groups in self.due.items() if message.to in groups)
        return super().about(message)

    # A message comes to the primaries -------------------------------------------------------------------------------

    def multicast(self, m: Message) -> None:  # L1
        start = Start(m, self.labeller.next(self.me, m.destinations).numbers, self.now // 1000)
        if self.topology.group_of.get(self.me) not in m.destinations:
            self.send(self.topology.addressees(m.destinations), start)  # L2
        else:
            self.hold(m, start.numbers)
            self.move_on()
            self.hasten([self.primary(group) for group in m.destinations], start)  # L3

    def hasten(self, to: Iterable[ProcessId], message: Wire) -> None:
        """What does no harm if this process forgets that it said it."""
        if self.options.early:
            self.foretell(to, message)  # L29
        else:
            self.send(to, message)

    def primary(self, group: GroupId) -> ProcessId:
        """As far as this process knows."""
        if group == self.group:
            return self.owner(self.promised)
        return owner_among(self.topology.members(group), self.learner(group).epoch)

    def on_start(self, sender: ProcessId, start: Start) -> None:  # L4
        known = self.hold(start.message, start.numbers)
        if known is None or known.timestamp:
            self.only_heard()
            return
        if self.leads:
            self.propose(known, start.sent)
            return
        self.move_on()
        if sender not in self.members and self.topology.group_of.get(sender) in start.message.destinations:
            self.send(self.owner(self.promised), start)  # L5

    def when_held(self, known: Known) -> None:
        for group, announced in self.early.pop(known.message.id, {}).items():
            known.stamps[group] = announced.timestamp
        self.process.recall(known.message)  # L34
        self.retry_later()

    def propose(self, known: Known, sent: int = 0) -> None:
        self.tick(known.message, self.time_of(sent))  # L6
        self.append(Entry(self.clock, known.message, known.numbers))  # L7
        self.settle()

    def tick(self, m: Message, time: int) -> None:
        self.clock = max(self.clock + 1, least_number(m), time)

    def time_of(self, sent: int) -> int:
        """Of day, in microseconds; of a message on its way, its sender's: where all groups take the same, none of them
        has to raise its clock to the timestamp of another, and to acknowledge that."""
        if not self.options.hybrid:
            return 0
        now = self.now // 1000
        return sent if abs(now - sent) <= self.RECENT_US else now

    def append(self, entry: Entry) -> None:
        """At the primary and at its followers alike."""
        known = self.enter(entry)
        m = entry.message
        self.log.append(self.epoch, Logged(entry.timestamp, m.id))
        heappush(self.queue, (known.bound, m.id))
        self.votes[self.me] = Vote(self.epoch, self.log.length, self.clock)
        self.acknowledge(m.id, m.destinations)

    # The log, its copies, and acknowledgements ------------------------------------------------------------------------

    def acknowledge(self, id: MessageId, groups: tuple[GroupId, ...]) -> None:
        """At the turn's end: to the own group and, where the message is new in the log, to all that it addresses."""
        self.due[id] = groups or self.due.get(id, ())
        self.at_turn_end()

    def on_turn_end(self) -> None:
        """One acknowledgement for all that came together."""
        if self.due and self.is_active:
            groups = self.groups_due()
            if self.leads:
                self.stream(groups)
            else:
                self.send(self.mates, Ack(self.epoch, self.log.length, self.clock))  # L8
                for group in groups:
                    self.send(self.topology.members(group), Vouch(self.epoch, self.log.length, group))  # L9
            self.announced = self.clock
        self.due = {}

    def groups_due(self) -> list[GroupId]:
        return [g for g in self.topology.groups if g != self.group and any(g in gs for gs in self.due.values())]

    def stream(self, groups: list[GroupId]) -> None:
        first = max(self.appended, self.log.base)  # alone in its group, it may have cut already what is new
        entries = self.entries_since(first)
        if entries:
            self.hasten(self.followers, Append(self.epoch, first, self.clock, entries))  # L10
        else:
            self.send(self.followers, Ack(self.epoch, self.log.length, self.clock))  # L11
        for group in groups:
            self.hasten(self.topology.members(group), self.announcement(group, first))
        self.appended = self.log.length

    def announce(self, group: GroupId) -> None:
        """The whole log."""
        self.send(self.topology.members(group), self.announcement(group, self.log.base))

    def announcement(self, group: GroupId, first: int) -> Announce:
        found = []
        for index, logged in enumerate(self.log.since(first), first):
            known = self.known[logged.id]
            destinations = known.message.destinations
            if group in destinations:
                number = known.numbers[destinations.index(group)]
                found.append(Announced(index, logged.timestamp, logged.id, number))
        return Announce(self.epoch, self.log.length, found)  # L12

    def on_append(self, sender: ProcessId, append: Append) -> None:  # L13
        if not self.follows(sender, append):
            return
        is_new = self.extend(append)
        if not (is_new or self.lacks_leader):
            self.only_heard()  # L36
        vote = Vote(append.epoch, append.index + len(append.entries), append.clock)
        self.vote(sender, vote, early=not is_new)
        self.move_on()  # it may have been suspected when there was nothing to lead yet

    def follows(self, sender: ProcessId, append: Append) -> bool:
        """Whether it goes on with this log; no primary leaves anything out, so what is missing will come."""
        leads = append.epoch == self.epoch and self.is_active and self.owner(self.epoch) == sender
        return leads and append.index <= self.log.length

    def extend(self, append: Append) -> bool:
        """Whether anything is new."""
        self.clock = max((self.clock, append.clock, *(entry.timestamp for entry in append.entries)))  # L14
        new = append.entries[self.log.length - append.index :]
        for entry in new:
            self.append(entry)
        return bool(new)

    def on_ack(self, sender: ProcessId, ack: Ack) -> None:  # L15
        if sender not in self.mates:
            return
        if not self.resigned:
            self.only_heard()
        self.vote(sender, Vote(ack.epoch, ack.length, ack.clock), early=True)
        if self.resigned:
            self.move_on()  # it may have waited to hear of something to lead

    def vote(self, member: ProcessId, vote: Vote, *, early: bool = False) -> None:
        """Those of epochs to come are kept for them; those of epochs that were left count no more."""
        if vote.epoch >= max(self.promised, self.votes.get(member, vote).epoch):
            self.votes[member] = vote
            self.settle(early=early)

    def present(self) -> list[Vote]:
        """The acknowledgements of the group's members in this epoch."""
        votes, epoch = self.votes, self.epoch
        nothing = Vote(epoch, 0, 0)
        return [vote if (vote := votes.get(p, nothing)).epoch == epoch else nothing for p in self.members]

    # Decisions --------------------------------------------------------------------------------------------------------

    def settle(self, *, early: bool = False) -> None:
        """Go on as far as the acknowledgements of the own group allow. ``early``: the input only brings the word of
        others, and what this member itself acknowledges came before it."""
        if self.is_active:
            length = min(of_majority([vote.length for vote in self.present()]), self.log.length)  # L16
            for index in range(self.decided, length):
                timestamp, id = self.log.at(index)
                self.stamp(self.known[id], self.group, timestamp, early=early)
            self.decided = max(self.decided, length)
            self.deliver_lowest(early=early)

    def stamp(self, known: Known, group: GroupId, timestamp: int, *, early: bool) -> None:
        """The group has decided on its timestamp for the message."""
        assert known.stamps.get(group, timestamp) == timestamp, "a group decides once"
        is_new = group not in known.stamps
        known.stamps[group] = timestamp
        if is_new and known.message.id.origin == self.me and self.is_final(known) and not known.final:
            self.assure(known.message, max(known.stamps.values()), early=early)  # L27
        if known.timestamp and not known.final:
            heappush(self.queue, (known.bound, known.message.id))

    def learner(self, group: GroupId) -> Learner:
        found = self.learners.get(group)
        if found is None:
            found = self.learners[group] = Learner()
        return found

    def on_announce(self, sender: ProcessId, announce: Announce) -> None:  # L17
        group = self.other_group(sender)
        if group is None or not self.learner(group).heed(sender, announce.epoch, announce.length):
            return
        self.note(group, announce)

    def note(self, group: GroupId, announce: Announce) -> None:
        for announced in announce.entries:
            if not self.was_delivered(announced):
                self.learner(group).entries[announced.at] = announced
                self.follow(announced)
        before = self.votes.get(self.me)
        if self.is_active:
            self.votes[self.me] = Vote(self.epoch, self.log.length, self.clock)
        is_unmoved = self.votes.get(self.me) == before
        if is_unmoved:
            self.only_heard()
        self.learn(group, early=is_unmoved)

    def follow(self, announced: Announced) -> None:
        """At once, and not when it is decided: that would cost another step."""
        self.clock = max(self.clock, announced.timestamp)  # L18
        known = self.known.get(announced.id)
        if known is not None and known.timestamp and announced.timestamp > self.announced:
            self.acknowledge(announced.id, ())  # L19

    def on_vouch(self, sender: ProcessId, vouch: Vouch) -> None:  # L20
        group = self.other_group(sender)
        if group is not None and self.learner(group).heed(sender, vouch.epoch, vouch.length):
            self.only_heard()
            self.learn(group)

    def other_group(self, sender: ProcessId) -> GroupId | None:
        group = self.topology.group_of.get(sender)
        return None if group == self.group else group

    def learn(self, group: GroupId, *, early: bool = True) -> None:
        for announced in self.learner(group).take_decided(self.topology.members(group)):  # L21
            known = self.known.get(announced.id)
            if known is not None:
                self.stamp(known, group, announced.timestamp, early=True)
            elif not self.was_delivered(announced):
                self.early.setdefault(announced.id, {})[group] = announced
        self.settle(early=early)

    # What is foretold -----------------------------------------------------------------------------------------------

    def foretold(self, sender: ProcessId, message: Wire) -> None:
        """Taken as what it will be, but for what its sender adds to a majority: that counts when it comes."""
        if isinstance(message, Start):  # L30
            known = self.hold(message.message, message.numbers)
            if known is not None and not known.timestamp and self.leads:
                self.propose(known, message.sent)
        elif isinstance(message, Append) and self.follows(sender, message):  # L31
            self.extend(message)
            self.settle()
            self.move_on()
        elif isinstance(message, Announce):
            group = self.other_group(sender)
            if group is not None and message.epoch == self.learner(group).epoch:  # L32
                self.note(group, message)

    def on_recover(self) -> None:
        if self.options.early:
            self.process.begin_life()  # L33
            self.labeller.begin_life()
            self.resign()

    # Delivery -------------------------------------------------------------------------------------------------------

    def deliver_lowest(self, *, early: bool = False) -> None:
        """``early``: as for `settle`. Then readers see it at once."""
        limit = self.limit()
        while (known := self.next_one(limit)) is not None and self.may_deliver(known):
            heappop(self.queue)
            self.failed = self.retries = 0
            self.finish(known, known.bound, early=early and not self.keeps_real_time)  # L23 L35

    def limit(self) -> int:
        """How far it may deliver now. What has been cut before the log was delivered by others: it comes first, from
        one of them."""
        return self.reached() if self.queue and self.is_active and not self.is_behind else 0

    def next_one(self, limit: int) -> Known | None:
        """The first in the queue, if nothing can come before it any more."""
        while self.queue and self.queue[0][0] <= limit:
            bound, id = self.queue[0]
            known = self.known.get(id)
            if known is not None and not known.final and known.timestamp and known.bound == bound:
                return known if self.is_final(known) else None
            heappop(self.queue)
        return None

    def is_final(self, known: Known) -> bool:
        return len(known.stamps) == len(known.message.destinations)

    def reached(self) -> int:
        """No message to come has a timestamp up to this: the present primary gives none up to its own clock, and a
        later one begins with a clock that is not behind those of a majority."""
        votes = self.present()
        primary = owner_among(votes, self.epoch)
        return min(primary.clock, of_majority([vote.clock for vote in votes]))  # L22

    def may_deliver(self, known: Known) -> bool:
        if not self.keeps_real_time:
            return True
        self.speak(known)
        return self.real_time.admits(known.message)

    def speak(self, known: Known) -> None:
        """The primary does, for its group."""
        if self.leads:
            self.real_time.speak(known.message, known.numbers)

    def when_handed(self, known: Known) -> None:
        if self.keeps_real_time:
            self.speak(known)  # others may wait for that
            self.real_time.forget(known.message.id)
        self.clock = max(self.clock, known.final)
        for learner in self.learners.values():
            learner.forget(known.message.id)
        self.deliver_lowest()

    # A new epoch ----------------------------------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """The whole log counts as new: announced and acknowledged again, in this epoch."""
        self.queue = [(known.bound, id) for id in self.held if (known := self.known[id]).timestamp]
        heapify(self.queue)
        self.appended, self.announced = self.log.length, self.clock
        for logged in self.log.entries:
            self.acknowledge(logged.id, self.known[logged.id].message.destinations)
        if self.leads:
            for group in self.groups_due():
                self.announce(group)  # L24
            self.due = {}
        for known in self.waiting():
            if not known.timestamp:
                self.hand_in(known)
        if self.is_behind:
            self.ask_mate()
            self.retry_later()
        self.settle()
        self.move_on()

    def hand_in(self, known: Known) -> None:
        if self.leads:
            self.propose(known)
        else:
            self.send(self.owner(self.promised), Start(known.message, known.numbers))  # L25

    def take_over(self, donor: ProcessId, adoption: Adoption) -> None:
        super().take_over(donor, adoption)
        for learner in self.learners.values():
            learner.entries = {at: each for at, each in learner.entries.items() if not self.was_delivered(each)}
        self.early = {
            id: announced
            for id, announced in self.early.items()
            if not any(self.was_delivered(each) for each in announced.values())
        }

    def was_delivered(self, announced: Announced) -> bool:
        return self.done.had(announced.id.origin, announced.number)

    def on_topology(self, before: Topology) -> None:
        super().on_topology(before)
        if not self.members or not self.is_active:
            return  # a new epoch announces everything
        addressed = {g for logged in self.log.entries for g in self.known[logged.id].message.destinations}
        for group in self.topology.groups:
            if group == self.group or group not in addressed or self.topology.since(group) <= before.epoch:
                continue
            if self.leads:
                self.announce(group)  # L28
            else:
                self.send(self.topology.members(group), Vouch(self.epoch, self.log.length, group))

    # What takes too long ----------------------------------------------------------------------------------------------

    def retry_later(self) -> None:
        if not self.retrying and (self.held or self.is_behind):
            self.retrying, self.overdue = True, self.came
            self.set_timer(Retry(), self.RETRY_NS << self.retries)

    def on_retry(self, timer: Retry) -> None:
        self.retrying = False
        late = [known for known in self.waiting() if self.held[known.message.id] <= self.overdue]
        for known in late[: self.RETRIED_MAX]:
            lagging = [g for g in known.message.destinations if g not in known.stamps]
            if known.timestamp and self.group in lagging:
                lagging.remove(self.group)
            others = [p for p in self.topology.addressees(tuple(lagging)) if p != self.me]
            self.send(others, Stuck(known.message, known.numbers))  # L26
        following = self.next_one(self.limit()) if self.keeps_real_time else None
        if following is not None and self.held[following.message.id] <= self.overdue:
            self.real_time.ask(following.message, following.numbers)
        if late or self.is_behind:
            self.ask_mate()
            self.retries = min(self.retries + 1, self.DOUBLINGS_MAX)
        self.retry_later()

    def on_stuck(self, sender: ProcessId, stuck: Stuck) -> None:
        known = self.hold(stuck.message, stuck.numbers)
        if known is not None and not known.timestamp:
            if self.leads:
                self.propose(known)
            else:
                self.move_on()

    def pending(self) -> int:
        return len(self.held)

    def newest_timestamp(self) -> int:
        return self.clock

    def counters(self) -> dict[str, int]:
        return {"epoch": self.epoch}

    def waits_for(self) -> tuple[ProcessId, ...]:
        """The groups whose timestamps the oldest message lacks, or that have to be ready for it; or the own one, whose
        clocks have to come so far."""
        waiting = self.waiting()[:1]
        if not waiting:
            return ()
        m = waiting[0].message
        missing = [g for g in m.destinations if g not in waiting[0].stamps]
        if not missing and self.keeps_real_time:
            missing = self.real_time.missing(m)
        missing = missing or [self.group]
        return tuple(p for p in self.topology.addressees(tuple(missing)) if p != self.me)
