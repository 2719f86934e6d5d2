"""Which ports are free on this machine."""

from __future__ import annotations

import random
import socket
import time

from antiphon.core.errors import UsageError
from antiphon.runtime.net.dial import PORT_MAX

HOST = "127.0.0.1"
PORTS = (10_000, 32_000)  # below the range from which the system takes ports for outgoing connections
PORT_SECONDS = 2.0


def free_ports(count: int, base_port: int | None) -> list[int]:
    """``count`` of them: from ``base_port`` on, or any."""
    if base_port is not None:
        ports = list(range(base_port, base_port + count))
        if base_port < 1 or ports[-1] > PORT_MAX:
            raise UsageError(f"Ports {base_port} to {ports[-1]} do not exist: they go from 1 to {PORT_MAX}.")
        for port in ports:
            if not _is_free(port):
                raise UsageError(f"Port {port} is in use: choose another --base-port.")
        return ports
    first, last = PORTS
    candidates = random.SystemRandom().sample(range(first, last), last - first)
    found: list[int] = []
    for port in candidates:
        if len(found) == count:
            break
        if _is_free(port):
            found.append(port)
    if len(found) < count:
        raise UsageError(f"There are no {count} free ports between {first} and {last}.")
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            datagrams.bind((HOST, port))
        except OSError:
            return False
    return True


def becomes_free(port: int) -> bool:
    """Whether a port is free; a process that was killed may take a moment to let go of it."""
    deadline = time.monotonic() + PORT_SECONDS
    while not _is_free(port):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
