"""One real process: what drives a host with a clock, a disk, peers and clients.

Exit codes: 0 after a clean stop, 1 for a bug, 2 for bad usage, 3 when it must not run on what its disk holds,
4 when the disk failed it.
"""

from antiphon.runtime.node.node import ClusterNode
from antiphon.runtime.node.opening import CODE
from antiphon.runtime.node.serve import salvage_trace, serve

__all__ = ["CODE", "ClusterNode", "salvage_trace", "serve"]
