"""The commands for TubeMQ URLs, with Pulsar's flags wherever both protocols have the feature."""
