"""Our client has time to connect, and servers have time to answer it."""

from __future__ import annotations

from support.limits import patient_clients

__all__ = ["patient_clients"]
