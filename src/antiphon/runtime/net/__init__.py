"""What travels between processes and clients: frames, the streams that carry them, who dials and who listens."""

from antiphon.runtime.net.dial import Address, dial, dial_blocking, parse_address, reason
from antiphon.runtime.net.port import Caller, Port, Rejection
from antiphon.runtime.net.stream import FrameStream, ReceivedFrame

__all__ = [
    "Address",
    "Caller",
    "FrameStream",
    "Port",
    "ReceivedFrame",
    "Rejection",
    "dial",
    "dial_blocking",
    "parse_address",
    "reason",
]
