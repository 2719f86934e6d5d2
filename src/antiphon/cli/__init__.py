"""The command line: every command a thin layer over a room of the library.

This file loads nothing: an interrupt while the commands are loaded ends the program like one at any later moment.
"""

from __future__ import annotations

from typing import NoReturn

from antiphon.cli.interrupt import loading


def main() -> NoReturn:
    """Load the commands and run the one that was asked for."""
    with loading():
        from antiphon.cli.app import run
    run()
