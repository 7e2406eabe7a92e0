"""A log of messages on disk, for a source that cannot be asked again: what a broker was told to have been
received is here until Spark has committed it.

A folder with segments, Arrow files that never change. ``00000000000000000120-00000000000000000200.arrow`` has
rows 120 to 199 of all that ever came; a segment appears under its name when it is on disk. Who appends holds
the lock; who reads needs none.
"""
# pyarrow is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from penstock.errors import InvalidArgument, IoError

_NAME = re.compile(r"(\d{20})-(\d{20})\.arrow")


@dataclass(frozen=True)
class Segment:
    """A file with rows ``first`` to ``end`` - 1."""

    path: str
    first: int
    end: int
    size: int


@dataclass(frozen=True)
class Slice:
    """Some rows of a segment."""

    path: str
    skip: int
    rows: int

    def batches(self) -> Iterator[Any]:
        """Its record batches."""
        import pyarrow as pa

        with pa.memory_map(self.path) as file:
            table = pa.ipc.open_file(file).read_all()
            yield from table.slice(self.skip, self.rows).to_batches()


class Log:
    """The log as its only writer has it. Methods may be called from several threads."""

    def __init__(self, folder: str, *, patience: float = 30.0) -> None:
        """Takes the lock, and waits ``patience`` seconds for who still has it.

        Raises:
            InvalidArgument: somebody else keeps the lock.
            IoError: the folder cannot be used, or its segments do not fit together.
        """
        self._folder = Path(folder)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_file = _locked(self._folder / "lock", patience)
        except OSError as error:
            raise IoError(f"the log {folder!r} cannot be used: {error}") from error
        for left in self._folder.glob("*.new"):
            left.unlink()
        self._mutex = threading.Lock()
        self._kept_from = 0
        self._segments = _segments(self._folder)

    @property
    def first(self) -> int:
        """The oldest row that is here."""
        with self._mutex:
            return self._segments[0].first if self._segments else 0

    @property
    def end(self) -> int:
        """The row that comes next."""
        with self._mutex:
            return self._segments[-1].end if self._segments else 0

    @property
    def size(self) -> int:
        """Bytes that are still needed; a last segment that was trimmed is there for its name only."""
        with self._mutex:
            return sum(segment.size for segment in self._segments if segment.end > self._kept_from)

    def append(self, table: Any) -> None:
        """Adds a segment; it is on disk when this returns."""
        import pyarrow as pa

        first = self.end
        end = first + table.num_rows
        path = self._folder / f"{first:020d}-{end:020d}.arrow"
        new = path.with_suffix(".new")
        with new.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        new.rename(path)
        _sync(self._folder)
        with self._mutex:
            self._segments.append(Segment(str(path), first, end, size))

    def trim(self, row: int) -> None:
        """Forgets segments that are wholly before ``row``, but never the last: it says where the log is."""
        with self._mutex:
            self._kept_from = max(self._kept_from, row)
            gone = [segment for segment in self._segments[:-1] if segment.end <= row]
            self._segments = self._segments[len(gone) :]
        for segment in gone:
            Path(segment.path).unlink(missing_ok=True)

    def slices(self, start: int, end: int) -> list[Slice]:
        """Rows ``start`` to ``end`` - 1.

        Raises:
            IoError: some of them are not here.
        """
        with self._mutex:
            segments = list(self._segments)
        here = (segments[0].first, segments[-1].end) if segments else (0, 0)
        if start < end and not here[0] <= start <= end <= here[1]:
            raise IoError(
                f"rows {start} to {end - 1} are asked for, but the log in {str(self._folder)!r} has rows "
                f"{here[0]} to {here[1] - 1}: it is not the one that this checkpoint was made with"
            )
        found: list[Slice] = []
        for segment in segments:
            low, high = max(start, segment.first), min(end, segment.end)
            if low < high:
                found.append(Slice(segment.path, low - segment.first, high - low))
        return found

    def close(self) -> None:
        """Lets go of the lock."""
        self._lock_file.close()


def _locked(path: Path, patience: float) -> IO[bytes]:
    import fcntl

    file = path.open("wb")
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # A query that was just stopped takes a moment.
            if time.monotonic() > deadline:
                file.close()
                raise InvalidArgument(
                    f"another query has the log {str(path.parent)!r}: each needs its own"
                ) from None
            time.sleep(0.05)
        else:
            return file


def _segments(folder: Path) -> list[Segment]:
    found = [
        Segment(str(path), int(match[1]), int(match[2]), path.stat().st_size)
        for path in sorted(folder.iterdir())
        if (match := _NAME.fullmatch(path.name))
    ]
    for before, after in itertools.pairwise(found):
        if before.end != after.first:
            raise IoError(f"the log {str(folder)!r} has no rows {before.end} to {after.first - 1}")
    return found


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def spread(slices: list[Slice], parts: int, smallest: int) -> list[list[Slice]]:
    """At most ``parts`` lists of about as many rows each, in order; fewer lists rather than ones of less than
    ``smallest`` rows."""
    total = sum(piece.rows for piece in slices)
    share = max(smallest, -(-total // parts))
    groups: list[list[Slice]] = []
    room = 0
    for piece in slices:
        while piece.rows:
            if not room:
                groups.append([])
                room = share
            taken = min(room, piece.rows)
            groups[-1].append(Slice(piece.path, piece.skip, taken))
            piece = Slice(piece.path, piece.skip + taken, piece.rows - taken)
            room -= taken
    return groups
