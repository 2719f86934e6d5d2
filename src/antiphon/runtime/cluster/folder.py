"""A cluster on disk: ``cluster.json``, a folder per process, and the trace.

```
CLUSTER/
  cluster.json             what the cluster is; changes when a member is replaced, and never else
  retain                   how much of the delivered logs is kept; none: all
  trace/                   docs/trace.md
  <process>/journal/       its inputs: all that it is
  <process>/delivered/     what it delivered, for subscribers
  <process>/spill/         what peers that lag have not acknowledged, by channel
  <process>/incarnation    how often it was started
  <process>/stopped        it ended cleanly; gone while it runs
  <process>/drained        and so did all others, when everything was delivered
  <process>/trace-gap      there was no room for a part of its trace, for good
  <process>/refused        its journal was, by a peer: it lacks something
  <process>/lost           it was replaced, and is not started any more
  <process>/lock           held by the running process, for its whole life
  <process>/log            what it printed
```
"""

from __future__ import annotations

import fcntl
import os
import resource
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from antiphon.core import ProcessId
from antiphon.core.buffers import UNDECODABLE
from antiphon.core.errors import JournalFull, UsageError
from antiphon.runtime.cluster.config import CLUSTER_VERSION, ClusterConfig
from antiphon.runtime.disk import Retain, acquired
from antiphon.runtime.disk.files import sync_path
from antiphon.runtime.net import parse_address

FILES_MAX = 1024


class _Version(msgspec.Struct):
    """What every version's cluster.json has."""

    version: int = 1


class ClusterFolder:
    def __init__(self, path: Path, config: ClusterConfig) -> None:
        self.path = path
        self.config = config

    @classmethod
    def exists(cls, path: Path) -> bool:
        return (path / "cluster.json").exists()

    @classmethod
    def load(cls, path: Path) -> ClusterFolder:
        return cls(path, cls._read(path))

    def reload(self) -> None:
        """Somebody else may have replaced a member."""
        self.config = self._read(self.path)

    @staticmethod
    def _read(path: Path) -> ClusterConfig:
        try:
            data = (path / "cluster.json").read_bytes()
        except OSError:
            raise UsageError(f"{path} is not a cluster: it has no readable cluster.json.") from None
        try:
            version = msgspec.json.decode(data, type=_Version).version
            if version == 1:
                raise UsageError(f"{path} was made by Antiphon 0.1, whose folders 0.2 does not read: make a new one.")
            if version != CLUSTER_VERSION:
                raise UsageError(f"{path} is a cluster of version {version}; this program runs {CLUSTER_VERSION}.")
            config = msgspec.json.decode(data, type=ClusterConfig)
        except UNDECODABLE as error:
            raise UsageError(f"{path / 'cluster.json'} does not describe a cluster: {error}.") from None
        try:
            config.check_members()
        except UsageError as error:
            raise UsageError(
                f"{path / 'cluster.json'} does not describe a cluster: {str(error).rstrip('.')}."
            ) from None
        return config

    def save(self) -> None:
        """Durably, as a whole or not at all. OSError: nothing is left of it."""
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / ".cluster.json.tmp"
        try:
            temporary.write_bytes(msgspec.json.format(msgspec.json.encode(self.config), indent=2) + b"\n")
            sync_path(temporary)
            temporary.replace(self.path / "cluster.json")
            sync_path(self.path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def learn(self, told: Sequence[tuple[str, str, str]], check: Callable[[ClusterConfig], None]) -> None:
        """Members were replaced (who is lost, who has its place, where): write it down, unless it stands here already,
        as it does where the command was called on this folder. UsageError: others were, as it stands here, or as
        ``check`` says."""
        config = self._read(self.path)
        known = config.epoch
        for at, (lost, newcomer, address) in enumerate(told):
            if at >= known:
                config.check_replaceable(config.known(lost))
                config = config.replacing(lost, newcomer, address)
                config.topology()  # the newcomer is called as it has to be
            elif (config.replaced[at].lost, config.replaced[at].newcomer) != (lost, newcomer):
                here = f"{self.path}/cluster.json {config.replaced[at].lost} was, by {config.replaced[at].newcomer}"
                raise UsageError(f"{lost} was replaced by {newcomer} elsewhere: in {here}.")
        for _, newcomer, address in told[known:]:
            if newcomer in config.addresses:  # else it was replaced itself since
                parse_address(address)
        check(config)
        if config.epoch > known:
            try:
                ClusterFolder(self.path, config).save()
            except OSError as error:
                raise JournalFull(f"{self.path} cannot be written: {error.strerror or error}.") from None
        self.config = config

    def look_again(self, check: Callable[[ClusterConfig], None]) -> None:
        """The same as ``reload``, but what ``check`` refuses is not taken."""
        config = self._read(self.path)
        check(config)
        self.config = config

    @contextmanager
    def commanded(self, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """One command that starts or ends processes at a time: the next one waits, and finds what this one did.
        ``on_wait`` is called where that takes long."""
        try:
            fd = os.open(self.path, os.O_RDONLY)
        except OSError:
            yield
            return
        try:
            if not acquired(lambda: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)):
                on_wait()
                fcntl.flock(fd, fcntl.LOCK_EX)
            self.reload()
            yield
        finally:
            os.close(fd)

    @property
    def trace(self) -> Path:
        return self.path / "trace"

    def retained(self) -> Retain:
        """What is kept of the delivered logs: asked now and then, so that a change reaches processes that run."""
        path = self.path / "retain"
        try:
            return Retain.parse([path.read_text()])
        except FileNotFoundError:
            return Retain()
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} cannot be read: {error}.") from None

    def retain(self, words: Sequence[str]) -> None:
        """Keep so much of the delivered logs from now on."""
        Retain.parse(words)
        temporary = self.path / ".retain.tmp"
        temporary.write_text(",".join(words) + "\n")
        temporary.replace(self.path / "retain")

    def in_use(self) -> list[ProcessId]:
        """The processes that are to run: all but spares that were never started, and those that are lost."""
        config = self.config
        unused = [name for name in config.spares if not self.process(name).has_run]
        return [p for p in config.processes if p not in unused and not self.process(p).is_lost]

    def spare_for(self, lost: ProcessId) -> ProcessId | None:
        """One of the same group that has never run."""
        members = next(members for members in self.config.groups.values() if lost in members)
        unused = [p for p in self.config.spares if p in members and p != lost and not self.process(p).has_run]
        return ProcessId(unused[0]) if unused else None

    def is_traced(self, process: str) -> bool:
        """Whether the trace of a process is all there. The folder of one that was replaced may be gone: it did run."""
        own = self.process(process)
        return own.is_traced and (process in self.config.addresses or own.has_ended)

    def process(self, process: str) -> ProcessFolder:
        return ProcessFolder(self.path / process)


class ProcessFolder:
    """What one process keeps. Its lock cannot be fooled: it goes with the process, and tells the holder's pid."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / "journal"
        self.delivered = path / "delivered"
        self.spill = path / "spill"
        self.log = path / "log"
        self._lock = path / "lock"
        self._incarnation = path / "incarnation"
        self._stopped = path / "stopped"
        self._drained = path / "drained"
        self._gap = path / "trace-gap"
        self._refused = path / "refused"
        self._lost = path / "lost"
        self.salvaged = path / "salvaged"  # its trace was completed after a kill

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder; UsageError when another process does."""
        self.path.mkdir(parents=True, exist_ok=True)
        fd = self._open_last()
        try:
            if not acquired(lambda: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)):
                raise UsageError(f"Another process runs on {self.path}.")
            self._stopped.unlink(missing_ok=True)
            self._drained.unlink(missing_ok=True)
            self.salvaged.unlink(missing_ok=True)
            yield
        finally:
            os.close(fd)

    def _open_last(self) -> int:
        """Open the lock file with the highest number: an ending process closes that last, so that whoever sees
        the lock free finds its journal and its port free too."""
        first = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            highest = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], FILES_MAX) - 1
            return fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, highest)
        finally:
            os.close(first)

    def pid(self) -> int | None:
        """The process that holds the lock; None when nobody does."""
        try:
            fd = os.open(self._lock, os.O_RDWR)
        except OSError:
            return None
        try:
            answer = fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        finally:
            os.close(fd)
        kind, _, _, _, pid = _FLOCK.unpack(answer)
        return None if kind == fcntl.F_UNLCK else pid

    def next_incarnation(self) -> int:
        """Number this start of the process; an old copy of the folder shows as an old number.

        Where the number was lost and the journal was not, the clock gives one that is surely greater.
        """
        try:
            incarnation = int(self._incarnation.read_text()) + 1
        except (OSError, ValueError):
            incarnation = time.time_ns() // 1_000_000 if self.journal.exists() else 1
        self._write_durably(self._incarnation, f"{incarnation}\n")
        return incarnation

    def mark_clean(self, incarnation: int) -> None:
        self._write_durably(self._stopped, f"{incarnation}\n")

    def mark_drained(self) -> None:
        """Where there is no room for it, nobody knows later that everything was delivered."""
        with suppress(OSError):
            self._drained.touch()

    def mark_refused(self) -> None:
        """Its journal lacks what it once did, so its trace cannot be completed from that."""
        with suppress(OSError):
            self._write_durably(self._refused, "")

    def unmark_refused(self) -> None:
        """It has begun, on a journal that its peers believe."""
        with suppress(OSError):
            self._refused.unlink(missing_ok=True)

    def mark_lost(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._write_durably(self._lost, "")

    @property
    def is_lost(self) -> bool:
        return self._lost.exists()

    def mark_gap(self) -> None:
        """There was no room for a part of the trace, and there will never be."""
        if not self.has_gap:
            self._write_durably(self._gap, "")

    @property
    def has_gap(self) -> bool:
        return self._gap.exists()

    def _write_durably(self, path: Path, text: str) -> None:
        """Written as a whole, or not at all, also through a power cut."""
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @property
    def has_run(self) -> bool:
        """Whether it was ever started on this folder."""
        return self._incarnation.exists() or self.journal.exists()

    @property
    def stopped_cleanly(self) -> bool:
        return self._stopped.exists()

    @property
    def was_drained(self) -> bool:
        """Whether it has not run since `down` ended all processes cleanly, when everything was delivered."""
        return self._drained.exists()

    @property
    def is_traced(self) -> bool:
        """Whether its trace is all there: it ended cleanly, or was completed since, and there was always room.

        What was never started saw nothing; what was lost saw nobody knows what.
        """
        return (self.has_ended or not (self.has_run or self.is_lost)) and not self.is_refused and not self.has_gap

    @property
    def is_refused(self) -> bool:
        return self._refused.exists()

    @property
    def has_ended(self) -> bool:
        """Whether what it saw last is written: it ended cleanly, or its trace was completed since."""
        return self._stopped.exists() or self.salvaged.exists()

    def last_words(self, since: int = 0) -> str:
        """The last line that the process printed, behind the first ``since`` bytes of its log."""
        try:
            with self.log.open("rb") as log:
                log.seek(since)
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""


_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux: type, whence, start, length, pid
