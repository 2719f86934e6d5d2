"""The workshop behind ``forgeries``: honest runs, and one file of lies for each family of checks."""
