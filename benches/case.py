"""One measurement in a process of its own.

    python -m benches.case PROTOCOL CASE ARGUMENTS

runs the function CASE of ``benches.PROTOCOL.cases`` with ARGUMENTS, a JSON list, and prints its result as a
line of JSON: usually messages/s, CPU seconds of this process per million messages, and peak RSS in MiB.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benches import ROOT

Report = dict[str, Any]


class Failed(Exception):
    """A case that ended without a figure."""


class TimedOut(Failed):
    """A case that had not ended in time."""


class Skipped(Failed):
    """A case that was not run, for a reason that is no failure."""


def command(protocol: str, case: str, *arguments: Any) -> list[str]:
    return [sys.executable, "-m", "benches.case", protocol, case, json.dumps(arguments)]


def run(
    protocol: str,
    case: str,
    *arguments: Any,
    timeout: float,
    environment: Mapping[str, str] | None = None,
) -> Report:
    """Runs the case in a process with ``environment``, or this one's, and returns what it printed."""
    words = command(protocol, case, *arguments)
    try:
        done = subprocess.run(
            words,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TimedOut(f"no end in {timeout:.0f} s") from None
    if done.returncode:
        raise Failed(done.stderr.strip().rpartition("\n")[2])
    return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def one_core(*servers: int) -> Iterator[None]:
    """The cases that are run inside, and these processes, share one core. A message and its answer then cross
    threads without waking another core. On a virtual machine that takes most of the time, and it varies; what
    is left is the work itself."""
    all_cores = os.sched_getaffinity(0)

    def keep_to(cores: set[int]) -> None:
        os.sched_setaffinity(0, cores)
        for pid in servers:
            for task in Path(f"/proc/{pid}/task").iterdir():
                # A thread may end between the listing and the call.
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(task.name), cores)

    try:
        keep_to({min(all_cores)})
        yield
    finally:
        keep_to(all_cores)


def main() -> None:
    protocol, case, arguments = sys.argv[1:]
    result = getattr(importlib.import_module(f"benches.{protocol}.cases"), case)(*json.loads(arguments))
    if asyncio.iscoroutine(result):
        result = asyncio.run(result)
    print(json.dumps(result), flush=True)
    # Open clients are no longer measured, and pulsar-client's asyncio client aborts the process at
    # exit.
    os._exit(0)


if __name__ == "__main__":
    main()
