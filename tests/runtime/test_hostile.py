"""Whoever calls at a process's port, the process goes on; and it counts whom it turned away."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Callable

import pytest

import antiphon
from antiphon.runtime import cluster
from antiphon.runtime.control import ask
from antiphon.runtime.folder import ClusterConfig, ClusterFolder
from antiphon.runtime.frames import HEADER, MAGIC, VERSION, Hello, Kind, Rejected, Request, decode, encode
from antiphon.runtime.server import HELLO_SECONDS, STRANGERS_MAX

MakeCluster = Callable[..., ClusterFolder]

VICTIM = "orders.1"


def call(config: ClusterConfig, data: bytes) -> socket.socket:
    caller = socket.create_connection(config.address(VICTIM), timeout=10)
    caller.sendall(data)
    return caller


def is_closed(caller: socket.socket) -> bool:
    """Wait until the other side has ended the connection."""
    with caller:
        try:
            while caller.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
    return True


def hello(config: ClusterConfig, **changes: object) -> bytes:
    fields: dict[str, object] = {
        "magic": MAGIC,
        "version": VERSION,
        "cluster": config.cluster,
        "role": "peer",
        "name": "orders.2",
        "to": VICTIM,
    }
    return encode(Kind.HELLO, Hello(**{**fields, **changes}))  # type: ignore[arg-type]


def test_hostile_callers_are_turned_away_and_counted(make_cluster: MakeCluster) -> None:
    folder: ClusterFolder = make_cluster({"orders": 2})
    config = folder.config
    silent = call(config, b"")
    slow = call(config, HEADER.pack(60, Kind.HELLO) + b"half a hello")
    begun = time.monotonic()
    rng = random.Random(5)
    for _ in range(20):
        assert is_closed(call(config, b"\xff" + rng.randbytes(2000)))
    assert is_closed(call(config, HEADER.pack(1 << 30, Kind.HELLO)))
    assert is_closed(call(config, encode(Kind.STATUS)))
    assert is_closed(call(config, hello(config, magic="http")))
    assert is_closed(call(config, hello(config, version=99)))
    assert is_closed(call(config, hello(config, cluster="another")))
    assert is_closed(call(config, hello(config, name="orders.9")))
    assert is_closed(call(config, hello(config, name=VICTIM)))
    assert is_closed(call(config, hello(config, to="orders.2")))
    assert is_closed(call(config, hello(config, incarnation=-1)))
    assert is_closed(call(config, hello(config, role="client", name="no such/name")))
    assert is_closed(silent)
    assert is_closed(slow)
    assert time.monotonic() - begun > HELLO_SECONDS / 2
    status = ask(config, VICTIM)
    assert status is not None
    refused = status.refused
    assert refused["oversized frame"] + refused["bad frame"] >= 22
    assert refused["no antiphon"] == refused["wrong version"] == refused["wrong cluster"] == 1
    assert refused["unknown process"] == 3
    assert refused["old incarnation"] == refused["bad client name"] == 1
    assert refused["no hello in time"] == 2
    asyncio.run(_still_works(folder))


async def _still_works(folder: ClusterFolder) -> None:
    async with antiphon.connect(folder.path) as client:
        receipt = await client.multicast({"orders"}, b"still here", timeout=10)
        async for delivery in client.subscribe("orders"):
            assert (delivery.name, delivery.payload) == (receipt.name, b"still here")
            break


def test_a_valid_caller_that_then_talks_nonsense_is_cut_off(make_cluster: MakeCluster) -> None:
    folder: ClusterFolder = make_cluster({"orders": 2})
    config = folder.config
    client = hello(config, role="client", name="mallory")
    for nonsense in (os.urandom(100).replace(b"\0", b"\1"), encode(Kind.ACCEPTED), encode(Kind.REQUEST)):
        caller = call(config, client)
        caller.recv(1 << 16)
        caller.sendall(nonsense)
        assert is_closed(caller)
    anonymous = call(config, hello(config, role="client", name="mallory", cluster=""))
    anonymous.recv(1 << 16)
    anonymous.sendall(encode(Kind.DRAIN))  # only who names the cluster may
    assert is_closed(anonymous)
    asyncio.run(_still_works(folder))


def test_too_many_strangers_do_not_keep_friends_out(make_cluster: MakeCluster) -> None:
    folder: ClusterFolder = make_cluster({"orders": 2})
    strangers = [call(folder.config, b"") for _ in range(STRANGERS_MAX + 10)]
    assert sum(_is_closed_already(stranger) for stranger in strangers) == 10
    for stranger in strangers:
        stranger.close()
    time.sleep(0.2)
    status = ask(folder.config, VICTIM)
    assert status is not None
    assert status.refused["too many connections"] == 10
    asyncio.run(_still_works(folder))


def _is_closed_already(caller: socket.socket) -> bool:
    caller.settimeout(0.02)
    try:
        return caller.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("groups", [[], ["nowhere"], ["orders", "nowhere"]])
def test_a_bad_request_is_refused_with_a_sentence(make_cluster: MakeCluster, groups: list[str]) -> None:
    folder: ClusterFolder = make_cluster({"orders": 1})
    caller = call(folder.config, hello(folder.config, role="client", name="mallory"))
    caller.recv(1 << 16)
    caller.sendall(encode(Kind.REQUEST, Request(0, 0, groups, b"x")))
    answer = caller.recv(1 << 16)
    caller.close()
    assert answer[4] == Kind.REFUSED
    assert b"group" in answer


def test_rejections_say_why(make_cluster: MakeCluster) -> None:
    folder: ClusterFolder = make_cluster({"orders": 1})
    caller = call(folder.config, hello(folder.config, role="client", cluster="another"))
    answer = caller.recv(1 << 16)
    caller.close()
    rejected = decode(Rejected, answer[HEADER.size :])
    assert rejected.reason == "wrong cluster"
    assert cluster.stop(folder)
