"""The origin of a result: date, commit and machine."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import forebay
from forebay import _engine

MEASURED = Path(forebay.__file__).parents[2]
"""The checkout whose package and engine are measured."""


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(MEASURED), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _line(file: str, pattern: str) -> str:
    found = re.search(pattern, Path(file).read_text(), re.MULTILINE) if Path(file).exists() else None
    return found[1].strip() if found else "unknown"


def origin() -> dict[str, Any]:
    """Facts of the result that is about to be measured. ``modified`` tells that the sources of package and
    engine differ from the commit."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": _git("rev-parse", "--short", "HEAD") or forebay.__version__,
        # Figures of engines that were optimised differently do not compare.
        "opt_level": _engine.OPT_LEVEL,
        "modified": bool(_git("status", "--porcelain", "--", "src", "python", "Cargo.toml", "Cargo.lock")),
        "machine": {
            "cpu": _line("/proc/cpuinfo", r"^model name\s*:(.*)"),
            "cores": os.cpu_count() or 1,
            "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30,
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
    }
