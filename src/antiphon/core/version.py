"""The version of this program: only the same one may replay what a process journaled."""

__version__ = "0.2.0"
