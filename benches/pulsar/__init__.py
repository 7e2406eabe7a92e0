"""Pulsar, beside the official client pulsar-client."""
