"""The names of what comes together in the end."""

BLOCKS, SESSIONS, TALLIES, HOLES, SUSPECTS, OWN = "blocks", "sessions", "tallies", "holes", "suspects", "own"
