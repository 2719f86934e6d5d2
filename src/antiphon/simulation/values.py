"""What a simulated run is made of, as values: a scenario prints as the code that makes it again."""

from __future__ import annotations

from typing import Literal

import msgspec

from antiphon.core.declaration import FaultModel
from antiphon.core.errors import AntiphonError
from antiphon.core.model import Service

MILLISECOND = 1_000_000  # virtual time is in nanoseconds
INVARIANT = "invariant"  # the name under which is reported what a process itself found to be impossible
ERROR = "error"  # the name under which any other exception in it is reported
LIVELOCK = "livelock"  # the name under which a run that does not come to rest is reported
FLOOR = "floor"  # the name under which is reported what is delivered where nothing more was to come
LATE = "late"  # the name under which is reported what should have happened by then


def name_of(error: Exception) -> str:
    """Under which name an exception is reported: an assertion, or a complaint of the host's, or neither."""
    return INVARIANT if isinstance(error, AssertionError | AntiphonError) else ERROR


class Value(msgspec.Struct, frozen=True):
    """A struct that prints as code, without what has its default value."""

    def __repr__(self) -> str:
        parts = []
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            if field.required or value != field.default:
                parts.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


# Latency of a link -----------------------------------------------------------------------------------------------


class Constant(Value, frozen=True, tag=True):
    ns: int = MILLISECOND


class Uniform(Value, frozen=True, tag=True):
    low_ns: int
    high_ns: int


class Exponential(Value, frozen=True, tag=True):
    """A floor that light sets, and a tail that queues make."""

    floor_ns: int
    mean_ns: int


Latency = Constant | Uniform | Exponential


# Faults ----------------------------------------------------------------------------------------------------------


class Crash(Value, frozen=True, tag=True):
    """A process loses all but the durable part of its disk.

    ``effects``: crash in the middle of a release, the first that has more sends to single receivers, deliveries and
    answers than this, after so many of them; or right after the first delivery that leaves the process, or the first
    receipt for what a majority of each group holds.
    ``about``: a message, such as ``c1:5``. Then it is at the end of a release, the one in which the process tells
    others about this message for the ``effects``-th time.
    ``down_ns``: how long until it restarts from its disk; None means never.
    """

    process: str
    at: int
    down_ns: int | None = None
    effects: int | Literal["delivery", "receipt"] | None = None
    about: str | None = None


class Pause(Value, frozen=True, tag=True):
    """A process stops for a while and then goes on with everything that came meanwhile."""

    process: str
    at: int
    for_ns: int


class Slow(Value, frozen=True, tag=True):
    """Everything that a process does takes this much longer to leave it."""

    process: str
    at: int
    for_ns: int
    delay_ns: int


class Partition(Value, frozen=True, tag=True):
    """Links are down for a while, in both directions unless one way only.

    ``bridge``: a process that stays in contact with both sides.
    """

    side: tuple[str, ...]
    at: int
    for_ns: int
    one_way: bool = False
    bridge: str | None = None


class WrongSuspicion(Value, frozen=True, tag=True):
    """The failure detector of one process suspects another for a while, for no reason."""

    process: str
    suspect: str
    at: int
    for_ns: int


class Distrust(Value, frozen=True, tag=True):
    """The failure detectors of some processes suspect everybody but the trusted, for no reason, one after the other.

    ``for_ns``: how long; None means for ever. ◇S promises no more than one correct process that, in the end, no correct
    process suspects. A consensus is among whole groups, so one trusted member of each group is enough, or one of all
    groups where it is among all.
    """

    by: tuple[str, ...]
    trusted: tuple[str, ...]
    at: int
    for_ns: int | None = None


class Depose(Value, frozen=True, tag=True):
    """Something befalls whoever leads a group then: it crashes, is paused, is cut off from all others in one or both
    directions, or is suspected by a member for no reason; for a while."""

    group: str
    at: int
    for_ns: int
    how: Literal["crash", "pause", "cut", "mute", "suspicion"]


class Replace(Value, frozen=True, tag=True):
    """A process is gone for good, with its disk, if it is not already, and somebody new takes its place. The others
    hear of it one by one, within a while.

    ``then``: another one, which is gone for good as soon as the newcomer counts, or ``after_ns`` later.
    ``lingers``: it is not gone before all have heard; nobody was to replace it.
    """

    process: str
    at: int
    for_ns: int
    then: str | None = None
    after_ns: int = 0
    lingers: bool = False


Fault = Crash | Pause | Slow | Partition | WrongSuspicion | Distrust | Depose | Replace


def kind_of(fault: Fault) -> str:
    """Under which name campaigns count a fault."""
    name = type(fault).__name__
    if isinstance(fault, Depose):
        return f"{name} by {fault.how}"
    if isinstance(fault, Crash) and fault.effects is not None:
        return f"{name} amid a release" if isinstance(fault.effects, int) else f"{name} after a {fault.effects}"
    return f"{name} for ever" if isinstance(fault, Distrust) and fault.for_ns is None else name


# Workload --------------------------------------------------------------------------------------------------------


class Plan(Value, frozen=True):
    """One multicast to be made, not before ``at``."""

    sender: str
    at: int
    destinations: tuple[str, ...]
    size: int = 16  # of each payload, in bytes
    payloads: int = 1
    service: Service | None = None  # None: whatever the protocol does


class Distance(Value, frozen=True):
    """Between two processes a frame always takes so long, in either direction."""

    one: str
    other: str
    ns: int


class Instruction(Value, frozen=True):
    """A process is told to do something, if it is up then; see `antiphon tell`."""

    process: str
    at: int
    command: str  # and its values, if it has any: leave, or name value=1


class Scenario(Value, frozen=True, kw_only=True):
    """A whole run. The seed decides only what is left open here: each frame's latency, each lost tail."""

    protocol: str
    options: dict[str, str] = {}
    groups: dict[str, int]
    plans: tuple[Plan, ...]
    faults: tuple[Fault, ...] = ()
    commands: tuple[Instruction, ...] = ()
    latency: Latency = Constant()
    distances: tuple[Distance, ...] = ()  # of the pairs whose links have a latency of their own
    fifo: bool = True  # whether reliable channels keep the order of what is sent, too
    loss: float = 0.0  # of datagrams
    duplication: float = 0.0
    sent_survives: bool = False  # whether what a process sent arrives though it then crashes
    journal: bool = False
    sync_ns: int = 100_000  # how long a sync of the simulated disk takes
    snapshot_every: int = 0  # inputs between two snapshots; 0: never
    turn_ns: int = 0  # how long a process gathers inputs before a turn ends; 0: each input is a turn
    gather: int = 1  # requests that a member puts into one message at most
    steps: bool = False  # whether to follow each message's steps: it takes time
    closed_loop: bool = False  # whether a sender waits until its message is delivered before it sends the next
    through_members: bool = False  # clients hand requests to members and retry, instead of running the protocol
    seed: int = 0
    limit_ns: int = 3_600 * 1_000 * MILLISECOND  # give up then: what is missing is missing
    events_max: int = 0  # a run that has more is a livelock; 0: as many as its multicasts could possibly need

    @property
    def model(self) -> FaultModel:
        permanent = any(
            isinstance(fault, Replace) or (isinstance(fault, Crash) and fault.down_ns is None) for fault in self.faults
        )
        return FaultModel(permanent, self.sent_survives)
