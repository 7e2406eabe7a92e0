"""A ledger of messages that outlives the processes that write it.

Each column is a file that is only appended to. A record ends with ``.`` and a line feed: one that a kill cut
short lacks its ``.`` and does not count. An acknowledgement is counted once its record is on disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

#: Columns of senders; those of receivers are RECEIVED, CONFIRMED and AGAIN.
ATTEMPTED, ACKNOWLEDGED, FAILED = "attempted", "acknowledged", "failed"
#: Received; acknowledged and confirmed by the broker; received although it was confirmed.
RECEIVED, CONFIRMED, AGAIN = "received", "confirmed", "again"

LANES = 7
"""Number of keys of a flow with keys. Order is promised for each key."""


class Column:
    """One file of the ledger, to be appended to."""

    def __init__(self, folder: Path, name: str, column: str) -> None:
        self._file = os.open(folder / f"{name}.{column}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        # Ends what a kill left of the last record.
        os.write(self._file, b"\n")

    def add(self, records: Iterable[object], *, sync: bool = True) -> None:
        """Writes the records, and has them on disk with ``sync``."""
        data = "".join(f"{record}.\n" for record in records).encode()
        if data:
            written = os.write(self._file, data)
            assert written == len(data), "the disk of the ledger is full"
            if sync:
                os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


def records(folder: Path, name: str, column: str) -> list[str]:
    """The records of a column, in the order in which they were written."""
    try:
        text = (folder / f"{name}.{column}").read_text()
    except FileNotFoundError:
        return []
    return [line[:-1] for line in text.splitlines() if line.endswith(".")]


def numbers(folder: Path, flow: str, column: str) -> list[int]:
    return [int(record) for record in records(folder, flow, column)]


def size(folder: Path, name: str, column: str) -> int:
    """Bytes of a column: it grows with each record."""
    try:
        return (folder / f"{name}.{column}").stat().st_size
    except FileNotFoundError:
        return 0


def payload(flow: str, number: int) -> bytes:
    return b"%s:%d:%s" % (flow.encode(), number, b"." * (20 + number % 100))


def record_of(data: bytes) -> str:
    """The record of a received payload: flow and number."""
    flow, number, _ = data.split(b":", 2)
    return f"{flow.decode()}:{int(number)}"


def all_together(number: int) -> int:
    """One lane for all numbers."""
    return 0


def by_key(number: int) -> int:
    """The key of a number."""
    return number % LANES


@dataclass(frozen=True)
class Promise:
    """The promise to a receiver about a flow, besides the arrival of all that was acknowledged."""

    repeats: bool = False
    #: Lane of a number, in which first arrivals ascend.
    lane: Callable[[int], int] = all_together


@dataclass
class Line:
    """The account of one flow at one receiver."""

    flow: str
    receiver: str
    attempted: int
    acknowledged: int
    received: int
    lost: list[int]
    unexpected: list[int]
    repeated: list[int]
    disordered: list[int]
    promise: Promise

    @property
    def faults(self) -> list[str]:
        where = f"{self.flow} at {self.receiver}"
        found = [
            (self.lost, "acknowledged and lost"),
            (self.unexpected, "received and never sent"),
            ([] if self.promise.repeats else self.repeated, "repeated"),
            (self.disordered, "out of order"),
        ]
        return [f"{where}: {len(which)} {what}: {which[:10]}" for which, what in found if which]

    def __str__(self) -> str:
        return (
            f"{self.flow:16} {self.receiver:14} {self.attempted:9} {self.acknowledged:12} {self.received:8}"
            f" {len(self.lost):5} {len(self.repeated):8} {len(self.disordered):12}"
        )


HEADING = (
    f"{'flow':16} {'receiver':14} {'attempted':>9} {'acknowledged':>12} {'received':>8}"
    f" {'lost':>5} {'repeated':>8} {'out of order':>12}"
)


def account(folder: Path, flow: str, receiver: str, promise: Promise) -> Line:
    """Balances what was sent in a flow against what a receiver has recorded."""
    attempted = set(numbers(folder, flow, ATTEMPTED))
    acknowledged = set(numbers(folder, flow, ACKNOWLEDGED))
    received: list[int] = []
    repeated: list[int] = []
    disordered: list[int] = []
    seen: set[int] = set()
    highest: dict[int, int] = {}
    for record in records(folder, receiver, RECEIVED):
        name, number = record.split(":")
        if name != flow:
            continue
        number = int(number)
        received.append(number)
        if number in seen:
            repeated.append(number)
            continue
        seen.add(number)
        lane = promise.lane(number)
        if number < highest.get(lane, -1):
            disordered.append(number)
        else:
            highest[lane] = number
    return Line(
        flow,
        receiver,
        len(attempted),
        len(acknowledged),
        len(received),
        sorted(acknowledged - seen),
        sorted(seen - attempted),
        repeated,
        disordered,
        promise,
    )
