"""A real cluster under load and under faults of all kinds, for minutes or hours, and what it makes of its promises."""

from antiphon.soak.campaign import Soak
from antiphon.soak.stage import create
from antiphon.soak.values import Finding, Outcome, Settings

__all__ = ["Finding", "Outcome", "Settings", "Soak", "create"]
