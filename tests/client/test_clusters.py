"""The client's promises, with real processes: once, in order, through lost connections and dead members."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import antiphon
from antiphon.client import progress, sender
from antiphon.core.errors import OutcomeUnknown, Unavailable, UsageError
from antiphon.runtime import cluster
from antiphon.runtime.cluster import ClusterFolder
from waiting import IN_TIME_SECONDS

MakeCluster = Callable[..., ClusterFolder]


async def read(client: antiphon.Client, group: str, count: int) -> list[antiphon.Delivery]:
    found: list[antiphon.Delivery] = []
    async with asyncio.timeout(IN_TIME_SECONDS):
        async for delivery in client.subscribe(group):
            found.append(delivery)
            if len(found) == count:
                break
    return found


PASSED_BYTES = 2500  # at most, in each direction of a connection through a proxy


class Proxy:
    """Stands between a client and a member, and cuts connections at random."""

    def __init__(self, address: tuple[str, int], rng: random.Random) -> None:
        self.cuts = 0
        self._target = address
        self._random = rng
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._on_caller, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _on_caller(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        ends = [writer]
        try:
            other_reader, other_writer = await asyncio.open_connection(*self._target)
            ends.append(other_writer)
            budget = self._random.randint(PASSED_BYTES // 5, PASSED_BYTES)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, other_writer, budget))
                pumps.create_task(self._pump(other_reader, writer, budget))
        except (ExceptionGroup, OSError):
            self.cuts += 1
        finally:
            self._tasks.discard(task)
            for end in ends:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: int) -> None:
        while budget > 0 and (data := await reader.read(min(budget, 500))):
            budget -= len(data)
            writer.write(data)
            await writer.drain()
        raise ConnectionError("cut")


def test_a_message_survives_any_number_of_lost_connections_once(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 2, "b": 2})
    count = 600

    async def run() -> None:
        rng = random.Random(3)
        proxies = {p: Proxy(folder.config.address(p), rng) for p in folder.config.processes}
        # A request is sent whole, whenever it is sent: one of more bytes than a connection passes would never arrive.
        connecting = antiphon.connect(folder.path, batch_bytes=PASSED_BYTES // 4)
        async with connecting as client, antiphon.connect(folder.path) as reader:
            client._cluster.addresses = {process: await proxy.start() for process, proxy in proxies.items()}
            sent = []
            for i in range(count):
                sent.append(asyncio.create_task(client.multicast({"a", "b"}, str(i).encode())))
                if i % 3 == 0:
                    await asyncio.sleep(0.002)
            receipts = await asyncio.gather(*sent)
            for group in ("a", "b"):
                deliveries = await read(reader, group, count)
                assert [d.name for d in deliveries] == [r.name for r in receipts]
                assert [d.payload for d in deliveries] == [str(i).encode() for i in range(count)]
        for proxy in proxies.values():
            await proxy.stop()
        assert sum(proxy.cuts for proxy in proxies.values()) > 5

    asyncio.run(run())
    assert cluster.wait_idle(folder, 60)
    ends = [status.delivered for status in cluster.statuses(folder).values() if status is not None]
    assert ends == [count] * 4, "no copy was delivered twice"


def test_the_death_of_the_member_that_takes_the_requests_is_survived(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 3, "b": 3})

    async def run() -> None:
        async with antiphon.connect(folder.path) as client:
            receipts: list[antiphon.Receipt] = []
            for _ in range(3):
                batch = [asyncio.create_task(client.multicast({"a", "b"}, b"x" * 100)) for _ in range(400)]
                while not any(task.done() for task in batch):
                    await asyncio.sleep(0)
                (route,) = client._sender._routes.values()
                assert route.lane is not None
                victim = route.lane.connection.member
                await asyncio.to_thread(cluster.kill, folder, victim)
                receipts += await asyncio.gather(*batch)
                await asyncio.to_thread(cluster.start, folder)
            names = Counter(receipt.name for receipt in receipts)
            assert len(names) == 1200
            assert len({receipt.member for receipt in receipts}) > 1
            first, second = [[d.name for d in await read(client, group, 1200)] for group in ("a", "b")]
            assert first == second, "both groups got all of them in one order"
            assert Counter(first) == names
            assert first == [f"{client.name}:{i}" for i in range(1200)], "in the order in which they were sent"

    asyncio.run(run())


def test_a_subscription_goes_on_at_another_member(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 3})

    async def run() -> None:
        async with antiphon.connect(folder.path) as client, client.subscribe("a") as deliveries:
            positions: list[int] = []
            for _round in range(3):
                await asyncio.gather(*(client.multicast({"a"}, b"x") for _ in range(50)))
                for _ in range(50):
                    positions.append((await asyncio.wait_for(anext(deliveries), IN_TIME_SECONDS)).position)
                assert deliveries._connection is not None
                await asyncio.to_thread(cluster.kill, folder, deliveries._connection.directory.process)
                await asyncio.to_thread(cluster.start, folder)
            await client.multicast({"a"}, b"last")
            last = await asyncio.wait_for(anext(deliveries), IN_TIME_SECONDS)
            assert last.payload == b"last"
            assert [*positions, last.position] == list(range(151))

    asyncio.run(run())


def test_a_subscription_is_not_disturbed_by_the_same_clients_requests(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 1})

    async def run() -> None:
        async with antiphon.connect(folder.path) as client, client.subscribe("a") as deliveries:
            await client.multicast({"a"}, b"x")
            await asyncio.wait_for(anext(deliveries), IN_TIME_SECONDS)
            connection = deliveries._connection
            for _ in range(20):
                await client.multicast({"a"}, b"x")
                await asyncio.wait_for(anext(deliveries), IN_TIME_SECONDS)
            assert deliveries._connection is connection

    asyncio.run(run())


def test_history_is_read_from_disk_and_then_live(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 2})
    payload = b"y" * 2000

    async def run() -> None:
        async with antiphon.connect(folder.path) as client:
            await asyncio.gather(*(client.multicast({"a"}, payload) for _ in range(1500)))
            await asyncio.to_thread(cluster.wait_idle, folder, 60)
            await asyncio.sleep(0.5)  # the log is on disk now
            async with client.subscribe("a", start=1000, follow=False) as deliveries:
                assert [d.position async for d in deliveries] == list(range(1000, 1500))
            reading = asyncio.create_task(read(client, "a", 1600))
            await asyncio.gather(*(client.multicast({"a"}, payload) for _ in range(100)))
            assert [d.position for d in await reading] == list(range(1600))
            with pytest.raises(antiphon.UsageError, match="1600 is the next that it delivers"):
                await anext(client.subscribe("a", start=5000, follow=False))

    asyncio.run(run())


def test_a_route_never_stays_full(make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for some 50 requests, 1000 get through only if progress is asked for and told."""
    monkeypatch.setattr(sender, "ROUTE_BYTES_MAX", 5_000)
    monkeypatch.setattr(sender, "HURRY_BYTES", 2_000)
    monkeypatch.setattr(progress, "SETTLE_SECONDS", 0.03)
    folder = make_cluster({"a": 2, "b": 1, "c": 1})

    async def run() -> None:
        async with antiphon.connect(folder.path, batch_bytes=50) as client:
            sets = [{"a"}, {"b"}, {"a", "b"}, {"a", "b", "c"}]
            await asyncio.gather(*(client.multicast(sets[i % 4], b"x" * 40) for i in range(1000)))
            async with asyncio.timeout(IN_TIME_SECONDS):
                while [route.ledger.settled for route in client._sender._routes.values()] != [250] * 4:
                    await asyncio.sleep(0.02)

    asyncio.run(run())


@contextmanager
def paused(folder: ClusterFolder, *processes: str) -> Iterator[None]:
    for process in processes:
        cluster.kill(folder, process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            cluster.kill(folder, process, signal.SIGCONT)


def test_errors_say_what_happened(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 1, "b": 1})

    async def run() -> None:
        async with antiphon.connect(folder.path) as client:
            for destinations in ([], ["nowhere"], ["a", "nowhere"]):
                with pytest.raises(UsageError):
                    await client.multicast(destinations, b"x")
            with pytest.raises(UsageError):
                client.subscribe("nowhere")
            await client.multicast({"a"}, b"one")
            with paused(folder, "a.1"), pytest.raises(OutcomeUnknown):
                await client.multicast({"a"}, b"two", timeout=0.3)
            assert [d.payload for d in await read(client, "a", 2)] == [b"one", b"two"]
            await asyncio.to_thread(cluster.kill, folder, "b.1")
            with pytest.raises(Unavailable):
                await client.multicast({"b"}, b"three", timeout=0.3)
            await asyncio.to_thread(cluster.start, folder)
            await client.multicast({"b"}, b"four")
            assert [d.payload for d in await read(client, "b", 1)] == [b"four"], "three surely did not happen"

    asyncio.run(run())


def test_a_silent_member_is_given_up_for_another(make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "MEMBER_SILENCE_SECONDS", 0.5)
    folder = make_cluster({"a": 3})

    async def run() -> None:
        async with antiphon.connect(folder.path) as client:
            first = await client.multicast({"a"}, b"x")
            with paused(folder, first.member):
                second = await client.multicast({"a"}, b"y", timeout=IN_TIME_SECONDS)
                assert second.member != first.member
            assert [d.payload for d in await read(client, "a", 2)] == [b"x", b"y"]

    asyncio.run(run())


def test_a_batch_is_contiguous_in_every_group(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 2, "b": 2})

    async def run() -> None:
        async with antiphon.connect(folder.path) as one, antiphon.connect(folder.path) as two:
            calls = []
            for i in range(30):
                for client in (one, two):
                    payloads = [f"{client.name} {i} {j}".encode() for j in range(20)]
                    calls.append(client.multicast_many(["a", "b"], payloads))
                    calls.append(client.multicast("a", b"between"))
            await asyncio.gather(*calls)
            for group, count in (("a", 1260), ("b", 1200)):
                found = [d.payload for d in await read(one, group, count) if d.payload != b"between"]
                for at in range(0, len(found), 20):
                    start = found[at].rpartition(b" ")[0]
                    assert found[at : at + 20] == [start + b" %d" % j for j in range(20)]
                for client in (one, two):
                    mine = [payload for payload in found if payload.startswith(client.name.encode())]
                    assert mine == [f"{client.name} {i} {j}".encode() for i in range(30) for j in range(20)]
            await asyncio.to_thread(cluster.wait_idle, folder, 60)
            position = 0
            async for batch in one.subscribe("a", follow=False).batches():
                assert batch.position == position
                assert len(batch.payloads) == len(batch) == len(list(batch))
                position += len(batch)
            assert position == 1260

    asyncio.run(run())


def test_a_client_that_dies_in_mid_send_stalls_nobody(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 2, "b": 2})

    async def run() -> None:
        for _ in range(5):
            async with antiphon.connect(folder.path, name="doomed") as client:
                tasks = [asyncio.create_task(client.multicast({"a", "b"}, b"x" * 5000)) for _ in range(200)]
                await asyncio.sleep(0.02)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        async with antiphon.connect(folder.path) as client:
            last = await client.multicast({"a", "b"}, b"last")
            for group in ("a", "b"):
                async with asyncio.timeout(IN_TIME_SECONDS), client.subscribe(group) as deliveries:
                    async for delivery in deliveries:
                        if delivery.name == last.name:
                            break

    asyncio.run(run())
    assert cluster.stop(folder)


def test_a_cluster_is_found_by_address(make_cluster: MakeCluster) -> None:
    folder = make_cluster({"a": 2})

    async def run() -> None:
        dead = "127.0.0.1:9"
        async with antiphon.connect(f"{dead},{folder.config.addresses['a.2']}", name="finder") as client:
            assert client.groups == folder.config.groups
            receipt = await client.multicast("a", b"x")
            assert receipt.name.startswith("finder-")
        with pytest.raises(Unavailable):
            async with antiphon.connect(dead):
                pass

    asyncio.run(run())


def test_a_folder_that_is_no_cluster_is_refused(tmp_path: Path) -> None:
    async def run(target: Path) -> None:
        async with antiphon.connect(target):
            pass

    for content in (None, b"", b"{", b"[]", b'{"version": 1}'):
        if content is not None:
            (tmp_path / "cluster.json").write_bytes(content)
        with pytest.raises(UsageError):
            asyncio.run(run(tmp_path))
    with pytest.raises(UsageError):
        antiphon.connect(tmp_path, name="no spaces please")
