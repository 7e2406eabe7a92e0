"""The log of ``forebay broker``: records of :mod:`logging` on stderr, as text or as JSON."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import display

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
BROKER = logging.getLogger("forebay.broker")
"""The logger of everything that the broker writes."""
FIELDS = "forebay"
"""The attribute of a record of the engine that has its fields."""
_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
"""Those of syslog, as systemd reads them (sd-daemon(3))."""


def set_up(form: str, level: str) -> None:
    """Writes the records of the broker to stderr, from ``level`` on."""
    handler = _Handler()
    handler.setFormatter(_Json() if form == "json" else _Text(of_journal=_is_journal()))
    # That it had to leave records out, the engine tells the logger above.
    top = logging.getLogger("forebay")
    top.handlers[:] = [handler]
    set_level(level)


def set_level(level: str) -> bool:
    """Writes records from ``level`` on; returns whether that is a change."""
    before = BROKER.level
    BROKER.setLevel(level.upper())
    return BROKER.level != before


def _is_journal() -> bool:
    """Whether stderr goes to systemd's journal, which has times and levels of its own."""
    with contextlib.suppress(OSError, ValueError):
        found = os.fstat(sys.stderr.fileno())
        return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
    return False


def _time(record: logging.LogRecord) -> str:
    when = datetime.fromtimestamp(record.created, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    """The text on one line."""
    text = record.getMessage()
    if record.exc_info:
        text += f": {logging.Formatter().formatException(record.exc_info)}"
    if text.isprintable():
        return text
    return display.escaped(text.replace("\\", "\\\\"))


class _Text(logging.Formatter):
    """``2026-11-26T07:30:12.123Z info    broker.connection: mqtt 127.0.0.1:5000 connected``; for the
    journal the level as its prefix, and no time."""

    def __init__(self, *, of_journal: bool) -> None:
        super().__init__()
        self._of_journal = of_journal

    def format(self, record: logging.LogRecord) -> str:
        said = f"{record.name.removeprefix('forebay.')}: {_message(record)}"
        if self._of_journal:
            return f"<{_PRIORITIES.get(record.levelno, 6)}>{said}"
        return f"{_time(record)} {record.levelname.lower():<7} {said}"


class _Json(logging.Formatter):
    """An object on a line: ``time``, ``level``, ``logger``, ``message``, and the fields of the record."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        fields: dict[str, str] = getattr(record, FIELDS, {})
        return display.as_json(fields | said)


class _Handler(logging.StreamHandler[Any]):
    """Writes to what stderr is at the time. The broker goes on if that is closed."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)
            return
        # The text stays in a buffer, and Python ends with status 120 if it cannot write that at its
        # end.
        with contextlib.suppress(OSError), Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stderr.fileno())
