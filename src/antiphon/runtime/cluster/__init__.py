"""Clusters of real processes on this machine: their folder, and how they are created, started, asked and stopped."""

from antiphon.runtime.cluster.control import Answer, ask, tell
from antiphon.runtime.cluster.folder import ClusterConfig, ClusterFolder
from antiphon.runtime.cluster.processes import (
    Ending,
    alive,
    answers,
    create,
    end,
    is_stopped,
    kill,
    start,
    statuses,
    stop,
    untraced,
    wait_idle,
    without_majority,
)

__all__ = [
    "Answer",
    "ClusterConfig",
    "ClusterFolder",
    "Ending",
    "alive",
    "answers",
    "ask",
    "create",
    "end",
    "is_stopped",
    "kill",
    "start",
    "statuses",
    "stop",
    "tell",
    "untraced",
    "wait_idle",
    "without_majority",
]
