"""Honest runs with one lie planted in each: what every checker must find, and what none may complain about.

Most forgeries add a few messages of fresh senders (f1, f2, ...) to the end of an honest run, so that what they break
is known exactly; some change its middle. They need three groups of three members, as ``honest_run`` makes by default.
"""

from __future__ import annotations

from forging import (
    adoption,
    clients,
    delivery,
    gaps,
    genuineness,
    incomplete,
    kit,
    locality,
    odd,
    order,
    precedence,
    real_time,
    services,
    views,
)
from forging.honest import PROPERTIES, Tape, honest_run
from forging.kit import Forgery, Harmless

# Importing them fills the lists.
FAMILIES = (
    adoption,
    delivery,
    order,
    real_time,
    gaps,
    views,
    precedence,
    services,
    clients,
    genuineness,
    locality,
    incomplete,
    odd,
)

FORGERIES: tuple[Forgery, ...] = tuple(kit.FORGED)
HARMLESS: tuple[Harmless, ...] = tuple(kit.HARMLESS)

__all__ = ["FORGERIES", "HARMLESS", "PROPERTIES", "Forgery", "Harmless", "Tape", "honest_run"]
