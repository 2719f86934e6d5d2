"""Grids of simulations: protocols, parameters and seeds, run on Spark into one dataset of traces and figures."""

from antiphon.sweep.spec import Sweep, parse_spec

__all__ = ["Sweep", "parse_spec"]
