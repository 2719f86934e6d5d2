"""The one checksum of logs, datagrams and channels: CRC-32, computed several times faster than zlib does."""

from isal.isal_zlib import crc32

__all__ = ["crc32"]
