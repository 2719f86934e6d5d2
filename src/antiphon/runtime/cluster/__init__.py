"""Clusters of real processes on this machine: their folder, and how they are created, started, asked and stopped."""

from antiphon.runtime.cluster.config import ClusterConfig
from antiphon.runtime.cluster.control import Answered, ask, tell
from antiphon.runtime.cluster.creating import create
from antiphon.runtime.cluster.folder import ClusterFolder
from antiphon.runtime.cluster.health import answers, is_stopped, is_well, statuses, unreached, without_majority
from antiphon.runtime.cluster.processes import (
    ClusterEnding,
    alive,
    end,
    kill,
    salvage_trace,
    start,
    stop,
    untraced,
    wait_idle,
)
from antiphon.runtime.cluster.replacing import Succession, Whereabouts, replace_lost
from antiphon.runtime.cluster.spares import replace

__all__ = [
    "Answered",
    "ClusterConfig",
    "ClusterEnding",
    "ClusterFolder",
    "Succession",
    "Whereabouts",
    "alive",
    "answers",
    "ask",
    "create",
    "end",
    "is_stopped",
    "is_well",
    "kill",
    "replace",
    "replace_lost",
    "salvage_trace",
    "start",
    "statuses",
    "stop",
    "tell",
    "unreached",
    "untraced",
    "wait_idle",
    "without_majority",
]
