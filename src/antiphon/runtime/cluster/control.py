"""A blocking caller for single questions to single processes: status, and the request to drain."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from antiphon.core.errors import BadFrame
from antiphon.runtime.cluster.folder import ClusterConfig
from antiphon.runtime.net import dial_blocking
from antiphon.runtime.net.frames import (
    HEADER,
    MAGIC,
    VERSION,
    WELCOME_BYTES_MAX,
    FrameKind,
    Hello,
    Oversized,
    StatusAnswer,
    decode,
    encode,
)

STATUS_ANSWER_SECONDS = 2.0


def ask_all(
    config: ClusterConfig,
    processes: Iterable[str],
    *,
    here: bool = False,
    drain: bool = False,
    timeout: float = STATUS_ANSWER_SECONDS,
) -> dict[str, StatusAnswer | None]:
    """The status of each process, None where there is no answer in time; first tells them to drain, if wanted.

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
) -> StatusAnswer | None:
    try:
        address = config.listens_on(process) if here else config.address(process)
        with dial_blocking(address, timeout) as connection:
            connection.sendall(encode(FrameKind.HELLO, Hello(MAGIC, VERSION, config.cluster, "client", "control")))
            for kind, body in _frames(connection):
                if kind == FrameKind.WELCOME:
                    connection.sendall((encode(FrameKind.DRAIN) if drain else b"") + encode(FrameKind.STATUS))
                elif kind == FrameKind.STATUS_ANSWER:
                    return decode(StatusAnswer, body)
                elif kind == FrameKind.REJECTED:
                    return None
    except (OSError, BadFrame):
        return None
    return None


def _frames(connection: socket.socket) -> Iterator[tuple[int, bytes]]:
    """The frames that come, until the other side ends the connection."""
    with connection.makefile("rb") as incoming:
        while len(head := incoming.read(HEADER.size)) == HEADER.size:
            length, kind = HEADER.unpack(head)
            if length > WELCOME_BYTES_MAX:
                raise Oversized("An answer is too long.")
            body = incoming.read(length)
            if len(body) < length:
                return
            yield kind, body
