"""A client's connection to one member: the handshake; what follows is for whoever asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, Self

from antiphon.core.errors import BadFrame, Unavailable, UsageError
from antiphon.runtime.net import Address, FrameStream, ReceivedFrame, dial, reason
from antiphon.runtime.net.frames import (
    MAGIC,
    VERSION,
    WELCOME_BYTES_MAX,
    Directory,
    FrameKind,
    Hello,
    Rejected,
    decode,
    encode,
)

JOIN_SECONDS = 3.0  # for a connection to be made and welcomed ...
JOIN_SECONDS_MAX = 15.0  # ... and where a crowd keeps a member busy
MEMBER_SILENCE_SECONDS = 5.0  # a member that owes an answer and says nothing for so long is given up


class NoAnswer(Unavailable):
    """Somebody may be there, but did not answer in time."""


class MemberConnection(FrameStream):
    """Subclasses say what becomes of the frames after the handshake."""

    frame_bytes_max = WELCOME_BYTES_MAX  # after the handshake

    def __init__(self) -> None:
        super().__init__(WELCOME_BYTES_MAX)
        self.directory: Directory
        self.on_directory: Callable[[Directory], None] = lambda directory: None  # told of each that comes
        self.is_given_up = False
        self._welcomed: asyncio.Future[Directory] = self.loop.create_future()

    async def join(
        self, address: Address, cluster: str, client: str, to: str = "", seconds: float = JOIN_SECONDS
    ) -> Self:
        """Connect and exchange names. Unavailable: nobody there; UsageError: somebody who is not of this cluster."""
        host, port = address
        try:
            async with asyncio.timeout(seconds):
                await dial(address, lambda: self, seconds)
                self.write(encode(FrameKind.HELLO, Hello(MAGIC, VERSION, cluster, "client", client, to)))
                self.directory = await self._welcomed
                self.on_directory(self.directory)
        except TimeoutError:
            self.give_up()
            raise NoAnswer(f"{host}:{port} did not answer within {seconds:g} seconds.") from None
        except OSError as error:
            self.give_up()
            raise Unavailable(f"Nobody answers at {host}:{port}: {reason(error)}.") from None
        except BaseException:
            self.give_up()
            raise
        if to and self.directory.process != to:
            self.give_up()
            raise UsageError(f"The process at {host}:{port} is {self.directory.process}, not {to}.")
        return self

    # For subclasses -------------------------------------------------------------------------------------------------

    def on_answers(self, frames: list[ReceivedFrame]) -> None:
        """Frames that came after the handshake. BadFrame ends the connection."""
        for kind, body in frames:
            if kind != FrameKind.WELCOME:
                raise BadFrame(f"A frame of kind {kind} is out of place.")
            self.directory = decode(Directory, body)  # members were replaced
            self.on_directory(self.directory)

    def on_gone(self) -> None:
        """The connection has ended, for whatever reason but `give_up`."""

    # ----------------------------------------------------------------------------------------------------------------

    def give_up(self) -> None:
        """End the connection now; nothing more is heard of it."""
        self.is_given_up = True
        self.is_open = False
        self.abort()

    def on_frames(self, frames: list[ReceivedFrame]) -> None:
        """The handshake's answer; what comes after it goes to `on_answers`."""
        if self.is_given_up:
            return
        kind, body = frames.pop(0)
        if kind == FrameKind.WELCOME:
            self._welcomed.set_result(decode(Directory, body))
            self.limit = self.frame_bytes_max
        elif kind == FrameKind.REJECTED:
            self._welcomed.set_exception(UsageError(decode(Rejected, body).sentence))
        else:
            raise BadFrame("The first answer is neither a welcome nor a rejection.")
        self.handler = self.on_answers
        if frames:
            self.on_answers(frames)

    def on_lost(self) -> None:
        if not self._welcomed.done():
            self._welcomed.set_exception(NoAnswer("The connection was closed before it was welcomed."))
            self._welcomed.exception()  # whoever dialled may have given up waiting
        if not self.is_given_up:
            self.on_gone()


class JoinMember(Protocol):
    """Connects to a member by its name, as `MemberConnection.join` does."""

    def __call__(
        self, connection: MemberConnection, member: str, seconds: float = JOIN_SECONDS
    ) -> Awaitable[object]: ...
