"""Datagrams: what is sent is read, whole or in parts; what nobody of the cluster sent is discarded, and counted."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable

import pytest

from antiphon.core.buffers import Buffers
from antiphon.core.channel import Transport
from antiphon.core.effects import Send
from antiphon.core.errors import UsageError
from antiphon.core.model import ProcessId
from antiphon.runtime.cluster.ports import free_ports
from antiphon.runtime.net.datagrams import BURST_BYTES, LOCAL_BYTES, DatagramPort, Setting, offers_multicast
from antiphon.runtime.net.packets import (
    FRAME_BYTES_MAX,
    PARTS_BYTES_MAX,
    PARTS_SECONDS,
    Assembly,
    Discarded,
    Identity,
    cut,
    digest,
    frames_in,
    pack,
    read,
)

CLUSTER = bytes(range(8))
A, B = Identity(CLUSTER, 10, 0, 3), Identity(CLUSTER, 10, 9, 5)
GROUP = "239.192.77.5"


def view(data: bytearray | bytes) -> memoryview:
    return memoryview(bytes(data))


def reason(action: Callable[[], object]) -> str:
    with pytest.raises(Discarded) as raised:
        action()
    return str(raised.value)


# What a datagram holds ------------------------------------------------------------------------------------------------


def test_frames_are_read_as_they_were_packed() -> None:
    frames = [Buffers(b"one"), Buffers(b"t", b"w", b"o"), Buffers(b"x" * 5000)]
    packet = read(B, view(pack(A, 1 << 9 | 1 << 3, frames)))
    assert (packet.sender, packet.incarnation, packet.is_part, packet.is_mine) == (0, 3, False, True)
    assert frames_in(packet.body) == [bytes(frame) for frame in frames]
    assert not read(B, view(pack(A, 1 << 8, frames))).is_mine


def test_what_was_changed_or_cut_off_is_discarded() -> None:
    whole = bytes(pack(A, 1 << 9, [Buffers(b"hello")]))
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        assert reason(lambda data=changed: read(B, view(data))) in ("malformed", "damaged")
        assert reason(lambda end=at: read(B, view(whole[:end]))) in ("malformed", "damaged")
    assert reason(lambda: read(B, view(whole + b"!"))) == "damaged"


def test_who_is_not_of_this_cluster_is_discarded() -> None:
    frames = [Buffers(b"hello")]
    assert reason(lambda: read(B, view(pack(A._replace(cluster=b"otherone"), 1 << 9, frames)))) == "wrong cluster"
    assert reason(lambda: read(B, view(pack(A._replace(place=10), 1 << 9, frames)))) == "stranger"


def test_lengths_that_do_not_fit_are_discarded() -> None:
    for body in (b"\0\0", b"\1", b"\5\0abc", b"\1\0a\1", b"\1\0a\0\0", b"\xff\xff" + bytes(100)):
        assert reason(lambda bad=body: frames_in(view(bad))) == "malformed"
    assembly, name = Assembly(), digest(b"ab")
    for body in (b"", name, name + bytes(8), name + (2).to_bytes(4, "little") + b"\1\0\0\0ab"):
        assert reason(lambda bad=body: assembly.add(0, view(bad), 0.0)) == "malformed"
    huge = name + (FRAME_BYTES_MAX + 1).to_bytes(4, "little") + bytes(4) + b"a"
    assert reason(lambda: assembly.add(0, view(huge), 0.0)) == "malformed"
    assert assembly.kept_bytes == 0


def parts_of(frame: bytes, me: Identity = A, size_max: int = 1400) -> list[memoryview]:
    packets = [read(B, view(part)) for part in cut(me, 1 << 9, Buffers(frame), size_max)]
    assert all(packet.is_part for packet in packets)
    return [packet.body for packet in packets]


@pytest.mark.parametrize("seed", range(20))
def test_a_large_frame_is_put_together_from_parts_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    frame = rng.randbytes(rng.randrange(1_400, 100_000))
    parts = parts_of(frame)
    parts += rng.choices(parts, k=3)
    rng.shuffle(parts)
    assembly = Assembly()
    found = [whole for part in parts if (whole := assembly.add(0, part, 0.0)) is not None]
    assert found == [frame]


def test_when_a_frame_is_sent_again_only_what_was_lost_need_arrive() -> None:
    frame = random.Random(1).randbytes(10_000)
    assembly, parts = Assembly(), parts_of(frame)
    assert [assembly.add(0, part, 0.0) for part in parts[1:]] == [None] * (len(parts) - 1)
    assert assembly.add(1, parts[0], 0.0) is None, "each sender's parts are kept apart"
    assert assembly.add(0, parts[0], 5.0) == frame


def test_parts_that_lie_are_discarded_and_the_true_ones_are_taken_afterwards() -> None:
    frame = bytes(5_000)
    true = parts_of(frame)
    lie = view(bytes(true[1][:-1]) + b"!")
    assembly = Assembly()
    for part in (lie, *true[:1], *true[2:-1]):
        assert assembly.add(0, part, 0.0) is None
    assert reason(lambda: assembly.add(0, true[-1], 0.0)) == "malformed"
    assert [whole for part in true if (whole := assembly.add(0, part, 0.0)) is not None] == [frame]


def test_unfinished_frames_have_bounded_memory_and_time() -> None:
    assembly = Assembly()
    for number in range(1_000):
        frame = number.to_bytes(4, "little") * 20_000
        assembly.add(number % 2, parts_of(frame, size_max=60_000)[0], 0.0)
        assert assembly.kept_bytes <= 2 * PARTS_BYTES_MAX
    assert assembly.given_up > 100
    assembly.sweep(PARTS_SECONDS)
    assert assembly.kept_bytes > 0
    assembly.sweep(PARTS_SECONDS + 0.1)
    assert assembly.kept_bytes == 0


# Sockets --------------------------------------------------------------------------------------------------------------


class Ports:
    """Some processes' ports on this machine, and what came to each."""

    def __init__(self, count: int, *, multicast: bool, drop: int = 0) -> None:
        self.numbers = free_ports(count, None)
        addresses = {place: ("127.0.0.1", number) for place, number in enumerate(self.numbers)}
        group = (GROUP, self.numbers[0]) if multicast else None
        self.came: list[list[bytes]] = [[] for _ in addresses]
        self.all = []
        for place, address in addresses.items():
            peers = {other: to for other, to in addresses.items() if other != place}
            setting = Setting(Identity(CLUSTER, count, place, 1), address, peers, frozenset(), group, drop)
            came = self.came[place]
            self.all.append(DatagramPort(setting, lambda sender, age, frames, came=came: came.extend(frames)))

    async def __aenter__(self) -> Ports:
        for port in self.all:
            port.open()
            await port.look_up()
            port.set_reading(True)
        return self

    async def __aexit__(self, *_: object) -> None:
        for port in self.all:
            port.close()

    def send(self, sender: int, to: list[int], *frames: bytes) -> None:
        for frame in frames:
            names = tuple(ProcessId(str(place)) for place in to)
            send = Send(1, names, (), (), Transport.DATAGRAM, Buffers(frame), "test", ())
            for place in to:
                self.all[sender].send(place, send)
        self.all[sender].flush()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not is_so():
                await asyncio.sleep(0.005)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await work()

    asyncio.run(main())


needs_multicast = pytest.mark.skipif(
    not offers_multicast((GROUP, 23_777), "127.0.0.1"), reason="this system offers no multicast on its loopback"
)


@pytest.mark.parametrize("multicast", [False, pytest.param(True, marks=needs_multicast)])
def test_small_frames_share_a_datagram_and_large_ones_take_several(multicast: bool) -> None:
    async def work() -> None:
        async with Ports(4, multicast=multicast) as ports:
            small, large = [b"%d" % number for number in range(100)], bytes(5 * BURST_BYTES)
            ports.send(0, [1, 2], *small)
            await ports.until(lambda: all(ports.came[place] == small for place in (1, 2)))
            assert ports.all[0].counted()["sent"] == (1 if multicast else 2)
            ports.send(0, [1, 2, 3], large)
            await ports.until(lambda: all(large in ports.came[place] for place in (1, 2, 3)))
            assert ports.came[3] == [large], "who is not named leaves it alone"
            counted = ports.all[0].counted()
            parts = -(-len(large) // (LOCAL_BYTES - 100))
            assert counted["sent"] == (1 + parts if multicast else 2 + 3 * parts)
            assert counted.get("multicast", 0) == (1 + parts if multicast else 0)
            ports.send(1, [0], b"to one")
            await ports.until(lambda: ports.came[0] == [b"to one"])
            assert "multicast" not in ports.all[1].counted()

    run(work)


def test_whatever_comes_the_port_goes_on_and_counts_it() -> None:
    async def work() -> None:
        async with Ports(2, multicast=False) as ports:
            target = ("127.0.0.1", ports.numbers[1])
            honest = pack(Identity(CLUSTER, 2, 0, 1), 2, [Buffers(b"forged")])
            own = pack(Identity(CLUSTER, 2, 1, 1), 2, [Buffers(b"forged")])
            other = pack(Identity(b"x" * 8, 2, 0, 1), 2, [Buffers(b"x")])
            rng = random.Random(1)
            noise = [rng.randbytes(rng.randrange(200)) for _ in range(50)]
            with socket.socket(type=socket.SOCK_DGRAM) as stranger:
                for data in (*noise, bytes(65_507), honest, own, other, honest[:-1]):
                    stranger.sendto(data, target)
            ports.send(0, [1], b"true")
            await ports.until(lambda: ports.came[1] == [b"true"])
            counted = ports.all[1].counted()
            assert counted == {"malformed": 51, "stranger": 2, "wrong cluster": 1, "damaged": 1, "received": 1}

    run(work)


def test_some_are_dropped_on_purpose() -> None:
    async def work() -> None:
        async with Ports(2, multicast=False, drop=50) as ports:
            for _ in range(400):
                ports.send(0, [1], b"x")
            counts = ports.all[1].counts
            await ports.until(lambda: counts["received"] + counts["dropped on purpose"] == 400)
            assert 120 < counts["received"] < 280

    run(work)


def test_what_is_not_read_in_time_is_lost_and_counted() -> None:
    async def work() -> None:
        async with Ports(2, multicast=False) as ports:
            ports.all[1].set_reading(False)
            for _ in range(600):
                ports.send(0, [1], bytes(50_000))
            await ports.until(lambda: ports.all[0].counts["sent"] == 600)
            assert ports.all[1].counted().get("not read in time", 0) > 0
            ports.all[1].set_reading(True)
            await ports.until(lambda: bool(ports.came[1]))

    run(work)


def test_an_address_that_is_taken_is_a_sentence() -> None:
    async def work() -> None:
        async with Ports(1, multicast=False) as ports:
            setting = Setting(Identity(CLUSTER, 1, 0, 1), ("127.0.0.1", ports.numbers[0]), {})
            with pytest.raises(UsageError, match="No datagrams can be received on 127"):
                DatagramPort(setting, lambda *_: None).open()

    run(work)
