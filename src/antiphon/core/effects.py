"""Everything a process can do. The driver releases effects once the input behind them is durable."""

from __future__ import annotations

import msgspec

from antiphon.core.model import Message, MessageId, ProcessId


class Effect(msgspec.Struct, gc=False):
    pass


class Send(Effect):
    """Hand a frame to the channel to ``to``. ``number`` is 0 on a lossy channel, which numbers nothing."""

    seq: int
    to: ProcessId
    number: int
    frame: bytes
    layer: str
    subject: MessageId | None  # the multicast message that the frame is about


class Deliver(Effect):
    """Give a message to the application, as the ``position``-th of this process's group."""

    seq: int
    message: Message
    position: int
    order_key: str | None


class Record(Effect):
    """A trace row that is about no other effect."""

    seq: int
    kind: str
    message: MessageId | None = None
    destinations: tuple[str, ...] | None = None
    peer: ProcessId | None = None
    layer: str | None = None
    bytes: int | None = None
    time_ns: int | None = None  # where the event's time is not the time of the release


class SetTimer(Effect):
    """Feed ``Fire(timer, due)`` at ``due``; replaces an earlier setting of the same timer."""

    timer: str
    due: int


class CancelTimer(Effect):
    timer: str


class Reply(Effect):
    """Tell a client that its request is safe."""

    client: str
    number: int


class Monitor(Effect):
    """From now on watch exactly these processes for failures, and say ``Suspect`` and ``Trust`` of them."""

    processes: tuple[ProcessId, ...]


AnyEffect = Send | Deliver | Record | SetTimer | CancelTimer | Reply | Monitor
