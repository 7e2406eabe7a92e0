"""Memory, descriptors, logs and tables of the processes of a campaign, and bounds on their growth."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

Sample = dict[str, int]

#: By how much a measure may exceed its greatest value in the first third of the samples: factor and
#: slack.
GROWTH: dict[str, tuple[float, int]] = {"RSS": (1.3, 48 << 20), "descriptors": (1.2, 40)}
#: The write-ahead log is emptied at 16 MiB and cut at 64. Messages are kept for two minutes at
#: most.
LIMITS: dict[str, int] = {"WAL": 96 << 20, "rows": 200_000}


def of_process(name: str, pid: int) -> Sample:
    """Memory and descriptors of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return {
        f"{name} RSS": pages * os.sysconf("SC_PAGE_SIZE"),
        f"{name} descriptors": len(os.listdir(f"/proc/{pid}/fd")),
    }


def of_store(data: Path) -> Sample:
    """Size of the write-ahead log, and rows of each table of an embedded broker."""
    database = data / "broker.db"
    wal = database.with_name("broker.db-wal")
    found = {"broker WAL": wal.stat().st_size if wal.exists() else 0}
    with closing(sqlite3.connect(database, timeout=10)) as connection:
        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for table in sorted(tables):
            found[f"{table} rows"] = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0]
    return found


def show(sample: Mapping[str, int]) -> str:
    return ", ".join(
        f"{name} {value / (1 << 20):.1f} MiB" if name.endswith(("RSS", "WAL")) else f"{name} {value}"
        for name, value in sample.items()
    )


def excess(samples: list[Sample]) -> list[str]:
    """Measures that have left their bounds."""
    early: list[Sample] = samples[: max(1, len(samples) // 3)]
    found: list[str] = []
    for name, value in samples[-1].items():
        kind = name.rsplit(" ", 1)[-1]
        if kind in GROWTH:
            factor, slack = GROWTH[kind]
            before = max(sample.get(name, 0) for sample in early)
            if value > before * factor + slack:
                found.append(f"{name} grew from {before} to {value}")
        elif (most := max(sample.get(name, 0) for sample in samples)) > LIMITS[kind]:
            found.append(f"{name} was {most}, more than {LIMITS[kind]}")
    return found
