"""The delivered logs of a cluster: where they are, whose they are, how far they go, and whether they can be merged."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from antiphon.core import ProcessId, Promise, Topology, parse_options
from antiphon.core.buffers import Buffers
from antiphon.core.errors import AntiphonError, BadFrame, JournalCorrupt, JournalError, RecordsGone, UsageError
from antiphon.core.events import Adopted, Delivered, Event
from antiphon.protocols import protocol_named
from antiphon.runtime.cluster import ClusterConfig, ClusterFolder
from antiphon.runtime.disk import FolderSegments, Lookup, identity_of, read_beginning, read_whole, segment_files
from antiphon.runtime.disk.segments import FORMAT, Segment
from antiphon.runtime.disk.stored import head_of, whole

READS_MAX, READ_AGAIN_SECONDS = 4, 0.3


class MergeError(AntiphonError):
    """The logs contradict what their protocol promises, so no order can be made of them."""


class LetGo(UsageError):
    """A segment was there a moment ago."""


class SegmentFile(NamedTuple):
    """A file of a log. Only the last one may be written to while we read."""

    first: int  # the index of its first record
    path: Path
    is_last: bool

    def lookup(self) -> Lookup:
        """To read what its records refer to."""
        return Lookup(FolderSegments(journal_of(self.path.parent)))


def journal_of(folder: Path) -> Path:
    """The journal to which a log in a folder refers: it lies beside it, also where both were copied."""
    return folder.resolve().with_name("journal")


class MemberLog(NamedTuple):
    """What one process delivered."""

    process: str
    group: str
    folder: Path

    def segments(self) -> list[SegmentFile]:
        files = segment_files(self.folder)
        return [SegmentFile(first, path, path == files[-1][1]) for first, path in files]

    @property
    def referred_bytes(self) -> int:
        """How much it may refer to, at most."""
        return FolderSegments(journal_of(self.folder)).size


def find_logs(folders: Sequence[Path]) -> tuple[ClusterConfig, list[MemberLog]]:
    """The cluster that all these folders are of, and its logs in them.

    A folder is a cluster's, or a process's, or a log itself, there or copied elsewhere; one of them has, or lies in a
    folder that has, the cluster's description.
    """
    found = [log for folder in folders for log in _logs_in(folder)]
    config = _config_of(folders)
    group_of = {process: group for group, members in config.groups.items() for process in members}
    owned = [(_owner(folder, config), folder) for folder in found]
    # What a member delivered that was replaced, those have that are left; nobody sees to it that its log is whole.
    logs = [MemberLog(process, group_of[process], folder) for process, folder in owned if process in group_of]
    if owned and not logs:
        raise UsageError(f"{owned[0][0]} was replaced: what it delivered is in the logs of those who are members now.")
    return config, logs


def _logs_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder.")
    places = [folder, folder / "delivered", *sorted(folder.glob("*/delivered"))]
    logs = [place for place in places if segment_files(place)]
    if not logs and not ClusterFolder.exists(folder):
        raise UsageError(f"{folder} is neither a cluster's folder nor does it hold the delivered log of a process.")
    return logs


def _config_of(folders: Iterable[Path]) -> ClusterConfig:
    configs: dict[str, tuple[Path, ClusterConfig]] = {}
    for folder in folders:
        whole = folder.resolve()
        for place in (whole, *whole.parents[:2]):
            if ClusterFolder.exists(place):
                config = ClusterFolder.load(place).config
                configs.setdefault(config.cluster, (place, config))
                break
    if not configs:
        raise UsageError("None of these folders tells of which cluster they are: copy its cluster.json beside them.")
    (place, config), *others = configs.values()
    if others:
        raise UsageError(
            f"{place} and {others[0][0]} are two clusters: their orders have nothing to do with each other."
        )
    return config


def _owner(folder: Path, config: ClusterConfig) -> str:
    first, path = segment_files(folder)[0]
    try:
        identity = identity_of(path, first)
    except (OSError, JournalError, ValueError) as error:
        raise UsageError(f"{folder} is not a log that can be read: {error}") from None
    if identity.format != FORMAT:
        raise UsageError(f"{folder} is a log of format {identity.format}; this program reads format {FORMAT}.")
    if identity.cluster != config.cluster:
        raise UsageError(f"{folder} is a log of another cluster than {config.cluster}.")
    is_stranger = Topology(config.groups).is_stranger(ProcessId(identity.process))
    if identity.code or not (is_stranger or identity.process in config.processes):
        raise UsageError(f"{folder} is not the delivered log of a process of this cluster.")
    return identity.process


def check_protocol(config: ClusterConfig) -> None:
    """Refuse a protocol that does not order the messages of all groups by keys."""
    kind = protocol_named(config.protocol)
    options = parse_options(kind, config.options)
    promises = kind.promises(options)
    if kind.assumes(options).one_group:
        raise UsageError(
            f"The {config.protocol} protocol sends a message to one group only: there is no order across groups to "
            "merge their logs by; primcast and skeen have one."
        )
    if Promise.TOTAL_ORDER not in promises or Promise.ACYCLIC_ORDER not in promises:
        how = "with these options " if config.options else ""
        raise UsageError(
            f"The {config.protocol} protocol {how}does not promise one order across groups, so there is none to merge "
            "their logs by; primcast and skeen do."
        )


# Reading ----------------------------------------------------------------------------------------------------------


def read_segment(file: SegmentFile) -> tuple[Segment, list[bytes]]:
    """A segment's deliveries: with what a log of a newcomer begins is none."""
    segment, records = _read_segment(file)
    is_begun = not file.first and records and isinstance(_event(records[0], file.path), Adopted)
    return segment, records[1:] if is_begun else records


def _read_segment(file: SegmentFile) -> tuple[Segment, list[bytes]]:
    """All its records. What its process is writing meanwhile may look like damage: then it is read again."""
    for _ in range(READS_MAX - 1) if file.is_last else ():
        try:
            return read_whole(file.path, file.first, is_last=True)
        except FileNotFoundError:
            break
        except JournalCorrupt:
            time.sleep(READ_AGAIN_SECONDS)
    try:
        return read_whole(file.path, file.first, is_last=file.is_last)
    except FileNotFoundError:
        raise LetGo(f"{file.path} was let go by its process meanwhile: merge again.") from None
    except OSError as error:
        raise UsageError(f"{file.path} cannot be read: {error.strerror}.") from None
    except JournalError as error:
        raise UsageError(str(error)) from None


class Placed(NamedTuple):
    """A delivery that has a place in the order."""

    key: bytes
    event: Delivered  # without its requests


def _event(record: bytes, path: Path) -> Event:
    try:
        return head_of(record).event
    except BadFrame as error:
        raise UsageError(f"{path} holds a record that is not an event: {error}") from None


def read_whole_event(record: bytes, file: SegmentFile, lookup: Lookup) -> Buffers:
    """A record as readers get it, with what it refers to."""
    try:
        return whole(record, lookup.fetch)
    except BadFrame as error:
        raise UsageError(f"{file.path} holds a record that is not an event: {error}") from None
    except RecordsGone as error:
        if not file.path.exists():
            raise LetGo(f"{file.path} was let go by its process meanwhile: merge again.") from None
        raise UsageError(f"{file.path} cannot be read without the journal beside it: {error}") from None
    except JournalError as error:
        raise UsageError(f"{file.path} refers to what cannot be read: {error}") from None


def placed(record: bytes, path: Path) -> Placed:
    event = _event(record, path)
    if not isinstance(event, Delivered):
        raise UsageError(f"{path} has a gap or a view at position {event.position}: it does not hold all of the order.")
    if event.key is None:
        raise UsageError(f"{path}: {event.id} was delivered without a place in the order, as causal messages are.")
    return Placed(event.key, event)


class Beginning(NamedTuple):
    """Where a log begins that does not hold all that its group delivered: what was before was let go, or taken over."""

    position: int
    key: bytes | None  # of the first delivery in it, if it is known from where on others were let go


class Reach(NamedTuple):
    """From where a log goes, and how far; None where it holds nothing of the kind."""

    begins: Beginning | None  # None: with all that there ever was
    floor: bytes | None  # the key of its last record: what comes behind it has a greater one
    payload: bytes | None  # of the last one that brought anything
    end: int  # the position after its last record


def reach_of(log: MemberLog) -> Reach:
    for _ in range(READS_MAX - 1):
        try:
            return _reach_of(log.segments())
        except LetGo:
            continue
    return _reach_of(log.segments())


def _reach_of(files: Sequence[SegmentFile]) -> Reach:
    begins = _beginning(files)
    floor: bytes | None = None
    for file in reversed(files):
        _, records = read_segment(file)
        for record in reversed(records):
            key, event = placed(record, file.path)
            floor = floor or key
            if event.count:
                return Reach(begins, floor, key, event.position + event.count)
    return Reach(begins, floor, None, begins.position if begins is not None else 0)


def _beginning(files: Sequence[SegmentFile]) -> Beginning | None:
    if files and not files[0].first:
        return _taken_over(files[0].path)
    for file in files:
        _, records = read_segment(file)
        if records:
            key, event = placed(records[0], file.path)
            return Beginning(event.position, key)
    return None


def _taken_over(path: Path) -> Beginning | None:
    """Where a newcomer's log goes on, by its first record."""
    try:
        records = read_beginning(path, 0)
    except FileNotFoundError:
        raise LetGo(f"{path} was let go by its process meanwhile: merge again.") from None
    event = _event(records[0], path) if records else None
    return Beginning(event.position, None) if isinstance(event, Adopted) else None


def segments_after(log: MemberLog, key: bytes) -> list[SegmentFile]:
    """The segments in which there may be something behind a key."""
    files = log.segments()
    low, high = 0, len(files)  # the first segment whose first record is behind the key is among these
    while low < high:
        middle = (low + high) // 2
        _, records = read_segment(files[middle])
        if not records or placed(records[0], files[middle].path).key > key:
            high = middle
        else:
            low = middle + 1
    return files[max(low - 1, 0) :]
