"""Modules with the interface of other clients, for programs that were written for them."""
