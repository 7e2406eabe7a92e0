"""Costs before the first message: import, size, and idle clients and brokers."""
