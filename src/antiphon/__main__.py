"""`python -m antiphon`: the command line."""

from antiphon.cli import main

main()
