"""Support for the Python tests and benchmarks: servers, wire formats written by hand, loads and checks.

What all protocols share is in this folder; `pulsar`, `mqtt` and `tubemq` hold what belongs to one.
"""
