"""A blocking caller for single questions to single processes: status, and the request to drain."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from antiphon.core.errors import BadFrame
from antiphon.runtime.folder import ClusterConfig
from antiphon.runtime.frames import (
    MAGIC,
    VERSION,
    WELCOME_BYTES_MAX,
    Hello,
    Kind,
    Parser,
    StatusAnswer,
    decode,
    encode,
)

ANSWER_SECONDS = 2.0


def ask_all(
    config: ClusterConfig, processes: Iterable[str], *, drain: bool = False, timeout: float = ANSWER_SECONDS
) -> dict[str, StatusAnswer | None]:
    """The status of each process, None where there is no answer in time; first tells them to drain, if wanted."""
    wanted = list(processes)
    if not wanted:
        return {}
    with ThreadPoolExecutor(min(len(wanted), 32)) as pool:
        answers = pool.map(lambda process: ask(config, process, drain=drain, timeout=timeout), wanted)
        return dict(zip(wanted, answers, strict=True))


def ask(
    config: ClusterConfig, process: str, *, drain: bool = False, timeout: float = ANSWER_SECONDS
) -> StatusAnswer | None:
    try:
        with socket.create_connection(config.address(process), timeout=timeout) as connection:
            connection.sendall(encode(Kind.HELLO, Hello(MAGIC, VERSION, config.cluster, "client", "control")))
            parser = Parser(WELCOME_BYTES_MAX)
            while data := connection.recv(1 << 16):
                for kind, body in parser.feed(data):
                    if kind == Kind.WELCOME:
                        connection.sendall((encode(Kind.DRAIN) if drain else b"") + encode(Kind.STATUS))
                    elif kind == Kind.STATUS_ANSWER:
                        return decode(StatusAnswer, body)
                    elif kind == Kind.REJECTED:
                        return None
    except (OSError, BadFrame):
        return None
    return None
