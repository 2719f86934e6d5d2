"""The rotating token (scalatom.txt, "Rotating-token algorithms"; the idea of Totem): who holds it numbers its messages.

L1-L20 are the lines of docs/protocols/token.md, R1-R7 what is added where frames get lost.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Literal

import msgspec

from antiphon.core import (
    Assumptions,
    Declaration,
    Failures,
    GroupId,
    Message,
    OrderingProtocol,
    ProcessId,
    Promise,
    Table,
    Timer,
    Topology,
    Transport,
    Wire,
)
from antiphon.core.errors import BadFrame

NUMBER_MAX = 1 << 62  # no honest member counts so far


class Hand(Wire, frozen=True, tag=1):
    """A sender outside the group to a member: send this for me, my ``index``-th message to the group."""

    index: int
    message: Message


class Ordered(Wire, frozen=True, tag=2):
    """The holder of the token to the group: this is message ``number``."""

    number: int
    message: Message


class Token(Wire, frozen=True, tag=3):
    """Each member to the next one in the ring: you may number messages now."""

    visit: int  # counts the steps of the token; the first member has every n-th visit
    newest: int  # the newest number given
    low: int  # since it left the first member, everybody whom it visited had everything up to this number
    stable: int  # everybody has everything up to this number, and that is how far behind a member may leave them
    missing: list[tuple[ProcessId, int]]  # who misses what


class Want(Wire, frozen=True, tag=4):
    """A member to the first one: I have something to send, so do not keep the token. ``visit``: when I last had it."""

    visit: int


class Got(Wire, frozen=True, tag=5):
    """To whoever passed the token on: it is here."""

    visit: int


class Taken(Wire, frozen=True, tag=6):
    """A member to a sender outside: your messages up to this index are in my hands."""

    index: int


class GoOn(Timer, frozen=True):
    """The first member has kept the token for a while, since its last round brought nothing new."""


class Again(Timer, frozen=True):
    """Something that this process sent seems to be lost."""


class TokenOptions(msgspec.Struct, frozen=True):
    window: Annotated[int, msgspec.Meta(ge=1)] = 16  # how many messages a member may send on one visit of the token
    transport: Literal["reliable", "datagram"] = "reliable"
    ahead: Annotated[int, msgspec.Meta(ge=1)] = 4  # how many windows it may have sent that somebody may not have


class RotatingToken(OrderingProtocol):
    declaration = Declaration(
        name="token",
        title="Rotating token",
        source="Rodrigues, Guerraoui, Schiper: Scalable Atomic Multicast, section 5.1; Totem",
        assumes=Assumptions(failures=Failures.CRASH_RECOVERY, one_group=True),
        promises=(
            Promise.VALIDITY,
            Promise.INTEGRITY,
            Promise.UNIFORM_AGREEMENT,
            Promise.FIFO,
            Promise.TOTAL_ORDER,
            Promise.ACYCLIC_ORDER,
            Promise.GENUINENESS,
        ),
    )
    Options = TokenOptions
    options: TokenOptions

    transport = Transport.FIFO
    AGAIN_NS, AGAIN_NS_MAX = 20_000_000, 1_000_000_000  # before the first repeat, and between later ones at most
    PAUSE_NS, PAUSE_NS_MAX = 1_000_000, 50_000_000  # before a round after one that brought nothing new
    REPEATED_MAX = 32  # messages that a member asks for at a time, or that a sender repeats

    # At a sender outside the group
    sent: Table[GroupId, int]  # how many messages it has handed over
    outbox: dict[GroupId, dict[int, Message]]  # those of them that may be lost, by index
    # At a member
    queue: list[Message]  # what waits for the token
    early: dict[ProcessId, dict[int, Message]]  # by origin and index: what came before its predecessor
    taken: Table[ProcessId, int]  # by origin: up to this index its messages are, or were, in the queue
    visit: int  # the newest visit of the token: another token is older, and is not believed
    token: Token | None  # while it rests here: at the first member only
    round: tuple[int, int]  # at the first member: what was newest and what stable when the token was last here
    pause_ns: int  # how long it was kept here since it brings nothing new
    wanted: bool  # whether somebody has asked the first member for it
    resting: bool  # whether it may have come to rest, as far as this member knows
    newest: int  # the newest number when the token left
    unstable: list[int]  # the numbers that this member has given and that are not stable
    asked: bool  # whether this member has asked for it
    received: int  # everything up to this number was here, and is delivered
    held: Table[int, Ordered]  # the hold-back queue and, before it, what somebody may miss
    passed: Token | None  # the token as it was passed on, until it is known to have arrived
    # Everywhere
    again_ns: int  # how long to wait between two repeats at present; 0: nothing is to be repeated
    moved: bool  # whether anything has come that was waited for, since the last repeat

    def initialise(self) -> None:
        self.transport = Transport.DATAGRAM if self.options.transport == "datagram" else Transport.FIFO
        self.sent, self.outbox = {}, {}
        self.queue, self.early, self.taken = [], {}, {}
        self.visit = self.newest = self.received = 0
        self.token = Token(0, 0, 0, 0, []) if self.first else None
        self.round, self.pause_ns = (0, 0), 0
        self.resting, self.wanted, self.asked = True, False, False
        self.unstable, self.held, self.passed = [], {}, None
        self.again_ns, self.moved = 0, False

    @classmethod
    def drawn_last(cls, topology: Topology) -> dict[str, tuple[str, ...]]:
        return {"window": ("1", "2", "16"), "ahead": ("1", "4")}

    @property
    def lossy(self) -> bool:
        return self.transport is Transport.DATAGRAM

    @property
    def first(self) -> bool:
        """Whether the token rests here when it is idle."""
        return self.members[:1] == (self.me,)

    def validate(self, message: Wire) -> None:
        if isinstance(message, Taken):
            if not 0 < message.index < NUMBER_MAX:
                raise BadFrame("The messages of a sender count from 1.")
            return
        if not self.members:
            raise BadFrame(f"{self.me} is in no group, and orders nothing.")
        if isinstance(message, Hand | Ordered):
            if message.message.destinations != (self.group,):
                raise BadFrame(f"A message for other groups is not for {self.me}.")
            if not 0 < (message.index if isinstance(message, Hand) else message.number) < NUMBER_MAX:
                raise BadFrame("Messages count from 1.")
        if isinstance(message, Token):
            if not 0 < message.visit < NUMBER_MAX or not 0 <= message.newest < NUMBER_MAX:
                raise BadFrame("A token counts its visits from 1 and its numbers from 0, and neither comes so far.")
            if not 0 <= message.stable <= message.newest or not 0 <= message.low <= message.newest:
                raise BadFrame("What everybody has, has a number.")
            if len(message.missing) > self.REPEATED_MAX * len(self.members):
                raise BadFrame("A token has too many requests.")
            if not all(who in self.members and 1 <= number <= message.newest for who, number in message.missing):
                raise BadFrame("Only members ask for messages, and only for those that have a number.")

    # From the sender into a queue -----------------------------------------------------------------------------------

    def multicast(self, m: Message) -> None:  # L1
        (group,) = m.destinations
        if self.topology.group_of.get(self.me) == group:
            self.queue.append(m)  # L2
            self.seek()
            return
        self.sent[group] = index = self.sent.get(group, 0) + 1
        self.send(self.helper(group), Hand(index, m))  # L3
        if self.lossy:
            self.outbox.setdefault(group, {})[index] = m
            self.repeat_later()

    def helper(self, group: GroupId) -> ProcessId:
        """The member that sends for this process: always the same one, so that it keeps the order."""
        members = self.topology.members(group)
        return members[sum(self.me.encode()) % len(members)]

    def on_hand(self, sender: ProcessId, hand: Hand) -> None:  # L4
        origin = hand.message.id.origin
        taken = self.taken.get(origin, 0)
        if hand.index > taken:
            early = self.early.setdefault(origin, {})
            early[hand.index] = hand.message
            while (m := early.pop(taken + 1, None)) is not None:
                taken += 1
                self.queue.append(m)
            self.taken[origin] = taken
            if not early:
                del self.early[origin]
            self.seek()
        if self.lossy and taken:
            self.send(origin, Taken(taken))  # R1

    def on_taken(self, sender: ProcessId, taken: Taken) -> None:
        group = self.topology.group_of.get(sender)
        kept = self.outbox.get(group, {}) if group is not None else {}
        for index in [index for index in kept if index <= taken.index]:
            del kept[index]
            self.moved = True

    # The token at rest ----------------------------------------------------------------------------------------------

    def seek(self) -> None:
        """There is something to send: take the token if it rests here, ask for it if it may rest elsewhere."""
        if self.token is not None:
            if self.room():
                self.use(self.token)  # L5
        elif self.queue and self.resting and not self.asked and not self.first:
            self.asked = True
            self.send(self.members[0], Want(self.visit))  # L6
            self.repeat_later()

    def on_want(self, sender: ProcessId, want: Want) -> None:  # L7
        if self.first and want.visit > self.visit - len(self.members):  # else it has been there since
            self.wanted = True
            if self.token is not None:
                self.use(self.token)

    # The token on its way -------------------------------------------------------------------------------------------

    def on_token(self, sender: ProcessId, token: Token) -> None:  # L8
        if self.lossy:
            self.send(sender, Got(token.visit))  # R2
        if token.visit <= self.visit:  # R3
            return
        self.visit, self.asked, self.moved = token.visit, False, True
        settled = token.stable == token.newest and not token.missing
        if self.first:
            token = msgspec.structs.replace(token, stable=token.low, low=self.received)  # L9
        else:
            token = msgspec.structs.replace(token, low=min(token.low, self.received))  # L10
        for number in [number for number in self.held if number <= token.stable]:
            del self.held[number]  # L11
        self.unstable = [number for number in self.unstable if number > token.stable]
        if self.first and self.keep(token, settled=settled):
            self.token = token
        else:
            self.use(token)

    def keep(self, token: Token, *, settled: bool) -> bool:
        """Whether the first member keeps the token: for good, or for a while if the last round brought nothing new."""
        before, self.round = self.round, (token.newest, token.stable)
        if (self.queue and self.room()) or self.wanted:
            return False
        if settled:
            return True  # L12
        self.pause_ns = min(2 * self.pause_ns or self.PAUSE_NS, self.PAUSE_NS_MAX) if self.round == before else 0
        if self.pause_ns:
            self.set_timer(GoOn(), self.pause_ns)  # L13
        return self.pause_ns > 0

    def on_go_on(self, timer: GoOn) -> None:
        if self.token is not None:
            self.use(self.token)

    def room(self) -> int:
        """How many messages this member may number now.

        Each has a share of its own in what may be unstable: where somebody is slow, those who sit before it in the ring
        would else use up whatever becomes free.
        """
        return min(self.options.window, self.options.ahead * self.options.window - len(self.unstable))  # L14

    def use(self, token: Token) -> None:
        """Number what waits here, as far as there is room, and pass the token on."""
        missing = self.serve(token)
        newest, room = token.newest, self.room()
        for m in self.queue[:room]:
            newest += 1  # L15
            self.send(self.members, Ordered(newest, m))  # L16
            self.unstable.append(newest)
        del self.queue[:room]
        self.token, self.wanted = None, False
        self.cancel_timer(GoOn())
        # It may come to rest only when it has gone round once more with all this, and with nothing to add.
        self.newest, self.resting = newest, token.stable == newest and not missing
        onward = Token(token.visit + 1, newest, token.low, token.stable, missing)
        if self.lossy:
            self.passed = onward  # R4
            self.repeat_later()
        place = self.members.index(self.me)
        self.send(self.members[(place + 1) % len(self.members)], onward)  # L17

    def serve(self, token: Token) -> list[tuple[ProcessId, int]]:
        """Send what others miss and this member holds; ask for what it misses itself. The rest goes on asking."""
        missing = []
        for who, number in token.missing:
            if who != self.me and number in self.held:
                self.send(who, self.held[number])  # R5
            elif who != self.me:
                missing.append((who, number))
        if self.lossy:  # else it is on its way
            gaps = (number for number in range(self.received + 1, token.newest + 1) if number not in self.held)
            missing += [(self.me, number) for number in islice(gaps, self.REPEATED_MAX)]  # R6
        return missing

    def on_ordered(self, sender: ProcessId, ordered: Ordered) -> None:  # L18
        if ordered.number > self.newest:
            self.resting = False  # it was on its way when this was numbered, and has to come round again
        if ordered.number > self.received:
            self.held[ordered.number] = ordered  # L19
        while (following := self.held.get(self.received + 1)) is not None:
            self.received += 1
            self.deliver(following.message, (self.received, self.group))  # L20

    # What got lost --------------------------------------------------------------------------------------------------

    def on_got(self, sender: ProcessId, got: Got) -> None:
        if self.passed is not None and self.passed.visit == got.visit:
            self.passed, self.moved = None, True

    def repeat_later(self) -> None:
        if self.lossy and not self.again_ns:
            self.again_ns = self.AGAIN_NS
            self.set_timer(Again(), self.again_ns)

    def on_again(self, timer: Again) -> None:  # R7
        """Repeat what was not answered, ever more seldom as long as nothing comes."""
        later_ns = self.AGAIN_NS if self.moved else min(2 * self.again_ns, self.AGAIN_NS_MAX)
        self.again_ns, self.moved = 0, False
        if self.passed is not None:
            place = self.members.index(self.me)
            self.send(self.members[(place + 1) % len(self.members)], self.passed)
        if self.asked:
            self.send(self.members[0], Want(self.visit))
        for group, kept in self.outbox.items():
            for index in list(kept)[: self.REPEATED_MAX]:
                self.send(self.helper(group), Hand(index, kept[index]))
        if self.passed is not None or self.asked or any(self.outbox.values()):
            self.again_ns = later_ns
            self.set_timer(Again(), later_ns)

    # What the host asks ---------------------------------------------------------------------------------------------

    def pending(self) -> int:
        early = sum(len(messages) for messages in self.early.values())
        return len(self.queue) + early + sum(number > self.received for number in self.held)

    def counters(self) -> dict[str, int]:
        return {"visits": self.visit // max(len(self.members), 1)}
