"""A guard against regressions, in a few minutes."""
