"""The one checksum of all logs: CRC-32, computed several times faster than zlib does."""

from isal.isal_zlib import crc32

__all__ = ["crc32"]
