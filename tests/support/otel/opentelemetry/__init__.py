"""A stand-in for opentelemetry-api: the part of its interface that forebay uses, in memory.

It is in no environment of the tests, so that they show that forebay works without it.
"""
