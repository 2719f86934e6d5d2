"""Whatever members do, the errors are true: random refusals, cuts, stops and silence, then a look at the log."""

from __future__ import annotations

import asyncio
import random

import pytest

import antiphon
from antiphon.client import sender
from antiphon.core.errors import OutcomeUnknown, Unavailable
from client.fake_cluster import FakeCluster

SETS = [("a",), ("a", "b"), ("b", "c"), ("a", "b", "c")]


async def misbehave(cluster: FakeCluster, rng: random.Random) -> None:
    while True:
        await asyncio.sleep(rng.uniform(0, 0.02))
        member = rng.choice(list(cluster.members.values()))
        match rng.randrange(9):
            case 0 | 1:
                member.cut()
            case 2 | 3:
                member.refuses = rng.choice(["unavailable", ""])
            case 4:
                taken = rng.random()
                member.takes = lambda request, taken=taken: rng.random() < taken  # type: ignore[misc]
            case 5:
                member.closes_at_once = rng.random() < 0.5
            case 6:
                group = cluster.groups[member.group]
                group.is_held = True
                asyncio.get_running_loop().call_later(0.05, cluster.let_go, member.group)
            case 7:
                answered = rng.choice([0.5, 1.0])
                member.answers = lambda answered=answered: rng.random() < answered  # type: ignore[misc]
            case 8:
                await member.stop()
                await asyncio.sleep(rng.uniform(0, 0.01))
                await member.start()


def behave(cluster: FakeCluster) -> None:
    for member in cluster.members.values():
        member.refuses, member.closes_at_once = "", False
        member.takes, member.answers = lambda request: True, lambda: True
        cluster.let_go(member.group)
        member.cut()


@pytest.mark.parametrize("seed", range(8))
def test_receipts_and_errors_are_true(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "MEMBER_SILENCE_SECONDS", 0.1)
    monkeypatch.setattr(sender, "ROUTE_BYTES_MAX", 4_000)
    rng = random.Random(seed)
    fates: dict[bytes, str] = {}
    sent: dict[tuple[str, ...], list[bytes]] = {groups: [] for groups in SETS}

    async def send(client: antiphon.Client, groups: tuple[str, ...], payloads: list[bytes], timeout: float) -> None:
        sent[groups].extend(payloads)
        try:
            if len(payloads) == 1:
                await client.multicast(groups, payloads[0], timeout=timeout)
            else:
                await client.multicast_many(groups, payloads, timeout=timeout)
            fate = "receipt"
        except Unavailable:
            fate = "unavailable"
        except OutcomeUnknown:
            fate = "unknown"
        fates.update(dict.fromkeys(payloads, fate))

    async def story() -> None:
        async with FakeCluster({"a": 2, "b": 2, "c": 1}) as cluster, antiphon.connect(cluster.target) as client:
            storm = asyncio.create_task(misbehave(cluster, rng))
            calls = []
            for i in range(1200):
                payloads = [b"%d-%d" % (i, j) for j in range(rng.choice([1, 1, 1, 3]))]
                calls.append(asyncio.create_task(send(client, rng.choice(SETS), payloads, rng.choice([0.01, 0.1, 5]))))
                if rng.random() < 0.4:
                    await asyncio.sleep(0.001)
            storm.cancel()
            await asyncio.gather(storm, return_exceptions=True)
            for member in cluster.members.values():
                await member.stop()
                await member.start()
            behave(cluster)
            await asyncio.gather(*calls)
            for groups in SETS:
                await client.multicast(groups, b"last")  # and so all before it
            await asyncio.sleep(0.2)
            judge(cluster)

    def judge(cluster: FakeCluster) -> None:
        for name in cluster.groups:
            for groups in SETS:
                if name not in groups:
                    continue
                log = [
                    payload
                    for event in cluster.groups[name].log
                    if event.destinations == groups
                    for request in event.requests
                    for payload in request.payloads()
                    if payload != b"last"
                ]
                assert len(log) == len(set(log)), "delivered twice"
                assert [p for p in sent[groups] if p in set(log)] == log, "not in the order of the calls"
                for payload in sent[groups]:
                    if fates[payload] == "receipt":
                        assert payload in log
                    elif fates[payload] == "unavailable":
                        assert payload not in log
        assert set(fates.values()) == {"receipt", "unavailable", "unknown"}

    asyncio.run(asyncio.wait_for(story(), 300))
