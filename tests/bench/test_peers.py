"""Antiphon beside others: the same work for all, what is read is checked, and what is not installed is skipped."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from antiphon.bench import ends, worker
from antiphon.bench.cluster import Percentiles
from antiphon.bench.peers import PEERS, Antiphon, Figures, Peer, Served, Work, etcd, http2, nats, redis
from antiphon.bench.peers.compare import compare, works
from antiphon.bench.peers.contract import AppendBatch, Reads
from antiphon.bench.task import HEAD, WorkerTask, new_mark
from antiphon.core.errors import Unavailable
from antiphon.protocols import DEFAULT_PROTOCOL

Found = TypeVar("Found")

TINY = Work(name="rate", batch=5, size=20, outstanding=2, seconds=0.2)
INSTALLED = [pytest.param(name, marks=pytest.mark.skipif(PEERS[name].missing() is not None, reason="not installed"))
             for name in PEERS if name not in ("bare-log", "redis")]  # fmt: skip


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "WARM_UP_SECONDS", 0.2)


def check(figures: Figures) -> None:
    assert figures.messages_per_second > 0
    assert 0 < figures.receipt_ms.p50 <= figures.receipt_ms.p99
    assert 0 < figures.latency_ms.p50 <= figures.latency_ms.p99


def patiently(measure: Callable[[Work], Found], work: Work) -> Found:
    """Where the processor is with others, nothing is delivered in a moment: then it is given a longer one."""
    for seconds in (work.seconds, 10 * work.seconds):
        with suppress(Unavailable):
            return measure(msgspec.structs.replace(work, seconds=seconds))
    return measure(msgspec.structs.replace(work, seconds=100 * work.seconds))


# The contract --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", [Antiphon(DEFAULT_PROTOCOL), PEERS["bare-log"]], ids=lambda peer: peer.name)
def test_what_is_always_there_does_the_work(peer: Peer, tmp_path: Path) -> None:
    def measure(work: Work) -> Figures:
        found = compare([peer], [work], place=tmp_path)
        if found.left:
            raise Unavailable(found.left[0].reason)
        return found.of("rate")[0].figures

    check(patiently(measure, TINY))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", INSTALLED)
def test_what_is_installed_does_the_work(name: str, tmp_path: Path) -> None:
    check(patiently(partial(PEERS[name].measure, tmp_path), TINY))


def test_a_message_reaches_all_groups(tmp_path: Path) -> None:
    work = Work(name="wide", groups=2, batch=1, size=16, outstanding=1, seconds=0.2)
    check(patiently(partial(Antiphon("skeen").measure, tmp_path), work))


# What is read is checked ---------------------------------------------------------------------------------------------


def task(role: Any, **more: Any) -> WorkerTask:
    words = {"target": "", "groups": ["g1"], "batch": 1, "size": 20, "outstanding": 3, "seconds": 0.05}
    return WorkerTask(role=role, mark=new_mark(), **{**words, **more})


class Forger(Served):
    """Lets read whatever numbers it is told."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = numbers

    def missing(self) -> str | None:
        return None

    @contextmanager
    def running(self, folder: Path, work: Work) -> Iterator[str]:
        yield ""

    @asynccontextmanager
    async def write(self, task: WorkerTask) -> AsyncIterator[AppendBatch]:
        raise NotImplementedError
        yield

    @asynccontextmanager
    async def read(self, task: WorkerTask) -> AsyncIterator[Reads]:
        async def reads() -> Reads:
            for number in self._numbers:
                yield 1, task.heads(HEAD.pack(task.mark, number, 1) + bytes(4))
            await asyncio.sleep(10)

        yield reads()


@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [
        ([1, 2, 3, 4], None),
        ([2, 1, 4, 3, 5], None),  # side by side
        ([1, 2, 2], "request 2 was read twice"),
        ([1, 3, 3], "request 3 was read twice"),
        ([1, 3, 4, 5], "request 5 was read, and request 2 was not"),
        ([4], "request 4 was read, and request 1 was not"),
    ],
    ids=str,
)
def test_what_is_missing_or_doubled_is_found(
    numbers: list[int], complaint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begun(task: WorkerTask) -> None:
        task.begin = asyncio.get_running_loop().time()

    monkeypatch.setattr(worker, "with_ends", lambda name: Forger(numbers))
    monkeypatch.setattr(worker, "_begun", begun)
    monkeypatch.setattr(worker, "AFTER_SECONDS", 0.0)
    if complaint is None:
        assert asyncio.run(worker.run_reader(task("reader"))).payloads == len(numbers)
    else:
        with pytest.raises(RuntimeError, match=complaint):
            asyncio.run(worker.run_reader(task("reader")))


def test_what_a_worker_found_wrong_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    says = json.dumps(json.dumps({"failure": "The reader failed: it is late."}))
    monkeypatch.setattr(ends, "_RUN", f"print('ready', flush=True); input(); print({says})")
    with pytest.raises(Unavailable, match=r"The reader failed: it is late\."):
        ends.load(task("client"), [task("reader")], lambda begin: None)


def test_heads_are_found_among_other_bytes() -> None:
    own = task("reader")
    first, second = HEAD.pack(own.mark, 7, 70), HEAD.pack(own.mark, 8, 80)
    foreign = HEAD.pack(own.mark[:1] + bytes(each ^ 1 for each in own.mark[1:]), 9, 90)
    assert own.heads(b"x" + first + bytes(100) + foreign + second) == [(7, 70), (8, 80)]
    assert own.heads(bytes(100)) == []


# All in one run ------------------------------------------------------------------------------------------------------


class Scripted(Peer):
    """Answers with what it is told, and fails where that is an error."""

    keeps = "nothing"

    def __init__(self, name: str, *answers: float | Exception, groups: int = 1) -> None:
        self.name, self.title = name, name.title()
        self._answers = list(answers)
        self.groups_max = groups  # type: ignore[misc]

    def missing(self) -> str | None:
        return None if self._answers else "it is not here (get it there)"

    def measure(self, folder: Path, work: Work) -> Figures:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Figures(
            messages_per_second=answer, receipt_ms=Percentiles(answer, answer), latency_ms=Percentiles(answer, answer)
        )


def all_works() -> list[Work]:
    return works(batch=100, size=100, outstanding=40, seconds=1.0)


def test_rounds_go_in_turn_and_the_median_is_taken() -> None:
    told: list[str] = []
    rate = all_works()[:1]
    found = compare([Scripted("a", 1.0, 9.0, 2.0), Scripted("b", 4.0, 5.0, 6.0)], rate, rounds=3, told=told.append)
    assert told == ["A: rate", "B: rate"] * 3
    assert [row.figures.messages_per_second for row in found.of("rate")] == [2.0, 5.0]
    assert [each.messages_per_second for each in found.of("rate")[0].rounds] == [1.0, 9.0, 2.0]


@pytest.mark.parametrize("kind", [Unavailable, RuntimeError, OSError])
def test_who_fails_or_is_missing_is_named_and_the_others_go_on(kind: type[Exception]) -> None:
    failure = kind("The disk is on fire.")
    peers = [Scripted("a", 1.0, 2.0), Scripted("b", failure, 3.0), Scripted("c")]
    found = compare(peers, all_works()[:2])
    assert [(row.peer, row.work) for row in found.rows] == [("a", "rate"), ("a", "idle"), ("b", "idle")]
    assert [(each.peer, each.work, each.reason) for each in found.left] == [
        ("c", None, "it is not here (get it there)"),
        ("b", "rate", "The disk is on fire."),
    ]


def test_several_groups_are_for_those_who_have_them() -> None:
    found = compare([Scripted("a", 1.0, 2.0, 3.0, groups=3), Scripted("b", 4.0, 5.0)], all_works())
    assert [row.peer for row in found.of("wide")] == ["a"]


# What they speak -----------------------------------------------------------------------------------------------------


def test_an_answer_of_redis_is_taken_when_it_is_whole() -> None:
    entry = b"*2\r\n$4\r\n17-%d\r\n*2\r\n$1\r\nm\r\n$20\r\n%s\r\n"
    answer = b"*1\r\n*2\r\n$3\r\nlog\r\n*2\r\n" + entry % (1, bytes(20)) + entry % (2, bytes(20))
    lengths = [at for at in range(len(answer) + 1) if redis._complete(bytearray(answer[:at]), b"$20\r\n", 20)]
    assert lengths == [len(answer)]
    assert redis._complete(bytearray(answer), b"$20\r\n", 20) == 2
    assert redis._last_id(bytearray(answer)) == b"17-2"
    with pytest.raises(RuntimeError, match="no such key"):
        redis._complete(bytearray(b"-ERR no such key\r\n"), b"$20\r\n", 20)


def test_a_transaction_of_etcd_is_read_as_it_was_written() -> None:
    before_key, before_value = etcd.put_before(300)
    key, value = b"000000000007", bytes(range(250)) + bytes(50)
    written = (before_key + key + before_value + value) * 2
    assert [number for number, _, _ in etcd.fields(written)] == [2, 2]
    _, begin, end = next(etcd.fields(written))
    (_, put_begin, put_end), *others = etcd.fields(written[begin:end])
    assert others == []
    put = written[begin:end][put_begin:put_end]
    assert [(number, put[at:to]) for number, at, to in etcd.fields(put)] == [(1, key), (2, value)]


def test_messages_are_put_together_from_frames() -> None:
    stream = http2.Http2Stream(100)
    sent = b"".join(struct.pack(">BI", 0, len(text)) + text for text in (b"one", b"", b"three"))
    for byte in sent:
        stream.received(bytes([byte]))
    assert [stream.messages.get_nowait() for _ in range(3)] == [b"one", b"", b"three"]
    assert stream.messages.empty()


def test_an_acknowledgement_of_nats_is_found() -> None:
    found = nats._ACKNOWLEDGED.search(b'PING\r\nMSG _INBOX.writer.200 1  27\r\n{"stream":"log", "seq":200}\r\n')
    assert found is not None
    assert (int(found[1]), json.loads(found[2])["seq"]) == (200, 200)
