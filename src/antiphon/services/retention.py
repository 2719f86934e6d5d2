"""What a member knows of messages, and how long: until every member of its group has delivered them.

K1-K17 are the lines of docs/protocols/retention.md. All members of a group deliver the same sequence, so a member that
was left behind needs no more than the deliveries that it lacks, in their order, from anyone who has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import accumulate, islice
from operator import attrgetter
from typing import Annotated, ClassVar

import msgspec

from antiphon.core import GroupId, Message, MessageId, OrderingProtocol, ProcessId, Table, Timer, Topology, Wire
from antiphon.core.channel import Inbox
from antiphon.core.errors import BadFrame
from antiphon.core.model import without
from antiphon.core.sessions import Standing
from antiphon.services.group_log import GroupLog, Logged
from antiphon.services.label import Label, Labels, check_numbers, majority

OrderPlace = tuple[int, MessageId]  # of a message in the order of all: its final timestamp, and its id
NOWHERE: OrderPlace = (0, MessageId(ProcessId(""), 0))
NOTHING = -1
KEPT_MAX = 48 << 20
ENTRY_BYTES, NUMBER_BYTES = 128, 16  # with the longest name of a sender; with a number


class Reached(Wire, frozen=True, tag=1):
    """Member to its group: I have delivered so many messages, this one the last of them."""

    delivered: int
    id: MessageId


class Passed(Wire, frozen=True, tag=2):
    """Member to another group: I have delivered this one, and all before it that address us both."""

    timestamp: int
    id: MessageId


class Behind(Wire, frozen=True, tag=3):
    """Member to one of its group: I have delivered so many messages; what comes next?"""

    delivered: int


class Handed(Wire, frozen=True, tag=4):
    """Member to one of its group that may be behind: this is the delivery at that position."""

    position: int
    timestamp: int
    message: Message
    numbers: tuple[int, ...]


class PastDelivery(msgspec.Struct, frozen=True, array_like=True):
    """A delivery of a member, for one that goes on behind it."""

    position: int
    final: int
    message: Message
    numbers: tuple[int, ...]


class Adoption(msgspec.Struct, frozen=True, array_like=True):
    """All that follows from the first deliveries of a group: who has this can go on behind them, as one who has made
    them. Those that somebody may lack are there themselves: in the log that comes with it, or here."""

    delivered: int  # so many messages
    position: int  # so many payloads
    cut: int  # so many that the giver keeps for nobody
    said: dict[ProcessId, int]  # how many each member said that it has delivered
    kept: list[PastDelivery]  # the others, as far as they are not in the log
    last: OrderPlace
    latest: dict[GroupId, OrderPlace]
    done: dict[tuple[str, int], Inbox]
    ahead: list[tuple[MessageId, int, int]]  # delivered, and perhaps in the log: final, position
    standing: tuple[Standing, ...]  # where clients are


class SayDelivered(Timer, frozen=True):
    """It is time to say what was delivered."""


class Known(msgspec.Struct):
    """A message, until nobody in the group may need it any more."""

    message: Message
    numbers: tuple[int, ...]  # for each destination group: which of its sender's messages to the group this is
    timestamp: int = 0  # of the own group, where the log has it; 0: it is not in the log
    stamps: Table[GroupId, int] = {}  # the timestamps that are decided
    final: int = 0  # the greatest of all groups', once the message is delivered here
    position: int = 0  # among the deliveries

    @property
    def bound(self) -> int:
        """The final timestamp is not below it."""
        return max(self.timestamp, *self.stamps.values()) if self.stamps else self.timestamp


COUNTED = ("epoch", "index", "length", "clock", "timestamp", "delivered", "position", "base", "first", "floor")


@cache
def counters_of(kind: type[Wire]) -> Callable[[Wire], Sequence[int]]:
    """The fields of such a message that are clocks and counters."""
    names = [name for name in COUNTED if name in kind.__struct_fields__]
    if len(names) > 1:
        return attrgetter(*names)
    return lambda message: [getattr(message, name) for name in names]


def weight(m: Message) -> int:
    """Bytes that a message counts for where it is kept: not less than it takes in a frame with its timestamps."""
    return m.body.size + ENTRY_BYTES + sum([len(group) + NUMBER_BYTES for group in m.destinations])


class RetentionOptions(msgspec.Struct, frozen=True):
    # Bytes of deliveries kept for members that lag. Healthy ones lag by some MiB where much is delivered: they say a
    # little later what they have delivered (K2). All that is kept may have to go into one frame (`StartEpoch`).
    kept: Annotated[int, msgspec.Meta(ge=0, le=KEPT_MAX)] = 32 << 20


class Retention(OrderingProtocol):
    options: RetentionOptions

    learns: bool  # it has taken another's place, and does not count yet
    begun: int  # behind so many deliveries, which it does not have; NOTHING: it has yet to take over what follows
    log: GroupLog
    decided: int  # how much of it is decided
    known: Table[MessageId, Known]
    held: Table[MessageId, int]  # what is known and not delivered: as which message it came
    came: int  # how many have
    done: Labels  # what was delivered
    delivered: int  # how many
    last: OrderPlace
    kept: list[MessageId]  # deliveries that a member of the group may lack, in their order
    cut: int  # the position of the first of these
    kept_bytes: int
    floor: int  # what is cut from the log is among the first so many deliveries
    asks: int  # the place of the member that it asks next, when it may be behind
    said: Table[ProcessId, int]  # how many the other members said that they have delivered
    marks: Table[ProcessId, int]  # how many they have, or can take from a channel of this one
    passed: Table[ProcessId, OrderPlace]  # how far members of other groups are
    ahead: Table[MessageId, tuple[int, int]]  # delivered and forgotten before the log had it: final, position
    latest: Table[GroupId, OrderPlace]  # the last delivery that concerns each group
    untold: Table[GroupId, OrderPlace]  # the same, where the group has not been told

    TELL_NS: ClassVar[int] = 50_000_000
    PARTS: ClassVar[int] = 8  # of what is kept: so much is handed over at a time, and keeps nobody waiting for long

    def initialise(self) -> None:
        self.learns, self.begun = False, 0
        self.log, self.done = GroupLog(), Labels()
        self.known, self.held, self.said, self.marks, self.passed = {}, {}, {}, {}, {}
        self.ahead, self.latest, self.untold = {}, {}, {}
        self.kept = []
        self.came = self.decided = self.delivered = self.cut = self.kept_bytes = self.floor = self.asks = 0
        self.last = NOWHERE

    @property
    def mates(self) -> tuple[ProcessId, ...]:
        """The other members of the own group."""
        return without(self.me, self.members)

    def validate(self, message: Wire) -> None:
        if not self.members:
            raise BadFrame(f"{self.me} is in no group, and orders nothing.")
        check_numbers(counters_of(type(message))(message))
        if isinstance(message, Handed):
            self.check_entry(message.message, message.numbers)

    def check_entry(self, m: Message, numbers: tuple[int, ...]) -> None:
        Label(m.id.origin, m.destinations, numbers).check(self.topology, self.me)
        self.process.checks.body(m)

    def check_adoption(self, adoption: Adoption) -> None:
        check_numbers((adoption.delivered, adoption.position, adoption.cut, *adoption.said.values()))
        for each in adoption.kept:
            check_numbers((each.position, each.final))
            self.check_entry(each.message, each.numbers)
        for timestamp, id in (adoption.last, *adoption.latest.values()):
            check_numbers((timestamp, id.number))
        for stream in adoption.done.values():
            check_numbers((stream.received, *stream.early))
        for id, final, position in adoption.ahead:
            check_numbers((id.number, final, position))
        for piece in adoption.standing:
            self.process.checks.standing(piece)

    # Messages -------------------------------------------------------------------------------------------------------

    def number(self, m: Message, numbers: tuple[int, ...]) -> int:
        """Which of its sender's messages to the own group it is."""
        return numbers[m.destinations.index(self.group)]

    def is_done(self, m: Message, numbers: tuple[int, ...]) -> bool:
        return self.done.had(m.id.origin, self.number(m, numbers))

    def hold(self, m: Message, numbers: tuple[int, ...]) -> Known | None:
        """Know of a message; None where it was delivered."""
        known = self.known.get(m.id)
        if known is not None and not known.final:
            return known
        if self.is_done(m, numbers):
            return None
        assert known is None, "what is known with its final timestamp was delivered"
        known = self.known[m.id] = Known(m, numbers)
        self.came += 1
        self.held[m.id] = self.came
        self.when_held(known)
        return known

    def when_held(self, known: Known) -> None:
        """The message is new here."""

    def waiting(self) -> list[Known]:
        """What is not delivered, the oldest first."""
        return [self.known[id] for id in sorted(self.held, key=self.held.__getitem__)]

    def finish(self, known: Known, final: int, *, early: bool = False) -> None:
        """Deliver, as all members of the group do, in the same order."""
        m = known.message
        place = (final, m.id)
        assert place > self.last, "deliveries come in the order of their final timestamps"
        assert final >= max(known.stamps.values(), default=0), "a final timestamp is not below what is decided"
        first = self.done.take(m.id.origin, self.number(m, known.numbers))
        assert first, "nothing is delivered twice"
        self.last = place
        known.final, known.position = final, self.delivered
        self.delivered += 1
        del self.held[m.id]
        self.kept.append(m.id)  # K1
        self.kept_bytes += weight(m)
        if not self.untold:
            self.set_timer(SayDelivered(), self.TELL_NS)
        for group in m.destinations:
            self.latest[group] = self.untold[group] = place
        self.deliver(m, (final, *m.id), early=early)
        if self.kept_bytes > self.options.kept:
            self.hand_over()

    # What others have delivered -------------------------------------------------------------------------------------

    def on_say_delivered(self, timer: SayDelivered) -> None:  # K2
        untold, self.untold = self.untold, {}
        for group in self.topology.groups:
            if group in untold:
                timestamp, id = untold[group]
                if group == self.group:
                    self.send(self.mates, Reached(self.delivered, id))  # K3
                else:
                    self.send(self.topology.members(group), Passed(timestamp, id))  # K4
        self.trim()

    def on_reached(self, sender: ProcessId, reached: Reached) -> None:
        self.only_heard()
        if sender in self.mates:
            self.said[sender] = max(self.said.get(sender, 0), reached.delivered)
            self.marks[sender] = max(self.marks.get(sender, 0), reached.delivered)
            self.learn_enough()
            self.trim()

    def on_passed(self, sender: ProcessId, passed: Passed) -> None:
        self.only_heard()
        if sender in self.topology.group_of:
            self.passed[sender] = max(self.passed.get(sender, NOWHERE), (passed.timestamp, passed.id))
            self.trim()

    def trim(self) -> None:
        """Forget deliveries that all members have, and then what the log begins with."""
        least = min((self.marks.get(p, 0) for p in self.mates), default=self.delivered)  # K5
        count = max(min(least, self.delivered) - self.cut, 0)
        if count:
            gone, self.kept = self.kept[:count], self.kept[count:]
            self.cut += count
            for id in gone:
                self.kept_bytes -= weight(self.known[id].message)
                self.forget(self.known[id])
        passed = list(self.passed_entries())
        for entry in passed:
            known = self.known.pop(entry.id)  # K7
            self.floor = max(self.floor, known.position + 1)
        self.log.cut(len(passed))

    def passed_entries(self) -> Iterator[Logged]:
        """The entries at the log's beginning that nobody needs: neither a member of this group, nor its announcements a
        majority of another one, whose members then have them of one another. What is not decided may not be in the log
        with which the group goes on, though its message is delivered."""
        for entry in islice(self.log.entries, max(self.decided - self.log.base, 0)):
            known = self.known[entry.id]
            if not known.final or known.position >= self.cut or not self.is_passed(known):
                return
            yield entry

    def is_passed(self, known: Known) -> bool:
        place = (known.final, known.message.id)
        for group in known.message.destinations:  # K6
            members = self.topology.members(group)
            behind = sum(self.passed.get(p, NOWHERE) < place for p in members)
            if group != self.group and len(members) - behind < majority(members):
                return False
        return True

    def forget(self, known: Known) -> None:
        """What no member may need, and the log has not, or no more. It may come to have it."""
        if known.final and not known.timestamp and known.position < self.cut:
            id = known.message.id
            del self.known[id]
            self.ahead[id] = (known.final, known.position)

    # Members that take another's place ------------------------------------------------------------------------------

    def on_topology(self, before: Topology) -> None:
        for process in self.topology.gone_since(before):
            for table in (self.said, self.marks, self.passed):
                table.pop(process, None)  # K13
        self.asks = 0
        if self.delivered:
            self.send(self.mates, Reached(self.delivered, self.last[1]))  # K14

    def adoption(self) -> Adoption:
        delivered = {id: (known.final, known.position) for id, known in self.known.items() if known.final}
        ahead = [(id, *place) for id, place in {**self.ahead, **delivered}.items()]
        standing = self.process.standing()
        kept = [self.known[id] for id in self.kept if not self.known[id].timestamp]
        return Adoption(  # K15
            self.delivered,
            self.process.position,
            self.cut,
            {**self.said, self.me: self.delivered},
            [PastDelivery(known.position, known.final, known.message, known.numbers) for known in kept],
            self.last,
            self.latest,
            self.done.streams,
            ahead,
            standing,
        )

    def take_over(self, donor: ProcessId, adoption: Adoption) -> None:
        """Be where a mate is, without having delivered anything."""
        assert self.begun == NOTHING, "only who has nothing takes over what another one has"
        self.process.adopt(
            donor, adoption.last[1] if adoption.delivered else None, adoption.position, adoption.standing
        )
        self.delivered, self.cut, self.begun = adoption.delivered, adoption.cut, adoption.cut  # K16
        self.last = adoption.last
        for p in self.mates:
            self.said[p] = max(self.said.get(p, 0), adoption.said.get(p, 0))
        self.done = Labels({origin: Inbox(had.received, set(had.early)) for origin, had in adoption.done.items()})
        self.ahead = {id: (final, position) for id, final, position in adoption.ahead}
        for id in [id for id in self.held if self.is_done(self.known[id].message, self.known[id].numbers)]:
            del self.held[id], self.known[id]
        for each in adoption.kept:
            self.known[each.message.id] = Known(each.message, each.numbers, final=each.final, position=each.position)
            self.ahead.pop(each.message.id, None)
        self.latest, self.untold = dict(adoption.latest), dict(adoption.latest)
        if self.untold:
            self.set_timer(SayDelivered(), self.TELL_NS)

    def keep_on(self) -> None:
        """Whoever lacks what was delivered from where it has begun finds it here, too."""
        kept = [known for known in self.known.values() if known.final and known.position >= self.cut]
        kept.sort(key=lambda known: known.position)
        assert [known.position for known in kept] == [*range(self.cut, self.delivered)], "all that is kept is there"
        self.kept = [known.message.id for known in kept]
        self.kept_bytes = sum(weight(known.message) for known in kept)
        self.learn_enough()

    def learn_enough(self) -> None:
        """What was delivered before it has begun it can give to nobody. So it counts when nobody may need that."""
        if self.learns and self.begun != NOTHING:
            self.learns = any(self.said.get(p, 0) < self.begun for p in self.mates)  # K17
            if not self.learns:
                self.when_learnt()

    def when_learnt(self) -> None:
        """It counts from now on."""

    # Members that were left behind -----------------------------------------------------------------------------------

    def hand_over(self) -> None:
        """Somebody has been away for long: the oldest of what it lacks goes into the channel to it, which the disk
        keeps, a part at a time. But where it has yet to take over what another one has, nobody knows what it will
        lack."""
        while self.kept_bytes > self.options.kept:
            lacking = [p for p in self.mates if self.marks.get(p, 0) <= self.cut]
            if any(p in self.topology.joined and p not in self.said for p in lacking):
                return
            left = self.options.kept - self.options.kept // self.PARTS
            end = self.cut + self.oldest(self.kept_bytes - left)
            for p in lacking:
                self.hand(p, self.cut, end)  # K8
                self.marks[p] = end
            self.trim()

    def oldest(self, size: int) -> int:
        """How many deliveries, the oldest that are kept, have so many bytes together."""
        sizes = accumulate(weight(self.known[id].message) for id in self.kept)
        return next((count for count, together in enumerate(sizes, 1) if together >= size), len(self.kept))

    def hand(self, to: ProcessId, begin: int, end: int) -> None:
        """Of what is kept, the deliveries from ``begin`` to below ``end``. What is cut was handed to it before, or it
        said that it has it."""
        for id in self.kept[max(begin - self.cut, 0) : end - self.cut]:
            known = self.known[id]
            self.send(to, Handed(known.position, known.final, known.message, known.numbers))

    @property
    def is_behind(self) -> bool:
        """Whether something that the log no longer has is still to be delivered here."""
        return self.delivered < self.floor

    def ask_mate(self) -> None:
        if self.mates:
            self.send(self.mates[self.asks], Behind(self.delivered))  # K9
            self.asks = (self.asks + 1) % len(self.mates)

    def on_behind(self, sender: ProcessId, behind: Behind) -> None:  # K10
        if sender in self.mates:
            self.hand(sender, behind.delivered, self.delivered)

    def on_handed(self, sender: ProcessId, handed: Handed) -> None:  # K11
        if sender not in self.mates or handed.position != self.delivered or self.begun == NOTHING:
            return  # it was delivered meanwhile, or comes again with what is before it
        known = self.hold(handed.message, handed.numbers)
        assert known is not None, "what comes next was not delivered"
        self.finish(known, handed.timestamp)  # K12
        self.when_handed(known)

    def when_handed(self, known: Known) -> None:
        """It was delivered without a decision of this process."""
