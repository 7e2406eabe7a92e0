"""TubeMQ, beside the official Java client."""
