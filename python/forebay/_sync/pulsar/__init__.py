"""The blocking client of Pulsar, generated."""
