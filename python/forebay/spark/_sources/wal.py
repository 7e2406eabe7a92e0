"""A log of messages on disk, for a source that cannot be read again: it keeps the messages that have been
acknowledged to the broker until Spark has committed them.

The log is a folder of segments, which are Arrow files that never change.
``00000000000000000120-00000000000000000200.arrow`` holds rows 120 to 199, counted from the first message ever
received. A segment gets its name once it is on disk. The writer holds a lock; readers need no lock. The file
``identity`` tells a log from another one that was begun later in the same folder.
"""
# pyarrow is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
import os
import re
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from forebay.errors import InvalidArgument, IoError

_NAME = re.compile(r"(\d{20})-(\d{20})\.arrow")


@dataclass(frozen=True)
class Segment:
    """A file with the rows from ``first`` up to, but not including, ``end``."""

    path: str
    first: int
    end: int
    size: int


@dataclass(frozen=True)
class Slice:
    """A range of rows of a segment."""

    path: str
    skip: int
    rows: int

    def batches(self) -> Iterator[Any]:
        """The rows as record batches."""
        import pyarrow as pa

        with pa.memory_map(self.path) as file:
            table = pa.ipc.open_file(file).read_all()
            yield from table.slice(self.skip, self.rows).to_batches()


class Log:
    """The log, opened by its only writer. Methods may be called from several threads."""

    def __init__(self, folder: str, *, patience: float = 30.0) -> None:
        """Takes the lock, and waits up to ``patience`` seconds for another writer to release it.

        Raises:
            InvalidArgument: another writer keeps the lock.
            IoError: the folder cannot be used, or rows are missing between its segments.
        """
        self.folder = folder
        self._folder = Path(folder)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_file = _locked(self._folder / "lock", patience)
            self.identity = _identity(self._folder)
        except OSError as error:
            raise IoError(f"the log {folder!r} cannot be used: {error}") from error
        for left in self._folder.glob("*.new"):
            left.unlink()
        self._mutex = threading.Lock()
        self._kept_from = 0
        self._segments = _segments(self._folder)
        self._size = sum(segment.size for segment in self._segments)

    @property
    def first(self) -> int:
        """The oldest row in the log."""
        with self._mutex:
            return self._segments[0].first if self._segments else 0

    @property
    def end(self) -> int:
        """The number of the next row."""
        with self._mutex:
            return self._segments[-1].end if self._segments else 0

    @property
    def size(self) -> int:
        """Bytes that are still needed. A trimmed last segment does not count: only its name is needed."""
        with self._mutex:
            return self._size

    def append(self, table: Any) -> None:
        """Adds a segment, which is on disk when this returns."""
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
            self._size += size

    def trim(self, row: int) -> None:
        """Deletes segments that end before ``row``, except the last, whose name holds the end of the log."""
        with self._mutex:
            self._kept_from = max(self._kept_from, row)
            gone = [segment for segment in self._segments[:-1] if segment.end <= row]
            self._segments = self._segments[len(gone) :]
            self._size = sum(segment.size for segment in self._segments if segment.end > self._kept_from)
        for segment in gone:
            Path(segment.path).unlink(missing_ok=True)

    def slices(self, start: int, end: int) -> list[Slice]:
        """The rows from ``start`` up to, but not including, ``end``.

        Raises:
            IoError: some of them are not in the log.
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

    def within(self, start: int, size: int) -> int:
        """The row up to which the rows from ``start`` on have about ``size`` bytes in the log, and at least
        the next one. Rows of a segment count as equally large."""
        with self._mutex:
            segments = [segment for segment in self._segments if segment.end > start]
        end, left = start, float(size)
        for segment in segments:
            low = max(start, segment.first)
            each = segment.size / (segment.end - segment.first)
            fit = min(segment.end - low, int(left / each))
            end, left = low + fit, left - fit * each
            if end < segment.end:
                break
        return max(end, start + 1) if segments else start

    def close(self) -> None:
        """Releases the lock."""
        self._lock_file.close()


def _locked(path: Path, patience: float) -> IO[bytes]:
    import fcntl

    file = path.open("wb")
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # A query that has just been stopped takes a moment to release it.
            if time.monotonic() > deadline:
                file.close()
                raise InvalidArgument(
                    f"another query has the log {str(path.parent)!r} open: give each query its own folder"
                ) from None
            time.sleep(0.05)
        else:
            return file


def _identity(folder: Path) -> str:
    """The name of the log, made when it is begun."""
    path = folder / "identity"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        identity = uuid.uuid4().hex
    new = path.with_suffix(".new")
    with new.open("w") as file:
        file.write(identity)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    _sync(folder)
    return identity


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
    """Divides the rows, in order, into at most ``parts`` lists of about equal size, and into fewer if a list
    would have less than ``smallest`` rows."""
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
