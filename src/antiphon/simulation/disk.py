"""A simulated disk under a process: it knows which inputs are durable, and forgets the others in a crash.

An input is a value that never changes, so that its bytes are made when somebody reads them: most are never read.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from antiphon.core.inputs import AnyInput, encode_input


class Disk:
    """The journal of one process, and its newest snapshot."""

    def __init__(self, snapshot_every: int) -> None:
        self.snapshot_every = snapshot_every
        self.snapshot: bytes | None = None
        self.first = 0  # the index of the first record kept
        self.inputs: list[AnyInput] = []
        self.durable = 0  # records below this index are
        self.syncing: int | None = None  # what the sync under way will have made durable

    @property
    def next_index(self) -> int:
        return self.first + len(self.inputs)

    def append(self, happened: AnyInput) -> int:
        self.inputs.append(happened)
        return 0  # snapshots are taken by the number of inputs here

    def begin_sync(self) -> None:
        """One sync serves every input that waited when it began."""
        self.syncing = self.next_index

    def sync_done(self) -> int:
        assert self.syncing is not None
        self.durable, self.syncing = self.syncing, None
        return self.durable

    @property
    def wants_snapshot(self) -> bool:
        return bool(self.snapshot_every) and self.next_index - self.first >= self.snapshot_every

    def keep_snapshot(self, state: bytes) -> None:
        """Let go of all records: the state stands for them."""
        assert self.durable == self.next_index, "a snapshot stands for what is durable"
        self.snapshot = state
        self.first = self.next_index
        self.inputs.clear()

    def crash(self, rng: random.Random) -> None:
        """Keep what is durable and, by chance, some of what was being written."""
        kept = self.durable - self.first + rng.randint(0, self.next_index - self.durable)
        del self.inputs[kept:]
        self.durable, self.syncing = self.next_index, None

    def replay(self) -> Iterator[tuple[int, bytes]]:
        return ((self.first + offset, bytes(encode_input(each))) for offset, each in enumerate(self.inputs))
