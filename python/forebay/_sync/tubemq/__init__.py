"""The blocking client of TubeMQ, generated."""
