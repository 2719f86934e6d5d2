"""What a synced block costs on this disk: in new pages of a file, in pages written before, and past the page cache.

    python benchmarks/disk.py [--dir .] [--blocks 300]

These are the facts behind runtime/disk/writer.py and the journal's files that are written again; and of the checksum.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import zlib
from collections.abc import Callable
from mmap import mmap
from pathlib import Path

from antiphon.core.checksum import crc32

SIZES = (4 << 10, 96 << 10, 400 << 10)


def write(path: Path, block: mmap, blocks: int, flags: int) -> tuple[float, float]:
    """Write and sync blocks one after the other; microseconds for each, on the clock and of the processor."""
    file = os.open(path, os.O_RDWR | flags)
    try:
        begun, cpu = time.perf_counter(), time.process_time()
        for number in range(blocks):
            os.pwrite(file, block, number * len(block))
            os.fdatasync(file)
        return (time.perf_counter() - begun) / blocks * 1e6, (time.process_time() - cpu) / blocks * 1e6
    finally:
        os.close(file)


def reserved(folder: Path, size: int) -> Path:
    path = folder / "file"
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(file, 0, size)
    os.fsync(file)
    os.close(file)
    return path


def speed(checksum: Callable[[bytes], int]) -> float:
    data = os.urandom(400_000)
    begun = time.process_time()
    for _ in range(500):
        checksum(data)
    return (time.process_time() - begun) / 500 / len(data) * 1e11


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=Path())
    parser.add_argument("--blocks", type=int, default=300)
    arguments = parser.parse_args()
    print(f"{'bytes':>8}  {'how':32} {'us':>8} {'CPU us':>8}")
    with tempfile.TemporaryDirectory(prefix="antiphon-disk-", dir=arguments.dir) as temporary:
        for size in SIZES:
            block = mmap(-1, size)
            block[:] = os.urandom(size)
            for how, flags in (("through the cache", 0), ("past the cache", os.O_DIRECT)):
                path = reserved(Path(temporary), size * arguments.blocks)
                for pages in ("new pages", "pages written before"):
                    clock, cpu = write(path, block, arguments.blocks, flags)
                    print(f"{size:8}  {f'{how}, {pages}':32} {clock:8.0f} {cpu:8.0f}", flush=True)
    print(f"CRC-32 of 100 bytes: {speed(crc32):.1f} ns, zlib's {speed(zlib.crc32):.1f} ns")


if __name__ == "__main__":
    main()
