"""Time, CPU and memory between two moments."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benches.case import Failed

MIB = 1 << 20
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Clock:
    """Measures the messages alone, in one process: their rate, and the CPU of all threads (``cpu``) and of
    the calling thread (``loop``) in seconds per million messages, which is microseconds per message."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.start()

    def start(self) -> None:
        self.wall, self.cpu, self.loop = time.perf_counter(), time.process_time(), time.thread_time()

    def stop(self) -> dict[str, float]:
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        loop = time.thread_time() - self.loop
        return {
            "rate": self.count / wall,
            "cpu": cpu / self.count * 1e6,
            "loop": loop / self.count * 1e6,
            "rss": high_water() / MIB,
        }


def java_row(report: Mapping[str, Any]) -> dict[str, float]:
    """The report of a Java client on a load, in the form of `Clock`."""
    if report.get("failed", 0) > report["count"] / 1000:
        raise Failed(f"{report['failed']} of {report['count']} messages were refused: {report['why']}")
    row = {
        "rate": report["count"] / report["seconds"],
        "cpu": report["cpu"] / report["count"] * 1e6,
        "rss": report["rss"] / MIB,
    }
    if "p50" in report:
        row["p50"] = report["p50"] * 1e6
    return row


def high_water(pid: int | str = "self") -> int:
    """Largest resident set of a process so far, in bytes; ``ru_maxrss`` starts with the parent's."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def tree_cpu(root: int) -> dict[str, float]:
    """CPU seconds so far of ``root`` (``self``) and of all its descendants, by name. Those of children that
    ended are counted with their parents."""
    processes = _processes()
    totals = {"self": processes[root][2]}
    for pid, name in _below(root, processes).items():
        totals[name] = totals.get(name, 0.0) + processes[pid][2]
    return totals


def descendants(root: int) -> dict[int, str]:
    """The names of the processes below ``root``, by number."""
    return _below(root, _processes())


def _processes() -> dict[int, tuple[int, str, float]]:
    """Parent, name and CPU seconds of each process."""
    found: dict[int, tuple[int, str, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # A process may end between the listing and the reading.
        with contextlib.suppress(OSError):
            head, _, rest = stat.read_text().rpartition(")")
            number, _, name = head.partition(" (")
            fields = rest.split()
            found[int(number)] = int(fields[1]), name, sum(map(int, fields[11:15])) / _TICK
    return found


def _below(root: int, processes: dict[int, tuple[int, str, float]]) -> dict[int, str]:
    below: dict[int, str] = {}
    for pid, (_, name, _) in processes.items():
        above = pid
        while above != root and above in processes:
            above = processes[above][0]
        if above == root != pid:
            below[pid] = name
    return below


class PeakMemory:
    """The highest resident set of this process while entered, sampled, and the growth to it, in bytes."""

    def __init__(self, interval: float = 0.005) -> None:
        self.interval = interval
        self._over = threading.Event()

    @staticmethod
    def now(pid: int | str = "self") -> int:
        """The resident set of a process; 0 if it has ended."""
        try:
            return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
        except OSError:
            return 0

    def _watch(self) -> None:
        while not self._over.wait(self.interval):
            self.peak = max(self.peak, self.now())

    def __enter__(self) -> Self:
        self.before = self.peak = self.now()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self.peak = max(self.peak, self.now())

    @property
    def growth(self) -> int:
        return self.peak - self.before
