"""Lines from a file descriptor for an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator

from antiphon.core.errors import UsageError

READ_BYTES = 64 << 10
CHUNKS_AHEAD_MAX = 4  # read ahead of whoever takes the lines


class Lines:
    """The lines without their ends, read by a thread of their own, from a terminal, a pipe or a file.

    A read from a terminal cannot be called off. The thread is a daemon and reads past Python's buffers, which it would
    keep locked: so a program that is interrupted leaves it behind and ends at once.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[list[bytes] | OSError | None] = asyncio.Queue()
        self._room = threading.Semaphore(CHUNKS_AHEAD_MAX)
        threading.Thread(target=self._read, daemon=True, name="standard input").start()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (found := await self._chunks.get()) is not None:
            if isinstance(found, OSError):
                raise UsageError(f"Standard input cannot be read: {found.strerror}.")
            self._room.release()
            for line in found:
                yield line.rstrip(b"\r")

    def _read(self) -> None:
        rest = b""
        try:
            while chunk := os.read(self._fd, READ_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                self._room.acquire()
                self._put(lines)
            self._put([rest] if rest else [])
            self._put(None)
        except OSError as error:
            self._put(error)
        except RuntimeError:
            return  # the loop is closed: nobody wants more

    def _put(self, found: list[bytes] | OSError | None) -> None:
        self._loop.call_soon_threadsafe(self._chunks.put_nowait, found)
