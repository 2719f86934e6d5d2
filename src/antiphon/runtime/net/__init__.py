"""What travels between processes and clients: frames, the streams that carry them, who dials and who listens."""

from antiphon.runtime.net.dial import Address, dial, dial_blocking, parse_address
from antiphon.runtime.net.port import Port, Rejection, Session
from antiphon.runtime.net.stream import ReceivedFrame, Stream

__all__ = [
    "Address",
    "Port",
    "ReceivedFrame",
    "Rejection",
    "Session",
    "Stream",
    "dial",
    "dial_blocking",
    "parse_address",
]
