"""The commands for Pulsar URLs, with flags in the style of kcat."""
