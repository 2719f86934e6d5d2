"""Every schedule of a few members whose disks may forget: frames in every order, syncs and crashes at every point.

The search in search/ knows no disk. Here an input is taken, and later it is durable, or forgotten; what leaves before
that (core/host.py) is seen by others all the same. docs/exploration.md says what was searched.
"""

from antiphon.simulation.forgetting.search import search_forgetting
from antiphon.simulation.forgetting.values import ForgettingScope, SearchResult

__all__ = ["ForgettingScope", "SearchResult", "search_forgetting"]
