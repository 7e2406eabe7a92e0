"""Costs that grow with what a client or the embedded broker holds."""
