"""Spark rows into a topic."""
