"""The table's folder, which grows by increments. Each is there as a whole or not at all:

```
TABLE/
  _table.json                    of which cluster it is
  increment=00000001/            an increment: a partition of the dataset
    part-*.parquet               rows, in their order
    _increment.json              up to where it goes; written with it, renamed with it
  _unfinished/                   what a merge is writing, or was when it was killed
```

Spark and its like pass over names that begin with an underscore: they see what is committed, and nothing else.
"""

from __future__ import annotations

import fcntl
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from antiphon.core.errors import UsageError
from antiphon.runtime.cluster import ClusterConfig
from antiphon.runtime.disk.files import sync_path

TABLE_VERSION = 1
_NAME = re.compile(r"increment=(\d{8})")


class TableIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The content of _table.json."""

    version: int = TABLE_VERSION
    cluster: str
    protocol: str
    groups: list[str]


class Increment(msgspec.Struct, frozen=True, kw_only=True):
    """The content of _increment.json: what a merge has added."""

    number: int
    first: int  # the position of its first row
    end: int  # and the one after its last
    messages: int
    closed: str  # the key up to which everything is in the table, in hex
    floors: dict[str, str]  # by group, in hex
    ends: dict[str, int] = {}  # by group: the first position, as the group counts, that is not in the table

    @property
    def until(self) -> bytes:
        return bytes.fromhex(self.closed)


class MergedTable:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity = path / "_table.json"
        self._unfinished = path / "_unfinished"

    @classmethod
    def prepare(cls, path: Path, config: ClusterConfig) -> MergedTable:
        """A new table, or that of the same cluster, to go on with."""
        table = cls(path)
        wanted = TableIdentity(cluster=config.cluster, protocol=config.protocol, groups=list(config.groups))
        if not table._identity.exists():
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise UsageError(f"{path} holds something else than a merged table: give another folder with --out.")
            path.mkdir(parents=True, exist_ok=True)
            _write_durably(table._identity, wanted)
        found = table._read_identity()
        if found.version != TABLE_VERSION:
            raise UsageError(f"{path} is a table of version {found.version}; this program writes {TABLE_VERSION}.")
        if found != wanted:
            raise UsageError(f"{path} is the table of another cluster: give another folder with --out.")
        return table

    def _read_identity(self) -> TableIdentity:
        try:
            return msgspec.json.decode(self._identity.read_bytes(), type=TableIdentity)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UsageError(f"{self._identity} does not describe a merged table: {error}.") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else adds to this table meanwhile."""
        with self._identity.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(f"Another process is merging into {self.path}.") from None
            yield

    def newest(self) -> Increment | None:
        """The increment that was committed last."""
        numbers = [int(found[1]) for path in self.path.iterdir() if (found := _NAME.fullmatch(path.name))]
        if not numbers:
            return None
        description = self.folder(max(numbers)) / "_increment.json"
        try:
            return msgspec.json.decode(description.read_bytes(), type=Increment)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UsageError(f"{description} does not describe an increment: {error}.") from None

    def folder(self, number: int) -> Path:
        return self.path / f"increment={number:08}"

    def begin(self) -> Path:
        """Where the next increment is written to. What was left there is of a merge that did not end."""
        shutil.rmtree(self._unfinished, ignore_errors=True)
        return self._unfinished

    def commit(self, increment: Increment) -> None:
        """All of it is durable before it is there, and it is there at once."""
        _write_durably(self._unfinished / "_increment.json", increment)
        for file in self._unfinished.iterdir():
            sync_path(file)
        sync_path(self._unfinished)
        self._unfinished.rename(self.folder(increment.number))
        sync_path(self.path)


def _write_durably(path: Path, value: msgspec.Struct) -> None:
    temporary = path.with_name(f"_{path.name}.tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    sync_path(temporary)
    temporary.replace(path)
    sync_path(path.parent)
