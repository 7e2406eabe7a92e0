"""The loggers of the official module: accepted and not used, because the engine writes no log of its own."""

from __future__ import annotations

from ._checks import check_type
from ._enums import LoggerLevel


class ConsoleLogger:
    """A logger that writes to the standard output.

    Args:
        log_level: lowest level that is written.
    """

    def __init__(self, log_level: LoggerLevel = LoggerLevel.Info) -> None:
        check_type(LoggerLevel, log_level, "log_level")
        self.log_level = log_level


class FileLogger:
    """A logger that writes into a file.

    Args:
        log_level: lowest level that is written.
        log_file: path of the file.
    """

    def __init__(self, log_level: LoggerLevel, log_file: str) -> None:
        check_type(LoggerLevel, log_level, "log_level")
        check_type(str, log_file, "log_file")
        self.log_level, self.log_file = log_level, log_file
