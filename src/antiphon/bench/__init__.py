"""Measures a cluster of real processes from outside: a client process, the members, a reader process per group."""

from antiphon.bench.cluster import ClusterLoad, Measured, Percentiles, measure

__all__ = ["ClusterLoad", "Measured", "Percentiles", "measure"]
