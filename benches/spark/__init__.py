"""Spark rows into a topic and out of it."""
