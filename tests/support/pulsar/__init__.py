"""Pulsar: servers, frames written by hand, a load that knows what was acknowledged."""
