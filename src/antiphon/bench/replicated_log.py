"""The ceiling: how many messages a second a bare replicated log in plain Python brings to a reader on this machine.

    python -m antiphon.bench.replicated_log [--batch 500] [--size 100] [--outstanding 40] [--seconds 5] [--dir .]

Five processes on loopback: a client, a primary, two followers and a reader. The primary writes and syncs what came in
one turn of its event loop, forwards it to the followers, and commits what one of them has synced too; then the client
has its answer, and the reader the batches, in order. Nothing is ever recovered, and payloads are never looked at: this
is a yardstick, not a log to use. The folder must be on a real disk, or the syncs cost nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import functools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, TypedDict, cast

import uvloop

HEAD = struct.Struct("<QI")  # the number of a batch, and the length of the body after it
STAMP = struct.Struct("<q")  # the first bytes of a body: when the client sent it
ROLES = ("client", "primary", "follower", "follower", "reader")
CHUNK = 1 << 20  # received at once, at most
SEGMENT = 64 << 20
SEGMENTS = 2
BUFFERED = 8 << 20  # for a slow reader or follower, before the client has to wait
WARM_UP = 0.5
MARGIN = 0.3  # the client goes on for so long after its interval, since those of the others end a little later
_RUN = "from antiphon.bench.replicated_log import main; main()"
LIMIT = 30.0  # for all but the interval: starting, filling the journals, draining

BareReport = tuple[float, float, dict[str, float], int]  # CPU and batches per second, delays in ms, the last batch
TurnFrames = list[tuple[int, memoryview]]  # whole frames that came in one turn, each with the number of its last batch


class Measurement(TypedDict):
    messages_per_second: float
    latency_ms: dict[str, float]  # from the client's send to the delivery at the reader
    receipt_ms: dict[str, float]  # from the client's send to its answer
    cpu_us_per_message: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Job:
    """All that a child needs to know."""

    role: str
    batch: int
    size: int
    outstanding: int
    seconds: float
    folder: str
    port: int  # of the primary
    listening: Sequence[int]  # the primary's own sockets: for client, followers and reader


class Meter:
    """Reads the clocks and counters of this process where the measured interval begins and where it ends."""

    def __init__(self, seconds: float) -> None:
        self.last = 0
        self.delays: list[int] = []
        self._seconds = seconds
        self._marks: list[tuple[float, float, int, int]] = []

    def run(self) -> None:
        """Called with everything that arrives, and begins with the first."""
        if not self._marks:
            self._mark()
            asyncio.get_running_loop().call_later(WARM_UP, self._mark)
            asyncio.get_running_loop().call_later(WARM_UP + self._seconds, self._mark)

    def _mark(self) -> None:
        self._marks.append((time.monotonic(), time.process_time(), self.last, len(self.delays)))

    def report(self) -> BareReport:
        if len(self._marks) != 3:
            raise RuntimeError("the batches ended before the measured interval did")
        _, (begun, cpu_before, first, start), (ended, cpu, last, stop) = self._marks
        seconds, delays = ended - begun, sorted(self.delays[start:stop]) or [0]
        p50, p99 = (delays[int(len(delays) * share)] / 1e6 for share in (0.5, 0.99))
        return (cpu - cpu_before) / seconds, (last - first) / seconds, {"p50": p50, "p99": p99}, self.last


class BareLink(asyncio.BufferedProtocol):
    """One end of a connection. What arrives is handed on as views of whole frames, as many at once as are there."""

    def __init__(self, job: Job, received: Callable[[memoryview, int], None]) -> None:
        self.transport: asyncio.Transport
        self.opened = asyncio.get_running_loop().create_future()
        self.closed = asyncio.get_running_loop().create_future()
        self.full: Callable[[bool], None] = lambda full: None
        self._received = received
        self._used: deque[bytearray] = deque()
        self._chunk = bytearray(max(CHUNK, 4 * (HEAD.size + job.batch * job.size)))
        self._view = memoryview(self._chunk)
        self._begin = 0  # of the first frame not handed on
        self._end = 0  # of what has arrived

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=BUFFERED)
        self.opened.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)

    def pause_writing(self) -> None:
        self.full(True)

    def resume_writing(self) -> None:
        self.full(False)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        begin, at, last = self._begin, self._begin, 0
        while self._end - at >= HEAD.size:
            number, length = HEAD.unpack_from(self._chunk, at)
            if at + HEAD.size + length > self._end:
                break
            at += HEAD.size + length
            last = number
        if at > begin:
            self._begin = at
            self._received(self._view[begin:at], last)
        if len(self._chunk) - self._end < len(self._chunk) // 4:  # no frame is longer than this
            self._renew()

    def _renew(self) -> None:
        """Go on in a chunk that nobody has views of any more, or a new one, whose pages the kernel has yet to find."""
        rest = self._view[self._begin : self._end]
        self._used.append(self._chunk)
        unused = sys.getrefcount(self._used[0]) == 2  # the deque's reference, and the call's own
        self._chunk = self._used.popleft() if unused else bytearray(len(self._chunk))
        self._view = memoryview(self._chunk)
        self._begin, self._end = 0, len(rest)
        self._view[: self._end] = rest


class BareJournal:
    """Takes what arrives in one turn of the event loop with one write and one sync, and then says so.

    Its segments are written in turn, and then over again. They have no names, and end with the process.
    """

    def __init__(self, job: Job, meter: Meter, synced: Callable[[TurnFrames], None]) -> None:
        self._meter, self._synced = meter, synced
        self._turn: TurnFrames = []
        self._files = deque(self._segment(job.folder) for _ in range(SEGMENTS))
        self._at = 0

    @staticmethod
    def _segment(folder: str) -> int:
        file, path = tempfile.mkstemp(dir=folder)
        Path(path).unlink()
        os.posix_fallocate(file, 0, SEGMENT)
        for at in range(0, SEGMENT, CHUNK):  # a sync of blocks never written is dearer; an old log has none of them
            os.pwrite(file, bytes(CHUNK), at)
        os.fsync(file)
        return file

    def append(self, view: memoryview, last: int) -> None:
        if not self._turn:
            self._meter.run()
            asyncio.get_running_loop().call_soon(self._flush)
        self._turn.append((last, view))

    def _flush(self) -> None:
        turn, self._turn = self._turn, []
        views = [view for _, view in turn]
        size = sum(map(len, views))
        if self._at + size > SEGMENT:
            self._files.rotate(-1)
            self._at = 0
        if os.pwritev(self._files[0], views, self._at) != size:
            raise OSError("the disk is full")
        os.fdatasync(self._files[0])
        self._at += size
        self._meter.last = turn[-1][0]
        self._synced(turn)


class Primary:
    def __init__(self, job: Job, meter: Meter) -> None:
        journal = BareJournal(job, meter, self._forward)
        self.client = BareLink(job, journal.append)
        self.followers = [
            BareLink(job, functools.partial(self._acknowledged, i)) for i in range(ROLES.count("follower"))
        ]
        self.reader = BareLink(job, lambda view, last: None)
        for link in (*self.followers, self.reader):
            link.full = self._hold
        self._held = 0
        self._acks = [0] * len(self.followers)
        self._uncommitted: deque[tuple[int, memoryview]] = deque()

    def _hold(self, full: bool) -> None:
        """Take nothing from the client while anybody's buffer is full."""
        self._held += 1 if full else -1
        if self._held == 0:
            self.client.transport.resume_reading()
        elif full and self._held == 1:
            self.client.transport.pause_reading()

    def _forward(self, turn: TurnFrames) -> None:
        self._uncommitted.extend(turn)
        for follower in self.followers:
            follower.transport.writelines([view for _, view in turn])

    def _acknowledged(self, follower: int, _: memoryview, last: int) -> None:
        self._acks[follower] = last
        # What a follower has is synced here too, so one of them makes a majority.
        number, views, majority = 0, [], max(self._acks)
        while self._uncommitted and self._uncommitted[0][0] <= majority:
            number, view = self._uncommitted.popleft()
            views.append(view)
        if views:
            self.reader.transport.writelines(views)
            self.client.transport.write(HEAD.pack(number, 0))


class Follower(BareLink):
    def __init__(self, job: Job, meter: Meter) -> None:
        super().__init__(job, BareJournal(job, meter, self._acknowledge).append)

    def _acknowledge(self, turn: TurnFrames) -> None:
        self.transport.write(HEAD.pack(turn[-1][0], 0))


class BareClient(BareLink):
    """Keeps batches in flight until the time is over. The first answer is to nothing, and says that all are there."""

    def __init__(self, job: Job, meter: Meter) -> None:
        super().__init__(job, self._answered)
        self._job, self._meter = job, meter
        self._rest = bytes(job.batch * job.size - STAMP.size)
        self._until = self._sent = 0
        self._stamps: deque[int] = deque()

    def _answered(self, _: memoryview, last: int) -> None:
        self._meter.run()
        now = time.monotonic_ns()
        self._until = self._until or now + int((WARM_UP + self._job.seconds + MARGIN) * 1e9)
        self._meter.delays += [now - self._stamps.popleft() for _ in range(last - self._meter.last)]
        self._meter.last = last
        if now < self._until:
            self._send(last + self._job.outstanding, now)
        elif last == self._sent:
            self.transport.close()

    def _send(self, last: int, now: int) -> None:
        buffers: list[bytes] = []
        for number in range(self._sent + 1, last + 1):
            buffers += (HEAD.pack(number, STAMP.size + len(self._rest)) + STAMP.pack(now), self._rest)
            self._stamps.append(now)
        self._sent = last
        self.transport.writelines(buffers)


class BareReader(BareLink):
    """Counts the batches, and sees to it that none is missing, doubled or out of order."""

    def __init__(self, job: Job, meter: Meter) -> None:
        super().__init__(job, self._deliver)
        self._meter = meter

    def _deliver(self, view: memoryview, _: int) -> None:
        self._meter.run()
        now, at = time.monotonic_ns(), 0
        while at < len(view):
            number, length = HEAD.unpack_from(view, at)
            if number != self._meter.last + 1:
                raise RuntimeError(f"batch {number} came after batch {self._meter.last}")
            self._meter.last = number
            self._meter.delays.append(now - STAMP.unpack_from(view, at + HEAD.size)[0])
            at += HEAD.size + length


async def lead(job: Job, meter: Meter) -> None:
    """The primary's life: until the client leaves, and the others have all there is."""
    primary = Primary(job, meter)
    others = [*primary.followers, primary.reader]
    for descriptor, links in zip(job.listening, ([primary.client], primary.followers, [primary.reader]), strict=True):
        await asyncio.get_running_loop().create_server(iter(links).__next__, sock=socket.socket(fileno=descriptor))
    await asyncio.gather(*(link.opened for link in (primary.client, *others)))
    primary.client.transport.write(HEAD.pack(0, 0))
    await primary.client.closed
    for link in others:
        link.transport.write_eof()
    await asyncio.gather(*(link.closed for link in others))


PARTNERS: dict[str, Callable[[Job, Meter], BareLink]] = {
    "client": BareClient,
    "follower": Follower,
    "reader": BareReader,
}


async def live(job: Job) -> BareReport:
    """A child's life: for all but the primary, one connection to it."""
    loop, meter = asyncio.get_running_loop(), Meter(job.seconds)
    loop.set_exception_handler(fail)
    if job.role in PARTNERS:
        link = PARTNERS[job.role](job, meter)
        await loop.create_connection(lambda: link, "127.0.0.1", job.port)
        await link.closed
    else:
        await lead(job, meter)
    return meter.report()


def fail(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    loop.default_exception_handler(context)
    os._exit(1)


def reports_of(children: Sequence[subprocess.Popen[bytes]], seconds: float) -> list[BareReport]:
    """What the children tell when all have ended; an error at the first that fails, or after so many seconds."""
    deadline = time.monotonic() + seconds
    while None in (codes := [each.poll() for each in children]) and not any(codes) and time.monotonic() < deadline:
        time.sleep(0.05)
    if any(code != 0 for code in codes):
        raise RuntimeError(f"the replicated log failed: {list(zip(ROLES, codes, strict=True))}")
    return [json.loads(cast("IO[bytes]", each.stdout).read()) for each in children]


def measure(*, batch: int, size: int, outstanding: int, seconds: float, folder: Path | None = None) -> Measurement:
    """Run the log for a while, and tell what it did. Without a folder the journals are where temporary files are."""
    if min(batch, size, outstanding, seconds) <= 0 or batch * size < STAMP.size:
        raise ValueError("a batch has 8 bytes or more, and at least one is in flight for some time")
    if outstanding * batch * size > SEGMENT // 2:
        raise ValueError(f"no more than {SEGMENT // 2} bytes may be in flight")
    with contextlib.ExitStack() as stack:
        listening = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in PARTNERS]
        ports = {role: each.getsockname()[1] for role, each in zip(PARTNERS, listening, strict=True)}
        where = str(folder or tempfile.gettempdir())
        children: list[subprocess.Popen[bytes]] = []
        for role in ROLES:
            passed = [] if role in PARTNERS else [each.fileno() for each in listening]
            job = Job(role, batch, size, outstanding, seconds, where, ports.get(role, 0), passed)
            command = [sys.executable, "-c", _RUN, "--child", json.dumps(dataclasses.asdict(job))]
            # In a session of its own: Ctrl-C is for the parent, which then ends its children.
            child = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=passed, start_new_session=True)
            children.append(stack.enter_context(child))
            stack.callback(child.kill)
        return summary(reports_of(children, seconds + LIMIT), batch)


def summary(reports: Sequence[BareReport], batch: int) -> Measurement:
    cpus, batches, delays, lasts = zip(*reports, strict=True)
    if len(set(lasts)) != 1 or not batches[-1]:
        raise RuntimeError(f"nothing was delivered, or not everybody has everything: {reports}")
    rate = batches[-1] * batch
    cpu = dict.fromkeys(ROLES, 0.0)
    for role, share in zip(ROLES, cpus, strict=True):
        cpu[role] += share * 1e6 / rate / ROLES.count(role)
    return Measurement(messages_per_second=rate, latency_ms=delays[-1], receipt_ms=delays[0], cpu_us_per_message=cpu)


def line(found: Measurement) -> str:
    delivery, receipt = (f"{d['p50']:.2f} ms (p99 {d['p99']:.2f})" for d in (found["latency_ms"], found["receipt_ms"]))
    cpu = ", ".join(f"{role} {cost:.3f}" for role, cost in found["cpu_us_per_message"].items())
    rate = f"{found['messages_per_second']:,.0f} messages/s"
    return f"{rate}, delivery {delivery}, receipt {receipt}, CPU µs per message: {cpu}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=500, help="payloads in a batch")
    parser.add_argument("--size", type=int, default=100, help="bytes in a payload")
    parser.add_argument("--outstanding", type=int, default=40, help="batches in flight")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--dir", dest="folder", type=Path, help="where the journals are: on a disk")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = vars(parser.parse_args())
    child, as_json = arguments.pop("child"), arguments.pop("json")
    if child:
        job = Job(**json.loads(child))
        signal.alarm(int(job.seconds + LIMIT) + 1)  # should the parent be gone
        print(json.dumps(uvloop.run(live(job))))
    else:
        found = measure(**arguments)
        print(json.dumps(found) if as_json else line(found))


if __name__ == "__main__":
    main()
