"""The one place that dials: peers, clients and commands reach other processes through here."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import TypeVar

from antiphon.core.errors import UsageError
from antiphon.runtime.net.stream import FrameStream

Dialled = TypeVar("Dialled", bound=FrameStream)

PORT_MAX = 65_535
CONNECT_SECONDS = 3.0
Address = tuple[str, int]


def parse_address(text: str) -> Address:
    """``host:port`` as a pair."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 1 <= int(port) <= PORT_MAX:
        raise UsageError(f"{text!r} is not an address: write host:port, with a port from 1 to {PORT_MAX}.")
    return host, int(port)


def reason(error: OSError) -> str:
    """Why it failed, in the system's own words: those of an event loop are for programmers."""
    if error.errno is not None and error.errno > 0:  # else it is not the system's: a name that cannot be looked up
        return os.strerror(error.errno)
    return error.strerror or str(error)


async def dial(address: Address, make: Callable[[], Dialled], seconds: float = CONNECT_SECONDS) -> Dialled:
    """Open a connection and put a stream on it. OSError: nobody is there, or nobody answers."""
    host, port = address
    async with asyncio.timeout(seconds):
        _, stream = await asyncio.get_running_loop().create_connection(make, host, port)
    return stream


def dial_blocking(address: Address, timeout: float) -> socket.socket:
    """The same for callers without an event loop. OSError: nobody is there."""
    return socket.create_connection(address, timeout=timeout)
