"""Files with messages: ``sub --parquet`` and ``pub --frame``."""

# pyarrow is typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingImports=false

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import re
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from forebay import frames
from forebay.errors import Error, InvalidArgument, IoError, Unsupported
from forebay.progress import Progress

from .failed import Failed

_INDEX = re.compile(r"__index_level_[0-9]+__")


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Unsupported("files with messages need pyarrow: pip install 'forebay[frames]'") from None


def _refuse(given: argparse.Namespace, by: str, **flags: str) -> None:
    """Refuses flags that would have no effect."""
    for name, flag in flags.items():
        if getattr(given, name, None) not in (None, False, []):
            raise InvalidArgument(f"{by} and {flag} exclude each other")


# ---- sub --parquet


def save(given: argparse.Namespace, start: Any, options: dict[str, Any]) -> int:
    """Writes what the topics have now into a file, which is there in whole or not at all.

    Args:
        given: the parsed arguments.
        start: where to begin, as for :func:`forebay.frames.scan`.
        options: of the client and the reader.
    """
    _refuse(given, "--parquet", format="-F", verbose="-v", no_newline="-N", timeout="-W")
    parquet = _library("pyarrow.parquet")
    topics: Any = given.topic
    target = Path(given.parquet)
    # Beside the target: a file cannot be moved to another file system at once.
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    scan = frames.scan(given.url, topics, start=start, decode=given.decode, **options)
    rows = 0
    try:
        with (
            scan,
            _failing(target),
            parquet.ParquetWriter(part, scan.schema) as writer,
            Progress("reading", given.count, quiet=given.json) as progress,
        ):
            for batch in scan:
                wanted: Any = batch if given.count is None else batch.slice(0, given.count - rows)
                writer.write_batch(wanted)
                count = int(wanted.num_rows)  # pyright: ignore[reportUnknownArgumentType]
                rows += count
                progress.advance(count)
                if rows == given.count:
                    break
        with _failing(target):
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.replace(target)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    if given.json:
        print(json.dumps({"file": str(target), "messages": rows}))
    else:
        print(f"{rows:,} messages in {target}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _failing(path: Path) -> Generator[None, None, None]:
    """Errors of the file, with its name."""
    try:
        yield
    except Error:
        # Some are errors of the system as well.
        raise
    except OSError as error:
        raise IoError(f"cannot write {path}: {error.strerror or error}", retriable=False) from None


# ---- pub --frame


def send(given: argparse.Namespace, topic: str, options: dict[str, Any], roles: Sequence[str]) -> int:
    """Sends each row of a file as a message.

    A column ``value`` has the payloads, and those of the names of other parts of a message have these, as in
    the files of ``sub --parquet``. Without it each row is sent as an object of JSON.

    Args:
        given: the parsed arguments.
        topic: where to.
        options: of the client and the producer.
        roles: the other parts of a message that the protocol has.
    """
    if "key" in roles:
        _refuse(given, "--frame", key="-k", key_separator="-K")
    _refuse(given, "--frame", property="-p", message_type="-T", event_time="-E")
    if given.repeat != 1:
        raise InvalidArgument("--frame publishes each row once: leave out the flag that repeats")
    schema, batches = _without_index(*_opened(Path(given.frame)))
    names: list[str] = schema.names
    arguments: dict[str, Any] = {}
    if "value" in names:
        arguments["value"] = "value"
        arguments |= {role: role for role in roles if role in names}
    else:
        arguments["encoding"] = "json"
    if getattr(given, "key_column", None) is not None:
        if given.key_column not in names:
            raise InvalidArgument(
                f"{given.frame} has no column {given.key_column!r}; it has {', '.join(names)}"
            )
        arguments["key"] = given.key_column
    reader = _library("pyarrow").RecordBatchReader.from_batches(schema, _named(given.frame, batches))
    quiet = given.quiet or given.json
    report = frames.write(reader, given.url, topic, progress=not quiet, **arguments, **options)
    if given.json:
        print(json.dumps({"topic": topic, "messages": report.rows}))
    elif not given.quiet:
        print(f"{report.rows:,} messages", file=sys.stderr)
    return 0


def _named(path: str, batches: Iterator[Any]) -> Iterator[Any]:
    """The batches of a file. Errors of the file have its name."""
    try:
        yield from batches
    except (OSError, _library("pyarrow").ArrowException) as error:
        raise Failed(f"cannot read {path}: {error}") from None


def _without_index(schema: Any, batches: Iterator[Any]) -> tuple[Any, Iterator[Any]]:
    """Leaves out the columns that pandas stores for an index without a name."""
    if b"pandas" not in (schema.metadata or {}):
        return schema, batches
    kept = [at for at, name in enumerate(schema.names) if not _INDEX.fullmatch(name)]
    narrowed = _library("pyarrow").schema([schema.field(at) for at in kept])
    return narrowed, (batch.select(kept) for batch in batches)


def _opened(path: Path) -> tuple[Any, Iterator[Any]]:
    """The schema and the batches of a file, which is not read into memory in whole."""
    pa = _library("pyarrow")
    try:
        if path.suffix in (".parquet", ".pq"):
            file = _library("pyarrow.parquet").ParquetFile(path)
            return file.schema_arrow, file.iter_batches()
        if path.suffix in (".arrow", ".feather", ".ipc"):
            reader = _library("pyarrow.ipc").open_file(path)
            return reader.schema, (reader.get_batch(at) for at in range(reader.num_record_batches))
        if path.suffix == ".csv":
            read = _library("pyarrow.csv").open_csv(path)
            return read.schema, iter(read)
    except (OSError, pa.ArrowException) as error:
        raise Failed(f"cannot read {path}: {error}") from None
    raise InvalidArgument(
        f"{path} is no file that --frame reads: these end in .parquet, .arrow, .feather or .csv"
    )
