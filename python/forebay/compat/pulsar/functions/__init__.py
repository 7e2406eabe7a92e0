"""Interfaces of Pulsar Functions. The runtime of the functions implements them."""
