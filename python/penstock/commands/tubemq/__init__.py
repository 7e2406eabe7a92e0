"""The commands with a TubeMQ URL: the flags are those of Pulsar where both have the thing."""
