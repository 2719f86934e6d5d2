"""Measures a cluster of real processes from outside: a client process, the members, a reader process per group."""

from antiphon.bench.cluster import ClusterFigures, ClusterLoad, Percentiles, measure

__all__ = ["ClusterFigures", "ClusterLoad", "Percentiles", "measure"]
