"""Time limits of the clients of these tests."""

from __future__ import annotations

from support.limits import patient_clients

patient = patient_clients("CONNECT", "OPERATION", "SEND")
