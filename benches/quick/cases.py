"""Cases of the guard: the floors, and the start of an interpreter."""

from __future__ import annotations

import subprocess
import sys
import time

from benches.floor import bare_asyncio, bare_sqlite
from benches.mqtt.load import Report

__all__ = ["bare_asyncio", "bare_sqlite"]


def importing(module: str, times: int) -> Report:
    """Interpreters per second that start, import ``module`` and end."""
    words = [sys.executable, "-c", f"import {module}"]
    # The first one writes the compiled files.
    subprocess.run(words, check=True)
    began = time.perf_counter()
    for _ in range(times):
        subprocess.run(words, check=True)
    return {"rate": times / (time.perf_counter() - began)}
