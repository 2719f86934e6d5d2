"""Power cuts of a log, thousands of them: whatever reaches the disk, nothing durable is lost and nothing is refused.

    python benchmarks/power_cuts.py [--seconds 60] [--seed 0]

A log runs on real files, and every system call that changes them is noted. At a random one of them the process ends:
killed, with what the kernel has kept, or by a power cut. After a cut the disk holds, of all that was written to a file
since its last sync, any sectors (or pages), and of all names that were given and taken away since the folder's last
sync, any; then the log is opened again, compared with a list, and used until the next cut. Segments are small, so that
they are rolled, pruned and written again all the time, and blocks are laid out both for direct writes and for the
cache. The files are in memory where there is such a thing: there a direct write is like any other. A segment's salt is
not of the seed, but nothing should depend on it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from antiphon.core.buffers import Buffers
from antiphon.core.errors import AntiphonError
from antiphon.runtime.disk import JournalIdentity, SegmentedLog, writer

ME = JournalIdentity("cluster", "process", "code")
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
CALLS = ("open", "close", "pwritev", "fsync", "fdatasync", "ftruncate", "posix_fallocate", "rename", "unlink")
# Which units of what was written since the last sync reach the disk.
REACHED = (
    "all",
    "none",
    "some",
    "some",
    "most",
    "few",
    "all but one",
    "only one",
    "all but the first",
    "not the inner",
)


class Wrong(Exception):
    """The log has lost, changed or made up something, or is refused."""


class Ended(BaseException):
    """The process ends here."""


class Named(NamedTuple):
    """A file got a name, or (``inode`` None) a name is gone."""

    name: str
    inode: int | None


class Disk:
    """What a folder's disk surely holds, and what was asked of it since."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder = folder
        self.calls_left: int | None = None  # until the process ends
        self.is_noting = False
        self._rng = rng
        self._system: dict[str, Any] = {name: getattr(os, name) for name in CALLS}
        self._opened: dict[int, int | None] = {}  # by descriptor: the inode; None is the folder itself
        self._durable: dict[int, bytes] = {}  # by inode
        self._states: dict[int, list[bytes]] = {}  # by inode: the whole file after each change since its last sync
        self._names: dict[str, int] = {}
        self._named: list[Named] = []  # since the folder's last sync

    def forget(self) -> None:
        """What the files hold now is durable."""
        self._opened.clear()
        self._named.clear()
        paths = {path.name: path for path in self.folder.iterdir()}
        self._names = {name: path.stat().st_ino for name, path in paths.items()}
        self._durable = {path.stat().st_ino: path.read_bytes() for path in paths.values()}
        self._states = {inode: [] for inode in self._durable}

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Have the system calls of this process noted; `os` is what it was afterwards."""
        for name in CALLS:
            setattr(os, name, getattr(self, f"_{name}"))
        try:
            yield
        finally:
            for name, function in self._system.items():
                setattr(os, name, function)

    # System calls -----------------------------------------------------------------------------------------------------

    def _count(self) -> None:
        if self.calls_left is not None:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise Ended

    def _is_ours(self, path: Any) -> bool:
        return self.is_noting and os.fspath(path).startswith(str(self.folder))

    def _open(self, path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        is_ours = self._is_ours(path)
        if is_ours and flags & os.O_CREAT:
            self._count()
        is_new = not Path(path).exists()
        descriptor: int = self._system["open"](path, flags, mode, **more)
        if is_ours and Path(path) == self.folder:
            self._opened[descriptor] = None
        elif is_ours:
            inode = self._opened[descriptor] = os.fstat(descriptor).st_ino
            if is_new:
                self._durable[inode], self._states[inode] = b"", []
                self._named.append(Named(Path(path).name, inode))
        return descriptor

    def _close(self, descriptor: int) -> None:
        self._opened.pop(descriptor, None)
        self._system["close"](descriptor)

    def _changed(self, descriptor: int, name: str, *arguments: Any) -> Any:
        """Make a change of a file, and note what it is after it."""
        inode = self._opened.get(descriptor)
        if inode is None or not self.is_noting:
            return self._system[name](descriptor, *arguments)
        self._count()
        result = self._system[name](descriptor, *arguments)
        self._note(inode, descriptor)
        return result

    def _note(self, inode: int, descriptor: int) -> None:
        self._states[inode].append(os.pread(descriptor, 1 << 30, 0))

    def _pwritev(self, descriptor: int, buffers: Any, offset: int) -> int:
        inode = self._opened.get(descriptor)
        if self.calls_left == 0 and inode is not None and self.is_noting:  # it ends within: a part is in the cache
            data = b"".join(bytes(buffer) for buffer in buffers)
            part = self._rng.choice([0, len(data), self._rng.randrange(len(data) + 1)])
            fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_DIRECT)
            os.pwrite(descriptor, data[:part], offset)
            self._note(inode, descriptor)
            raise Ended
        written: int = self._changed(descriptor, "pwritev", buffers, offset)
        return written

    def _ftruncate(self, descriptor: int, size: int) -> None:
        self._changed(descriptor, "ftruncate", size)

    def _posix_fallocate(self, descriptor: int, offset: int, size: int) -> None:
        self._changed(descriptor, "posix_fallocate", offset, size)

    def _fsync(self, descriptor: int) -> None:
        if descriptor not in self._opened or not self.is_noting:
            self._system["fsync"](descriptor)
            return
        self._count()
        inode = self._opened[descriptor]
        if inode is None:
            self._names = self._names_after(self._named)
            self._named.clear()
        else:
            self._durable[inode], self._states[inode] = os.pread(descriptor, 1 << 30, 0), []

    _fdatasync = _fsync

    def _rename(self, source: Any, target: Any, **more: Any) -> None:
        if self._is_ours(source):
            self._count()
            # A rename is one change: both names, or neither.
            self._named.append(Named(f"{Path(source).name}/{Path(target).name}", Path(source).stat().st_ino))
        self._system["rename"](source, target, **more)

    def _unlink(self, path: Any, **more: Any) -> None:
        if self._is_ours(path):
            self._count()
            self._named.append(Named(Path(path).name, None))
        self._system["unlink"](path, **more)

    # A power cut ------------------------------------------------------------------------------------------------------

    def _names_after(self, changes: list[Named]) -> dict[str, int]:
        names = dict(self._names)
        for name, inode in changes:
            if inode is None:
                names.pop(name, None)
            elif "/" in name:
                source, target = name.split("/")
                if names.get(source) == inode:
                    del names[source]
                names[target] = inode
            else:
                names[name] = inode
        return names

    def cut_power(self) -> str:
        """Leave on disk what may be there after a power cut; says which kind of cut it was."""
        rng = self._rng
        unit, reached = rng.choice([512, 512, 512, 4096]), rng.choice(REACHED)
        chance = rng.choice([1.0, 1.0, 0.5])
        names = self._names_after([change for change in self._named if rng.random() < chance])
        files = {name: self._after_cut(inode, reached, unit) for name, inode in names.items()}
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        for name, data in files.items():
            (self.folder / name).write_bytes(data)
        return f"{reached} of {unit} bytes"

    def _after_cut(self, inode: int, reached: str, unit: int) -> bytes:
        states = [self._durable[inode], *self._states[inode]]
        size = max(map(len, states))
        padded = [state.ljust(size, b"\0") for state in states]
        changed = [at for at in range(0, size, unit) if len({state[at : at + unit] for state in padded}) > 1]
        if not changed:
            return states[-1]
        special, result = self._rng.choice(changed), bytearray(padded[0])
        for at in changed:
            state = self._which(reached, at, special, changed, len(states) - 1)
            result[at : at + unit] = padded[state][at : at + unit]
        return bytes(result[: len(self._rng.choice([states[-1], states[-1], *states]))])

    def _which(self, reached: str, at: int, special: int, changed: list[int], newest: int) -> int:
        """Which of a file's states a unit has."""
        rng = self._rng
        some = rng.randrange(newest + 1)
        match reached:
            case "all":
                return newest
            case "none":
                return 0
            case "some":
                return some
            case "most":
                return newest if rng.random() < 0.9 else some
            case "few":
                return 0 if rng.random() < 0.9 else some
            case "all but one":
                return 0 if at == special else newest
            case "only one":
                return newest if at == special else 0
            case "all but the first":
                return 0 if at == changed[0] else newest
            case _:
                is_inner = at not in (changed[0], changed[-1])
                return 0 if is_inner and (at == special or rng.random() < 0.3) else newest


class Model:
    """What the log must hold."""

    def __init__(self) -> None:
        self.durable: list[bytes] = []
        self.appended: list[bytes] = []  # since; each prefix of these may be there, too
        self.snapshots: dict[int, bytes] = {}
        self.newest_snapshot = 0

    def compare(self, log: SegmentedLog) -> None:
        """Look at a log that was just opened, and go on from what it holds."""
        count, everything = log.durable_index, self.durable + self.appended
        if not len(self.durable) <= count <= len(everything):
            raise Wrong(f"{len(self.durable)} records were durable, {len(everything)} appended, and {count} are there")
        snapshot = log.snapshot
        if (snapshot.index if snapshot else 0) < self.newest_snapshot:
            raise Wrong("a snapshot is lost")
        if snapshot is not None and self.snapshots.get(snapshot.index) != snapshot.state:
            raise Wrong("a snapshot is not what it was")
        if log.first_index > (snapshot.index if snapshot else 0):
            raise Wrong("records are gone that no snapshot covers")
        if [record for _, record in log.replay(log.first_index)] != everything[log.first_index : count]:
            raise Wrong("records are not what they were")
        self.durable, self.appended = everything[:count], []
        self.newest_snapshot = snapshot.index if snapshot else 0


class Run:
    """One log through several lives."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.folder = folder
        self.disk = Disk(folder, rng)
        self.model = Model()
        self.ends: Counter[str] = Counter()
        self.large = rng.choice([1 << 10, 2 << 10, 4 << 10, 32 << 10])  # blocks from this size on are written directly
        sizes = [1024, 2000, 4096, 6000, 8192, 20_000, 32_768] if self.large < 32 << 10 else [40 << 10, 200_000]
        self.segment_bytes = rng.choice(sizes)
        self.recycled_max = rng.choice([0, 1, 2, 4, 8])

    def go(self) -> None:
        """Wrong: what went wrong, and in which life."""
        usual, writer.DIRECT_BYTES = writer.DIRECT_BYTES, self.large
        try:
            with self.disk.noted():
                self.disk.forget()
                for life in range(self.rng.choice([2, 4, 8, 12])):
                    try:
                        self._live()
                    except AntiphonError as error:
                        raise Wrong(f"life {life}: {type(error).__name__}: {error}") from error
        finally:
            writer.DIRECT_BYTES = usual

    def _open(self) -> SegmentedLog:
        direct = self.rng.random() < 0.75
        kept = self.recycled_max
        return SegmentedLog.open(self.folder, ME, segment_bytes=self.segment_bytes, recycled_max=kept, direct=direct)

    def _live(self) -> None:
        rng, disk = self.rng, self.disk
        disk.calls_left = rng.choice([None, rng.randrange(12), *(int(rng.expovariate(1 / 40)) for _ in range(6))])
        disk.is_noting = True
        log: SegmentedLog | None = None
        try:
            log = self._open()
            self.model.compare(log)
            for _ in range(rng.randrange(2, 60)):
                log = self._use(log)
            disk.calls_left = 0
            log.commit()
        except Ended:
            pass
        finally:
            disk.is_noting = False
            if log is not None:
                log.abandon()
        if rng.random() < 0.25:
            self.ends["killed"] += 1  # the kernel lives on, and writes what it has when it likes
        else:
            self.ends[disk.cut_power()] += 1
            disk.forget()

    def _use(self, log: SegmentedLog) -> SegmentedLog:
        rng, model = self.rng, self.model
        match rng.choices(["append", "commit", "snapshot", "cut", "read", "close"], [45, 35, 8, 8, 4, 4])[0]:
            case "append":
                for _ in range(rng.choice([1, 1, 2, 5, 20])):
                    self._append(log)
            case "commit":
                log.commit()
                model.durable, model.appended = model.durable + model.appended, []
            case "snapshot":
                index = rng.randint(model.newest_snapshot, len(model.durable))
                state = model.snapshots.setdefault(index, rng.randbytes(rng.choice([0, 10, 3000])))
                log.write_snapshot(index, state)
                model.newest_snapshot = index
            case "cut":
                log.prepare_cut()
                index = rng.choice([first for first, _ in log.written.extents()] or [0])
                if model.snapshots.setdefault(index, b"") == b"" and index >= model.newest_snapshot:
                    log.cut(index)
                    model.newest_snapshot = index
            case "read" if log.durable_index > log.first_index:
                start = rng.randrange(log.first_index, log.durable_index)
                if log.read(start, 20) != model.durable[start : start + 20]:
                    raise Wrong("records read are not what they were")
            case "close":
                log.close()
                log = self._open()
                if not log.clean or log.durable_index != len(model.durable + model.appended):
                    raise Wrong("a log that was closed is not whole")
                model.compare(log)
        return log

    def _append(self, log: SegmentedLog) -> None:
        rng = self.rng
        size = rng.choice([rng.randrange(8), rng.randrange(400), rng.randrange(3000), rng.randrange(3 * self.large)])
        record = rng.randbytes(size)
        cut = rng.randrange(size + 1)
        log.append(Buffers(record[:cut], record[cut:]))
        self.model.appended.append(record)


def run_seed(seed: int) -> Counter[str]:
    """The ends of all lives of one log. Wrong: what went wrong."""
    with tempfile.TemporaryDirectory(prefix="antiphon-power-", dir=MEMORY) as temporary:
        folder = Path(temporary) / "log"
        folder.mkdir()
        run = Run(folder, seed)
        run.go()
        return run.ends


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    until, seed, ends, found = time.monotonic() + arguments.seconds, arguments.seed, Counter[str](), 0
    while time.monotonic() < until:
        try:
            ends += run_seed(seed)
        except Wrong as wrong:
            found += 1
            print(f"seed {seed}: {wrong}", flush=True)
        seed += 1
    kills = ends.pop("killed", 0)
    seeds = f"seeds {arguments.seed} to {seed - 1}"
    print(f"{seed - arguments.seed} logs ({seeds}), {ends.total()} power cuts, {kills} kills:")
    for end, count in sorted(ends.items()):
        print(f"  {count:6} {end}")
    print(
        f"{found} logs went wrong" if found else "nothing durable was lost or changed, nothing made up, nothing refused"
    )
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
