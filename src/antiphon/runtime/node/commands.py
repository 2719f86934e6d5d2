"""What a process does for the commands that look after a cluster: `status`, `tell`, `replace` and `down`.

They have a share of their own of the connections (net/port.py), so that no crowd of clients keeps them out.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.core.commands import parse_command
from antiphon.core.errors import BadFrame, JournalFull, Unavailable, UsageError
from antiphon.core.inputs import Tell
from antiphon.runtime.net import FrameStream, ReceivedFrame
from antiphon.runtime.net.frames import WELCOME_BYTES_MAX, FrameKind, Replaced, TellCommand, Told, decode, encode
from antiphon.runtime.node.gateway import Gateway


class CommandCaller:
    """A command that has named the cluster, on one connection."""

    frame_bytes_max = WELCOME_BYTES_MAX

    def __init__(self, gateway: Gateway, stream: FrameStream, replaced: Callable[[Replaced], None]) -> None:
        """``replaced`` is told who has taken whose place."""
        self._gateway = gateway
        self._driver = gateway.driver
        self._stream = stream
        self._replaced = replaced

    def on_frames(self, frames: list[ReceivedFrame]) -> None:
        """However often the status is asked for in what came together, one answer says all."""
        is_asked = False
        for kind, body in frames:
            if kind == FrameKind.STATUS:
                is_asked = True
            elif kind == FrameKind.DRAIN:
                self._gateway.drain()
            elif kind == FrameKind.TELL:
                self._on_tell(decode(TellCommand, body))
            elif kind == FrameKind.REPLACED:
                self._on_replaced(decode(Replaced, body))
            else:
                raise BadFrame(f"A frame of kind {kind} is out of place.")
        if is_asked:
            self._stream.write(encode(FrameKind.STATUS_ANSWER, self._gateway.status()))

    def _on_tell(self, wanted: TellCommand) -> None:
        """Answer when the command is durable: whatever happens then, it is done."""
        driver, protocol = self._driver, self._driver.process.protocol
        try:
            if not driver.begun:
                raise Unavailable(f"{driver.process.me} has just been started and has yet to meet its peers.")
            driver.take(Tell(driver.clock(), parse_command(type(protocol), protocol.options, wanted.words)))
        except UsageError as error:
            self._answer(Told("usage", str(error)))
        except (Unavailable, JournalFull) as error:
            self._answer(Told("unavailable", str(error)))
        else:
            driver.when_durable(lambda: self._answer(Told()))

    def _on_replaced(self, replaced: Replaced) -> None:
        try:
            self._replaced(replaced)
        except UsageError as error:
            self._answer(Told("usage", str(error)))
        except JournalFull as error:
            self._answer(Told("unavailable", str(error)))
        else:
            self._driver.when_durable(lambda: self._answer(Told()))

    def _answer(self, told: Told) -> None:
        self._stream.write(encode(FrameKind.TOLD, told))
        self._stream.flush()

    def on_writable(self, writable: bool) -> None:
        """Who does not take the answers is not heard."""
        if writable:
            self._stream.resume_reading()
        else:
            self._stream.pause_reading()

    def on_closed(self) -> None:
        """There is nothing to give back."""
