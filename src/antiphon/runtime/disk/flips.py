"""Whether one flipped bit explains a wrong checksum.

CRC-32 is linear: flipping one bit of the data changes the checksum by a value that depends only on the bit's place in
its byte and on how many bytes follow. So the change is taken back byte by byte, as if the data ended earlier and
earlier, until it is the change that a flip in the last byte makes.
"""

from __future__ import annotations

from antiphon.core.checksum import crc32

_ZERO = crc32(b"\0")
_CHANGES = [crc32(bytes([byte])) ^ _ZERO for byte in range(256)]  # made by the last byte, if it differs so
_FLIPS = {_CHANGES[1 << bit] for bit in range(8)}
_BY_TOP = {change >> 24: (byte, change) for byte, change in enumerate(_CHANGES)}  # the top bytes are all different


def one_flip_explains(change: int, length: int) -> bool:
    """Whether some flip of one bit in ``length`` bytes changes their checksum so."""
    for _ in range(length):
        if change in _FLIPS:
            return True
        byte, made = _BY_TOP[change >> 24]
        change = ((change ^ made) << 8) | byte
    return False
