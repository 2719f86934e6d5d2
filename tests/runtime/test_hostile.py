"""Whoever calls at a process's port, the process goes on; and it counts whom it turned away."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

import antiphon
from antiphon.core.buffers import Buffers
from antiphon.core.channel import NO_FRAMES, NUMBERED, Prefix
from antiphon.core.errors import Unavailable
from antiphon.core.model import Message, MessageId, ProcessId, Topology
from antiphon.core.process import Process
from antiphon.core.requests import PAYLOAD_BYTES_MAX, PAYLOADS_MAX, REQUEST_BYTES_MAX, encode_request
from antiphon.protocols.skeen import Skeen, Start
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterConfig, ClusterFolder, ask
from antiphon.runtime.disk import JournalIdentity, SegmentedLog
from antiphon.runtime.net.frames import (
    HEADER,
    MAGIC,
    VERSION,
    ChannelMarks,
    FrameKind,
    Hello,
    Refused,
    Rejected,
    RouteNumber,
    Welcome,
    data_head,
    decode,
    encode,
    encode_ack,
    request_head,
)
from antiphon.runtime.net.port import HELLO_SECONDS
from antiphon.runtime.node import CODE
from waiting import IN_TIME_SECONDS, becomes

MakeCluster = Callable[..., ClusterFolder]

VICTIM = "orders.1"


def call(config: ClusterConfig, data: bytes) -> socket.socket:
    caller = socket.create_connection(config.address(VICTIM), timeout=IN_TIME_SECONDS)
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
        "channels": [ChannelMarks(transport, 0, 0, NO_FRAMES) for transport in NUMBERED],
    }
    return encode(FrameKind.HELLO, Hello(**{**fields, **changes}))  # type: ignore[arg-type]


def test_hostile_callers_are_turned_away_and_counted(make_cluster: MakeCluster) -> None:
    folder: ClusterFolder = make_cluster({"orders": 2})
    config = folder.config
    silent = call(config, b"")
    slow = call(config, HEADER.pack(60, FrameKind.HELLO) + b"half a hello")
    begun = time.monotonic()
    rng = random.Random(5)
    for _ in range(20):
        assert is_closed(call(config, b"\xff" + rng.randbytes(2000)))
    assert is_closed(call(config, HEADER.pack(1 << 30, FrameKind.HELLO)))
    assert is_closed(call(config, encode(FrameKind.STATUS)))
    assert is_closed(call(config, hello(config, magic="http")))
    assert is_closed(call(config, hello(config, version=99)))
    assert is_closed(call(config, hello(config, cluster="another")))
    assert is_closed(call(config, hello(config, name="orders.9")))
    assert is_closed(call(config, hello(config, name=VICTIM)))
    assert is_closed(call(config, hello(config, to="orders.2")))
    assert is_closed(call(config, hello(config, incarnation=-1)))
    assert is_closed(call(config, hello(config, incarnation=9, channels=[])))
    assert is_closed(call(config, hello(config, role="client", name="no such/name")))
    assert is_closed(silent)
    assert is_closed(slow)
    assert time.monotonic() - begun > HELLO_SECONDS / 2
    status = ask(config, VICTIM)
    assert status is not None
    refused = status.refused
    assert refused["oversized frame"] + refused["bad frame"] >= 23
    assert refused["no antiphon"] == refused["wrong version"] == refused["wrong cluster"] == 1
    assert refused["unknown process"] == 2
    assert refused["stranger"] == 1, "it is called like a member to come"
    assert refused["old incarnation"] == refused["bad client name"] == 1
    assert refused["no hello in time"] == 2
    asyncio.run(_still_works(folder))


async def _still_works(folder: ClusterFolder) -> None:
    async with antiphon.connect(folder.path) as client:
        receipt = await client.multicast({"orders"}, b"still here")
        async for delivery in client.subscribe("orders"):
            assert delivery.payload == b"still here"
            if delivery.name == receipt.name:
                break


def test_a_valid_caller_that_then_talks_nonsense_is_cut_off(make_cluster: MakeCluster) -> None:
    folder: ClusterFolder = make_cluster({"orders": 2})
    config = folder.config
    client = hello(config, role="client", name="mallory")
    random_bytes = os.urandom(100).replace(b"\0", b"\1")
    for_commands = [encode(kind) for kind in (FrameKind.STATUS, FrameKind.DRAIN, FrameKind.TELL)]
    for nonsense in (random_bytes, encode(FrameKind.TAKEN), encode(FrameKind.REQUEST), *for_commands):
        caller = call(config, client)
        caller.recv(1 << 16)
        caller.sendall(nonsense)
        assert is_closed(caller)
    command = call(config, hello(config, role="command", name="control"))
    command.recv(1 << 16)
    command.sendall(encode(FrameKind.SUBSCRIBE))
    assert is_closed(command)
    asyncio.run(_still_works(folder))


def test_a_forged_hello_stops_nobody(make_cluster: MakeCluster) -> None:
    """Nobody proves who calls: numbers that would be a reason to stop are asked for again at the peer's own address."""
    folder: ClusterFolder = make_cluster({"orders": 2})
    config = folder.config
    far = [ChannelMarks(transport, 0, 10**9, Prefix(10**9, 0)) for transport in NUMBERED]
    assert is_closed(call(config, hello(config, incarnation=1, channels=far)))
    newest = call(config, hello(config, incarnation=1 << 40))
    newest.recv(1 << 16)
    newest.close()
    asyncio.run(_still_works(folder))
    cluster.kill(folder, "orders.2")
    assert is_closed(call(config, hello(config, incarnation=1, channels=far)))  # now nobody there can be asked
    cluster.start(folder)
    asyncio.run(_still_works(folder))
    status = ask(config, VICTIM)
    assert status is not None
    assert status.refused["behind"] == 2


class Squatter:
    """Sits at the address of a process that is down, and gives everybody the same answer."""

    def __init__(self, config: ClusterConfig, process: str, answer: bytes) -> None:
        self.calls = 0
        self._answer = answer
        self._callers: list[socket.socket] = []
        self._port = self._take(config.address(process))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _take(self, address: tuple[str, int]) -> socket.socket:
        deadline = time.monotonic() + IN_TIME_SECONDS
        while True:
            try:
                return socket.create_server(address)
            except OSError:  # the last connections of the process that is down are not gone yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._port.accept()
                self._callers.append(caller)
                with suppress(OSError):
                    caller.recv(1 << 16)
                    caller.sendall(self._answer)
                self.calls += 1

    def was_called(self, times: int) -> bool:
        return becomes(lambda: self.calls >= times)

    def leave(self) -> None:
        self._port.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for each in (self._port, *self._callers):
            each.close()


def a_welcome(process: str, incarnation: int, held: int = 0) -> bytes:
    channels = [ChannelMarks(transport, 0, 0, Prefix(held, 0)) for transport in NUMBERED]
    return encode(FrameKind.WELCOME, Welcome(process, incarnation, channels))


def multicast(folder: ClusterFolder, count: int) -> None:
    async def run() -> None:
        async with antiphon.connect(folder.path) as client:
            for i in range(count):
                await client.multicast({"orders"}, str(i).encode())

    asyncio.run(run())


def test_who_sits_at_the_address_of_a_dead_member_is_not_believed(make_cluster: MakeCluster) -> None:
    """Whatever a stranger would say there that does not fit, the others go on and keep what the member has missed."""
    folder: ClusterFolder = make_cluster({"orders": 3}, protocol="tom")
    multicast(folder, 3)
    assert cluster.wait_idle(folder, 60)
    cluster.kill(folder, "orders.3")
    answers = (
        a_welcome("orders.2", 1),
        a_welcome("orders.3", 0),  # an old copy
        a_welcome("orders.3", 1) + encode_ack(NUMBERED[0], 10**9),  # which it was never sent
    )
    for answer in answers:
        squatter = Squatter(folder.config, "orders.3", answer)
        assert squatter.was_called(1)
        multicast(folder, 1)
        squatter.leave()
    cluster.start(folder)
    assert cluster.wait_idle(folder, 60)
    delivered = [status.delivered for status in cluster.statuses(folder).values() if status is not None]
    assert delivered == [3 + len(answers)] * 3


def test_a_convincing_welcome_can_keep_members_away_but_loses_nothing(make_cluster: MakeCluster) -> None:
    """Connections are not authenticated: who answers at a member's address, by its name, is taken for it."""
    folder: ClusterFolder = make_cluster({"orders": 3}, protocol="tom")
    multicast(folder, 3)
    assert cluster.wait_idle(folder, 60)
    cluster.kill(folder, "orders.3")
    newer = Squatter(folder.config, "orders.3", a_welcome("orders.3", 1 << 40))
    assert newer.was_called(2)
    multicast(folder, 3)
    newer.leave()
    with pytest.raises(Unavailable, match=r"A newer orders\.3 than incarnation 2 runs"):
        cluster.start(folder)
    ahead = Squatter(folder.config, "orders.3", a_welcome("orders.3", 1 << 40, held=10**9))
    # They are told that their journals have lost frames, and must not run on them.
    assert becomes(lambda: not any(cluster.alive(folder).values()))
    ahead.leave()
    cluster.start(folder)
    multicast(folder, 3)
    assert cluster.wait_idle(folder, 60)
    assert [status.delivered for status in cluster.statuses(folder).values() if status is not None] == [9] * 3


def a_request(route: int, request: bytes) -> bytes:
    return request_head(route, len(request)) + request


@pytest.mark.parametrize("groups", [[], ["nowhere"], ["orders", "nowhere"]])
def test_a_bad_request_is_refused_with_a_sentence(make_cluster: MakeCluster, groups: list[str]) -> None:
    folder: ClusterFolder = make_cluster({"orders": 1})
    caller = call(folder.config, hello(folder.config, role="client", name="mallory"))
    caller.recv(1 << 16)
    caller.sendall(
        encode(FrameKind.ROUTE, RouteNumber(7, groups)) + a_request(7, encode_request("mallory", 3, 0, [b"x"]))
    )
    answer = caller.recv(1 << 16)
    caller.close()
    assert answer[4] == FrameKind.REFUSED
    refused = decode(Refused, answer[HEADER.size :])
    assert (refused.route, refused.first, refused.error) == (7, 3, "usage")
    assert "group" in refused.sentence


def test_rejections_say_why(make_cluster: MakeCluster) -> None:
    folder: ClusterFolder = make_cluster({"orders": 1})
    caller = call(folder.config, hello(folder.config, role="client", cluster="another"))
    answer = caller.recv(1 << 16)
    caller.close()
    rejected = decode(Rejected, answer[HEADER.size :])
    assert rejected.reason == "wrong cluster"
    assert cluster.stop(folder)


def test_a_request_out_of_turn_is_told_where_to_go_on(make_cluster: MakeCluster) -> None:
    folder: ClusterFolder = make_cluster({"orders": 1})
    caller = call(folder.config, hello(folder.config, role="client", name="mallory"))
    caller.recv(1 << 16)
    caller.sendall(
        encode(FrameKind.ROUTE, RouteNumber(0, ["orders"])) + a_request(0, encode_request("mallory", 3, 1, [b"x"]))
    )
    answer = caller.recv(1 << 16)
    caller.close()
    refused = decode(Refused, answer[HEADER.size :])
    assert (refused.first, refused.error, refused.expected) == (3, "out of turn", 1)


# Batches that are not what they say -------------------------------------------------------------------------------


def journaled(folder: ClusterFolder) -> list[bytes]:
    """What the victim, which has ended, took."""
    config = folder.config
    identity = JournalIdentity(config.cluster, VICTIM, CODE)
    log = SegmentedLog.open(folder.process(VICTIM).journal, identity, segment_bytes=config.segment_bytes)
    try:
        return [record for _, record in log.replay(0)]
    finally:
        log.abandon()


def damaged(request: bytes, at: int, value: int) -> bytes:
    """With another u32 at an offset."""
    return request[:at] + value.to_bytes(4, "little") + request[at + 4 :]


def malformed_requests() -> dict[str, bytes]:
    good = encode_request("mallory", 0, 0, [b"EVIL" * 10, b"EVIL" * 10])
    size, count, table = 8, 12, 8 + 4 + 4 + 8 + 1 + len("mallory")  # where these stand
    return {
        "empty": b"",
        "a head only": good[:20],
        "no payloads": encode_request("mallory", 0, 0, []),
        "more payloads than lengths": damaged(good, count, 3),
        "fewer payloads than lengths": damaged(good, count, 1),
        "very many payloads": damaged(good, count, 0xFFFFFFFF),
        "too many payloads": encode_request("mallory", 0, 0, [b""] * (PAYLOADS_MAX + 1)),
        "a payload too large": encode_request("mallory", 0, 0, [bytes(PAYLOAD_BYTES_MAX + 1)]),
        "too large": encode_request("mallory", 0, 0, [bytes(PAYLOAD_BYTES_MAX)] * 4 + [b"EVIL" * 200]),
        "lengths beyond the end": damaged(good, table, 41),
        "lengths before the end": damaged(good, table, 39),
        "a size beyond the end": damaged(good, size, len(good)),
        "a size before the end": damaged(good, size, 20),
        "cut off": good[:-1],
        "something behind it": good + b"x",
        "two of them": good + good,
        "another client": encode_request("alice", 0, 0, [b"EVIL"]),
        "not a name": encode_request("no such/name", 0, 0, [b"EVIL"]),
        "a number out of range": encode_request("mallory", 1 << 63, 0, [b"EVIL"]),
        "settled before it was sent": encode_request("mallory", 0, 1, [b"EVIL"]),
        "a floor out of range": encode_request("mallory", 0, 0, [b"EVIL"], None, (1 << 60) + 1, 1),
        "a turn out of range": encode_request("mallory", 0, 0, [b"EVIL"], None, 1, (1 << 62) + 1),
    }


def test_malformed_batches_of_a_client_are_refused_before_they_are_journaled(make_cluster: MakeCluster) -> None:
    folder: ClusterFolder = make_cluster({"orders": 1})
    config = folder.config
    bad = malformed_requests()
    assert max(map(len, bad.values())) > REQUEST_BYTES_MAX
    for what, request in bad.items():
        caller = call(config, hello(config, role="client", name="mallory"))
        caller.recv(1 << 16)
        caller.sendall(encode(FrameKind.ROUTE, RouteNumber(0, ["orders"])) + a_request(0, request))
        assert is_closed(caller), what
    for nonsense in (
        a_request(0, encode_request("mallory", 0, 0, [b"EVIL"])),  # on a route that was never named
        encode(FrameKind.ROUTE, RouteNumber(1 << 16, ["orders"])),
        encode(FrameKind.ROUTE, RouteNumber(0, ["orders"])) * 2,
    ):
        caller = call(config, hello(config, role="client", name="mallory"))
        caller.recv(1 << 16)
        caller.sendall(nonsense)
        assert is_closed(caller)
    status = ask(config, VICTIM)
    assert status is not None
    assert sum(status.refused.values()) == len(bad) + 3, status.refused
    asyncio.run(_still_works(folder))
    cluster.kill(folder, VICTIM)
    assert not [record for record in journaled(folder) if b"EVIL" in record]
    assert [record for record in journaled(folder) if b"still here" in record]


def malformed_messages() -> dict[str, Message]:
    request = encode_request("mallory", 0, 0, [b"EVIL" * 10, b"EVIL" * 10])

    def message(count: int, *pieces: bytes, destinations: tuple[str, ...] = ("orders",)) -> Message:
        return Message(MessageId(ProcessId("orders.2"), 1), destinations, count, Buffers(*pieces))  # type: ignore[arg-type]

    return {
        "an empty batch": message(0, b""),
        "an empty request": message(0, encode_request("mallory", 0, 0, [])),
        "a count too small": message(1, request),
        "a count too large": message(3, request),
        "a count below zero": message(-2, request),
        "a body cut off": message(2, request[:-1]),
        "a body that is nothing": message(2, b"EVIL" * 20),
        "something behind the requests": message(2, request + b"x"),
        "a request too large": message(5, encode_request("mallory", 0, 0, [bytes(PAYLOAD_BYTES_MAX)] * 5)),
        "no such groups": message(2, request, destinations=("orders", "nowhere")),
        "no groups": message(2, request, destinations=()),
    }


def test_malformed_batches_of_a_peer_are_refused_before_they_are_journaled(make_cluster: MakeCluster) -> None:
    folder: ClusterFolder = make_cluster({"orders": 2}, protocol="skeen")
    config = folder.config
    cluster.kill(folder, "orders.2")
    process = Process(ProcessId("orders.2"), Topology(config.groups), Skeen)
    before = ask(config, VICTIM)
    assert before is not None
    bad = malformed_messages()
    for what, message in bad.items():
        caller = call(config, hello(config, incarnation=1))
        caller.recv(1 << 16)
        frame = process.encode(process.protocol, Start(message))
        caller.sendall(b"".join((data_head(Skeen.transport, 1, frame.size), *frame.pieces)))
        assert is_closed(caller), what
    status = ask(config, VICTIM)
    assert status is not None
    assert status.refused["bad frame"] - before.refused.get("bad frame", 0) == len(bad)
    cluster.start(folder)
    asyncio.run(_still_works(folder))
    cluster.kill(folder, VICTIM)
    assert not [record for record in journaled(folder) if b"EVIL" in record]
