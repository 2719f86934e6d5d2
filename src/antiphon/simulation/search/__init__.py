"""A search through all states of a small world, in place of random seeds: docs/exploration.md."""

from antiphon.simulation.search.replay import replay
from antiphon.simulation.search.search import explore
from antiphon.simulation.search.values import Exploration, Move, MoveKind, Scope

__all__ = ["Exploration", "Move", "MoveKind", "Scope", "explore", "replay"]
