"""Entering and leaving the tree of a swap, as local operations (swap.txt, section 6.2).

E1-E25 are the lines of docs/protocols/entering.md. Who leaves locks its neighbours, and hands what it has to one of
them, its heir: the node that its link leads to or, where the value is here, any neighbour.

Invariants. A locked node sends nothing to its locker, and handles nothing but what comes from there. So when all
neighbours of a node are locked for it, nothing is on its way to it, and what it sent is handled before they hear that
it has left. A node is locked for one neighbour at a time. Between two neighbours that both leave, the one with the
smaller name goes first; and who is locked does not begin to leave. So nobody waits for itself. What a node gets from a
neighbour of which it has yet to hear waits until it has: it is locked for the one that will tell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from antiphon.core import Buffers, Command, FaultModel, Message, MessageId, ProcessId, Promise, Table, Transport, Wire
from antiphon.core.component import Channel, Component
from antiphon.core.errors import BadFrame, UsageError
from antiphon.core.sessions import Standing
from antiphon.services.reduction import Hand, OrderedBySwap, SwapOptions
from antiphon.services.spread import NUMBER_MAX
from antiphon.services.swap import BOTTOM, LinkedSwap
from antiphon.services.tree import Place

CLIENT_PIECES_MAX = 1 << 16  # of where clients are


class Leave(Command, frozen=True):
    """Be no node of the tree any more: deliver nothing, and hand what you multicast to somebody else."""


class Enter(Command, frozen=True):
    """Be one again."""


class Carried(Wire, frozen=True, tag=1):
    """A message of another part."""

    about: tuple[MessageId, ...]  # what the message inside is about
    frame: Buffers


class Lock(Wire, frozen=True, tag=2):
    """Who leaves, to each neighbour: send me nothing more, and wait."""


class Locked(Wire, frozen=True, tag=3):
    """The answer: you have all that I sent you."""


class HandOver(Wire, frozen=True, tag=4):
    """To the heir: these are your neighbours in my place; and so is the object's value, if I have it."""

    others: tuple[ProcessId, ...]
    value: MessageId | None


class Unlock(Wire, frozen=True, tag=5):
    """To the others: the heir is your neighbour in my place."""

    heir: ProcessId


class Join(Wire, frozen=True, tag=6):
    """To any process that was ever in the tree: ``who`` wants to be your neighbour."""

    who: ProcessId


class Joined(Wire, frozen=True, tag=7):
    """The answer: you are. So far I have delivered so many messages, the last of which is this one.

    ``standing``: where clients are behind that one; all of it, or the last piece.
    """

    last: MessageId
    delivered: int
    standing: Standing


class StandingPiece(Wire, frozen=True, tag=8):
    """Before it: the other pieces."""

    standing: Standing


class Progress(NamedTuple):
    """How far a node is in the order, and where clients are there: who knows all of it goes on as that node does."""

    last: MessageId
    delivered: int
    standing: tuple[Standing, ...]


class Moving(Channel):
    """Where this node is in the tree, whoever comes and goes. Carries the messages of all other parts."""

    transport = Transport.FIFO
    place: Callable[[], Place]  # where it is at first
    progress: Callable[[], Progress]
    swap_object: Callable[[], LinkedSwap]
    welcomed: Callable[[ProcessId], None]  # a new neighbour, which knows our progress
    entered: Callable[[ProcessId, Progress], None]  # by which neighbour

    inside: bool
    wanted: bool  # whether it is to be inside, as it was last told
    neighbours: list[ProcessId]
    locker: ProcessId | None  # the neighbour for which this node is locked
    held: list[tuple[ProcessId, Buffers]]  # what came meanwhile from others, in its order
    requests: list[ProcessId]  # who asked for the lock and did not get it yet
    leaving: bool
    locks: Table[ProcessId, bool]  # of a leaving node: whom it has asked, and whether it has their lock
    joining: list[ProcessId]  # those whom it leaves to its heir
    contact: ProcessId  # outside: the heir
    entering: bool
    pieces: list[Standing]  # of an entering node: what has come of where clients are

    def initialise(self) -> None:
        self.inside = self.wanted = self.me in self.topology.group_of  # E1
        self.neighbours = list(self.place().neighbours)
        self.locker = None
        self.held, self.requests, self.locks, self.joining = [], [], {}, []
        self.leaving = self.entering = False
        self.contact = self.me
        self.pieces = []

    def tell(self, *, wanted: bool) -> None:  # E2
        self.wanted = wanted
        self.go_on()

    def go_on(self) -> None:
        """Do what can be done now."""
        if self.locker is not None:  # E3
            return
        requests = [p for p in self.requests if p in self.neighbours and (not self.leaving or p < self.me)]
        if requests:
            self.grant(requests[0])  # E4
        elif self.inside and self.neighbours and (self.leaving or not self.wanted):
            self.leave()  # E5
        elif self.leaving:
            self.stay()  # E6
        elif self.wanted and not (self.inside or self.entering):
            self.entering = True
            self.say(self.contact, Join(self.me))  # E7

    # Leaving ----------------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        self.leaving = True
        for p in self.neighbours:
            if p not in self.locks:
                self.locks[p] = False
                self.say(p, Lock())  # E8
        if all(self.locks[p] for p in self.neighbours):
            self.hand_over()  # E9

    def stay(self) -> None:
        """All others have left: who leaves last has nobody to leave the value to."""
        self.leaving = False
        joining, self.joining = self.joining, []
        for who in joining:
            self.welcome(who)
        self.go_on()

    def on_lock(self, sender: ProcessId, lock: Lock) -> None:  # E10
        if sender not in self.requests and sender != self.locker:
            self.requests.append(sender)
            self.go_on()

    def grant(self, locker: ProcessId) -> None:
        self.requests.remove(locker)
        self.swap_object().quiesce()  # E11
        self.locker = locker
        self.say(locker, Locked())  # E12

    def on_locked(self, sender: ProcessId, locked: Locked) -> None:  # E13
        if sender in self.locks:
            self.locks[sender] = True
            self.go_on()

    def hand_over(self) -> None:
        swap = self.swap_object()
        swap.quiesce()
        has_value = swap.link == self.me
        heir = self.neighbours[0] if has_value else swap.link  # E14
        others = tuple(p for p in self.neighbours if p != heir)
        self.say(heir, HandOver(others, swap.value if has_value else None))  # E15
        if others:
            self.say(others, Unlock(heir))  # E16
        for who in self.joining:
            self.say(heir, Join(who))
        self.inside = self.leaving = False
        self.contact = heir
        self.neighbours, self.requests, self.locks, self.joining = [], [], {}, []
        self.go_on()  # it may have been told to enter meanwhile

    def on_hand_over(self, sender: ProcessId, given: HandOver) -> None:  # E17
        if sender == self.locker:
            self.neighbours = [*(p for p in self.neighbours if p != sender), *given.others]  # E18
            if given.value is not None:
                self.swap_object().inherit(given.value)  # E19
            self.unlock()

    def on_unlock(self, sender: ProcessId, unlock: Unlock) -> None:  # E20
        if sender == self.locker:
            self.neighbours = [unlock.heir if p == sender else p for p in self.neighbours]
            self.swap_object().relink(sender, unlock.heir)  # E21
            self.unlock()

    def unlock(self) -> None:
        assert self.locker is not None
        self.locks.pop(self.locker, None)
        self.locker = None
        held, self.held = self.held, []
        for sender, frame in held:
            self.process.handle(sender, frame)  # E22
        self.go_on()

    # Entering ---------------------------------------------------------------------------------------------------------

    def on_join(self, sender: ProcessId, join: Join) -> None:  # E23
        if not self.inside:
            self.say(self.contact, join)
        elif self.leaving:
            self.joining.append(join.who)
        else:
            self.welcome(join.who)
            self.go_on()

    def welcome(self, who: ProcessId) -> None:
        if who not in self.neighbours:
            self.neighbours.append(who)
            last, delivered, (*pieces, final) = self.progress()
            for piece in pieces:
                self.say(who, StandingPiece(piece))
            self.say(who, Joined(last, delivered, final))  # E24
            self.welcomed(who)

    def on_standing_piece(self, sender: ProcessId, piece: StandingPiece) -> None:
        if self.entering and len(self.pieces) < CLIENT_PIECES_MAX:
            self.pieces.append(piece.standing)

    def on_joined(self, sender: ProcessId, joined: Joined) -> None:  # E25
        if self.entering:
            self.entering, self.inside = False, True
            self.neighbours = [sender]
            pieces, self.pieces = self.pieces, []
            self.entered(sender, Progress(joined.last, joined.delivered, (*pieces, joined.standing)))
            self.go_on()

    # What the other parts send ----------------------------------------------------------------------------------------

    def send_for(self, part: Component, to: tuple[ProcessId, ...], message: Wire) -> None:
        others = tuple(p for p in to if p != self.me)
        if others:
            self.say(others, Carried(part.about(message), self.process.encode(part, message)))
        if self.me in to:
            # Within the same step: nothing that a node sent to itself is under way when it is locked or leaves.
            part.handlers[type(message)](self.me, message)

    def on_carried(self, sender: ProcessId, carried: Carried) -> None:
        if self.locker in (None, sender):
            self.process.handle(sender, carried.frame)
        else:
            self.held.append((sender, carried.frame))

    def is_free(self, part: Component, message: Wire) -> bool:
        """Whether this node may handle a message of its own now. If not, it waits, or goes to somebody who can."""
        if not self.inside:
            self.send_for(part, (self.contact,), message)
        elif self.locker is not None:
            self.held.append((self.me, self.process.encode(part, message)))
        else:
            return True
        return False

    def say(self, to: ProcessId | tuple[ProcessId, ...], message: Wire) -> None:
        self.process.send_for(self, to if isinstance(to, tuple) else (to,), message)

    def pending(self) -> int:
        return len(self.held) + len(self.joining) + (self.leaving or self.entering)

    def validate(self, message: Wire) -> None:
        if isinstance(message, Carried):
            part, inner = self.process.decode_frame(message.frame)
            if isinstance(part, Channel):
                raise BadFrame("A channel carries no message of a channel.")
            self.process.checks.message(part, inner)
            return
        group = self.topology.group_of.get(self.me)
        members = () if group is None else self.topology.members(group)
        named: tuple[ProcessId, ...] = ()
        if isinstance(message, HandOver):
            named = message.others
        elif isinstance(message, Unlock):
            named = (message.heir,)
        elif isinstance(message, Join):
            named = (message.who,)
        if not members or self.me in named or len(set(named)) < len(named) or any(p not in members for p in named):
            raise BadFrame(f"Those who enter and leave {group} are members of it, and others than {self.me}.")
        if isinstance(message, Joined | StandingPiece):
            self.process.checks.standing(message.standing)
        if isinstance(message, Joined) and not 0 <= message.delivered < NUMBER_MAX:
            raise BadFrame("Deliveries are numbered from 1.")
        value = message.value if isinstance(message, HandOver) else None
        value = message.last if isinstance(message, Joined) else value
        if value is not None and value.number < 1 and value != BOTTOM:
            raise BadFrame("The messages of a process are numbered from 1.")

    def about(self, message: Wire) -> tuple[MessageId, ...]:
        return message.about if isinstance(message, Carried) else ()


# The multicast ------------------------------------------------------------------------------------------------------


class Found(Wire, frozen=True, tag=2):
    """To oneself, when one is unlocked: multicast this now."""

    previous: MessageId
    message: Message


class MovableOptions(SwapOptions, frozen=True):
    moving: bool = False  # whether members can be told to leave and to enter


class OrderedByMovableSwap(OrderedBySwap):
    """Whose members leave the tree and enter it while others multicast."""

    Options = MovableOptions
    added_options = ("moving",)
    options: Any
    swap_object: LinkedSwap
    moving: Moving  # only where members move

    @classmethod
    def check(cls, options: Any, model: FaultModel) -> None:
        super().check(options, model)
        needed = {
            "multicast=tree": options.multicast == "tree",
            "by=travel": options.by == "travel",
            "gaps=false": not options.gaps,
        }
        missing = [option for option, is_given in needed.items() if not is_given]
        if options.moving and missing:
            raise UsageError(
                f"{cls.declaration.name} with moving=true needs {' and '.join(missing)}: "
                "only the neighbours of a node hear that it leaves or enters."
            )

    @classmethod
    def commands(cls, options: Any) -> tuple[type[Command], ...]:
        return super().commands(options) if options.moving else ()

    @classmethod
    def own_promises(cls, options: Any) -> tuple[Promise, ...]:
        return PROMISES_WHILE_MOVING if options.moving else super().own_promises(options)

    def initialise(self) -> None:
        if self.options.moving:
            self.moving = self.part(
                Moving,
                "moving",
                place=self.place,
                progress=lambda: Progress(self.last, self.delivered, self.process.standing()),
                swap_object=lambda: self.swap_object,
                welcomed=self.when_welcomed,
                entered=self.when_entered,
            )
            self.channel = self.moving  # from here on, everything that this protocol and its parts send
        super().initialise()

    def on_leave(self, command: Leave) -> None:
        self.moving.tell(wanted=False)

    def on_enter(self, command: Enter) -> None:
        self.moving.tell(wanted=True)

    def neighbours(self) -> tuple[ProcessId, ...]:
        return tuple(self.moving.neighbours) if self.options.moving else super().neighbours()

    def order(self, m: Message) -> None:
        if not self.options.moving or self.moving.is_free(self, Hand(m)):
            super().order(m)

    def when_found(self, m: Message, previous: MessageId) -> None:
        """A swap of the very node that leaves may have ended here: what is multicast must not go back to it."""
        if not self.options.moving or self.moving.is_free(self, Found(previous, m)):
            super().when_found(m, previous)

    def on_found(self, sender: ProcessId, found: Found) -> None:
        self.when_found(found.message, found.previous)

    def when_received(self, place: MessageId | int, m: Message) -> None:
        if not self.options.moving or self.moving.inside:
            super().when_received(place, m)

    def when_welcomed(self, who: ProcessId) -> None:
        """It knows what this node has delivered, but not what it holds back."""
        for previous in sorted(self.holdback):
            self.spread.pass_on(who, previous, self.holdback[previous])

    def when_entered(self, by: ProcessId, progress: Progress) -> None:
        self.announce_gap(progress.standing)
        self.last, self.delivered = progress.last, progress.delivered
        self.holdback = {}
        self.swap_object.link = by

    def validate(self, message: Wire) -> None:
        if isinstance(message, Found):
            raise BadFrame("Nobody else says what was found.")
        super().validate(message)

    def counters(self) -> dict[str, int]:
        if not self.options.moving:
            return super().counters()
        return {"inside": int(self.moving.inside), "neighbours": len(self.moving.neighbours)}

    def pending(self) -> int:
        return super().pending() + (self.moving.pending() if self.options.moving else 0)


PROMISES_WHILE_MOVING = (
    Promise.VALIDITY,
    Promise.INTEGRITY,
    Promise.ACYCLIC_ORDER,
    Promise.GAPS,
    Promise.REQUEST_ORDER,
)
