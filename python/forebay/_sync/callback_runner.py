"""The threads of the blocking face that run callbacks of the program."""

from __future__ import annotations

import threading

__all__ = ["CallbackThread"]


class CallbackThread(threading.Thread):
    """A thread that calls back. What it calls must not wait for the callback to end."""
