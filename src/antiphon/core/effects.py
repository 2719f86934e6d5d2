"""Everything a process can do. The host releases effects once the input behind them is durable."""

from __future__ import annotations

import msgspec

from antiphon.core.buffers import Buffers
from antiphon.core.channel import ChannelId, Transport
from antiphon.core.events import Event
from antiphon.core.model import GroupId, MessageId, ProcessId
from antiphon.core.requests import Request


class Effect(msgspec.Struct, gc=False):
    pass


class Send(Effect):
    """Hand a frame to the channels to all of ``to``, with a number on each; datagrams have neither."""

    seq: int
    to: tuple[ProcessId, ...]
    channels: tuple[ChannelId, ...]
    numbers: tuple[int, ...]
    transport: Transport
    frame: Buffers
    layer: str
    about: tuple[MessageId, ...]  # all multicast messages that the frame is about, as far as it is traced
    foretold: bool = False  # a copy leaves at once: it does no harm should the input behind it be forgotten

    def cut_to(self, count: int) -> None:
        """Only the first receivers got it."""
        self.to, self.channels, self.numbers = self.to[:count], self.channels[:count], self.numbers[:count]


class Log(Effect):
    """Append an event to the log that the application reads.

    ``early``: whether or not this process will remember the input behind it, the event has this place in its log. So
    readers may see it as soon as all inputs before that one are durable.
    """

    seq: int
    event: Event
    early: bool = False


class Reply(Effect):
    """Tell a client that its requests to these groups are safe, up to the number ``taken``."""

    seq: int
    client: str
    destinations: tuple[GroupId, ...]
    taken: int
    requests: tuple[Request, ...]  # those that are answered
    fresh: int  # so many of these, the last ones, were not taken before


class Assured(Effect):
    """Tell a client that a majority of each of these groups holds its requests for good, up to a number.

    Nothing of that is ordered behind ``timestamp`` (core/floors.py). ``early``: it is so whether or not this process
    will remember the input behind it, so it may leave as soon as all inputs before that one are durable.
    """

    seq: int
    client: str
    destinations: tuple[GroupId, ...]
    assured: int
    timestamp: int
    requests: tuple[Request, ...]  # those of which it was not told before, or asks again
    early: bool = False


class Record(Effect):
    """An event of the trace that is about no other effect."""

    seq: int
    kind: str
    message: MessageId | None = None
    destinations: tuple[GroupId, ...] | None = None
    requests: tuple[Request, ...] = ()
    peer: ProcessId | None = None
    time_ns: int | None = None  # where the event's time is not the time of the release
    about: tuple[MessageId, ...] | None = None  # enter: what the message directly follows, as far as it is this one's
    layer: str | None = None  # enter: of the graph; multicast: the service that was asked for, if any
    position: int | None = None


class SetTimer(Effect):
    """Feed ``Fire(part, timer, due)`` at ``due``; replaces an earlier setting of the same timer."""

    part: int
    timer: bytes
    due: int


class CancelTimer(Effect):
    part: int
    timer: bytes


class Monitor(Effect):
    """From now on watch exactly these processes for failures, and say ``Suspect`` and ``Trust`` of them."""

    processes: tuple[ProcessId, ...]


class Forget(Effect):
    """These processes were replaced: nobody keeps a frame for them any more."""

    processes: tuple[ProcessId, ...]


AnyEffect = Send | Log | Reply | Assured | Record | SetTimer | CancelTimer | Monitor | Forget
