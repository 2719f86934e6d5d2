"""A blocking caller for single questions to single processes: status, the request to drain, and commands."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from antiphon.core.errors import BadFrame, OutcomeUnknown, Unavailable, UsageError
from antiphon.runtime.cluster.config import ClusterConfig
from antiphon.runtime.net import dial_blocking
from antiphon.runtime.net.frames import (
    HEADER,
    MAGIC,
    VERSION,
    WELCOME_BYTES_MAX,
    FrameKind,
    Hello,
    Oversized,
    Rejected,
    Replaced,
    StatusAnswer,
    TellCommand,
    Told,
    decode,
    encode,
)

STATUS_ANSWER_SECONDS = 2.0
TOLD_SECONDS = 10.0

Answered = StatusAnswer | Rejected | None  # None: nobody is there, or does not answer in time


def ask_all(
    config: ClusterConfig,
    processes: Iterable[str],
    *,
    here: bool = False,
    drain: bool = False,
    timeout: float = STATUS_ANSWER_SECONDS,
) -> dict[str, Answered]:
    """The status of each process, as far as it answers; first tells them to drain, if wanted.

    ``here``: they run on this machine, and are asked where they listen.
    """
    wanted = list(processes)
    if not wanted:
        return {}
    with ThreadPoolExecutor(min(len(wanted), 32)) as pool:
        answers = pool.map(lambda process: ask(config, process, here=here, drain=drain, timeout=timeout), wanted)
        return dict(zip(wanted, answers, strict=True))


def ask(
    config: ClusterConfig,
    process: str,
    *,
    here: bool = False,
    drain: bool = False,
    timeout: float = STATUS_ANSWER_SECONDS,
) -> Answered:
    deadline = time.monotonic() + timeout
    try:
        address = config.listens_on(process) if here else config.address(process)
        with dial_blocking(address, timeout) as connection:
            connection.sendall(_hello(config))
            for kind, body in _frames(connection, deadline):
                if kind == FrameKind.WELCOME:
                    connection.sendall((encode(FrameKind.DRAIN) if drain else b"") + encode(FrameKind.STATUS))
                elif kind == FrameKind.STATUS_ANSWER:
                    return decode(StatusAnswer, body)
                elif kind == FrameKind.REJECTED:
                    return decode(Rejected, body)
    except (OSError, BadFrame):
        return None
    return None


def tell(config: ClusterConfig, process: str, words: Sequence[str], *, timeout: float = TOLD_SECONDS) -> None:
    """Have a process do something; it is in its journal when this returns."""
    _order(config, process, encode(FrameKind.TELL, TellCommand(list(words))), timeout)


def tell_replaced(config: ClusterConfig, process: str, *, timeout: float = TOLD_SECONDS) -> None:
    """Have a process know who the members are; it is in its journal when this returns."""
    replaced = [(each.lost, each.newcomer, config.addresses.get(each.newcomer, "")) for each in config.replaced]
    _order(config, process, encode(FrameKind.REPLACED, Replaced(replaced)), timeout)


def _order(config: ClusterConfig, process: str, order: bytes, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    try:
        with dial_blocking(config.address(process), timeout) as connection:
            connection.sendall(_hello(config))
            for kind, body in _frames(connection, deadline):
                if kind == FrameKind.WELCOME:
                    connection.sendall(order)
                elif kind == FrameKind.REJECTED:
                    raise Unavailable(decode(Rejected, body).sentence)
                elif kind == FrameKind.TOLD:
                    told = decode(Told, body)
                    if told.error:
                        raise (UsageError if told.error == "usage" else Unavailable)(told.sentence)
                    return
    except ConnectionRefusedError:
        raise Unavailable(f"{process} is down, and was told nothing.") from None
    except (OSError, BadFrame):
        pass
    raise OutcomeUnknown(f"{process} did not answer: it may or may not have been told.")


def _hello(config: ClusterConfig) -> bytes:
    return encode(FrameKind.HELLO, Hello(MAGIC, VERSION, config.cluster, "command", "control"))


def _frames(connection: socket.socket, deadline: float) -> Iterator[tuple[int, bytes]]:
    """The frames that come, until the other side ends the connection. TimeoutError: it does neither in time."""
    while head := _read(connection, HEADER.size, deadline):
        length, kind = HEADER.unpack(head)
        if length > WELCOME_BYTES_MAX:
            raise Oversized("An answer is too long.")
        body = _read(connection, length, deadline)
        if len(body) < length:
            return
        yield kind, body


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    """So many bytes; none if the connection ends before. Also who sends a byte now and then has to end in time."""
    found = bytearray()
    while len(found) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        some = connection.recv(size - len(found))
        if not some:
            return b""
        found += some
    return bytes(found)
