"""A simulated disk under a process: it knows which inputs are durable, and forgets the others in a crash."""

from __future__ import annotations

import random

from antiphon.core.effects import AnyEffect
from antiphon.core.inputs import AnyInput, decode_input, encode_input
from antiphon.core.process import Process


class Disk:
    """The journal of one process, and its newest snapshot."""

    def __init__(self, snapshot_every: int) -> None:
        self.snapshot_every = snapshot_every
        self.snapshot: bytes | None = None
        self.records: list[bytes] = []  # since the snapshot
        self.durable = 0  # of the records
        self.syncing = 0  # how many records the sync under way will have made durable; 0: no sync

    def append(self, happened: AnyInput) -> None:
        self.records.append(encode_input(happened))

    def sync_done(self) -> int:
        """One sync serves every input that waited when it began. Returns how many became durable with it."""
        newly = self.syncing - self.durable
        self.durable, self.syncing = self.syncing, 0
        return newly

    def maybe_snapshot(self, process: Process) -> None:
        """Replace the records by a snapshot; only when the process is exactly what is durable."""
        if self.snapshot_every and self.durable >= self.snapshot_every and self.durable == len(self.records):
            self.snapshot = process.snapshot()
            self.records.clear()
            self.durable = self.syncing = 0

    def crash(self, rng: random.Random) -> None:
        """Keep what is durable and, by chance, some of what was being written."""
        kept = self.durable + rng.randint(0, len(self.records) - self.durable)
        del self.records[kept:]
        self.durable, self.syncing = kept, 0

    def recover(self, process: Process) -> list[AnyEffect]:
        """Bring a fresh process to where the disk is; all effects come again."""
        if self.snapshot is not None:
            process.restore(self.snapshot)
        return [effect for record in self.records for effect in process.step(decode_input(record))]
