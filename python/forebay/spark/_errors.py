"""Errors on their way from a Spark task to the driver, and what they say there."""

from __future__ import annotations

import re

from forebay import errors
from forebay.errors import Error, InvalidArgument, SchemaError, Unsupported

_NOT_INSTALLED = re.compile(r"^ImportError: (forebay cannot be imported by .*)$", re.MULTILINE)
_RAISED = re.compile(r"^forebay\.errors\.(\w+): (.*)$", re.MULTILINE)
_NOTE = "; schema=None sends rows without asking whether the topic has a schema"
"""A hint of the engine to an argument that a write does not have."""


def of_task(error: Exception) -> Exception:
    """The package's error behind the failure of a Spark job. Spark hands over the text of the task's
    traceback only, so the class is found by its name there. Any other failure is returned as it is."""
    if missing := _NOT_INSTALLED.search(str(error)):
        return Unsupported(missing[1])
    # The last one is the error of the task; those before it are its causes.
    found = _RAISED.findall(str(error))
    name, text = found[-1] if found else ("", "")
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Error)):
        return error
    return kind(f"a Spark task failed: {text}")


def in_task(error: Error, partition: int, attempt: int, rows: int) -> Error:
    """The same error, with the task in its text.

    Args:
        error: the error.
        partition: number of the Spark partition.
        attempt: number of the task's attempt.
        rows: rows that had been acknowledged.
    """
    place = f"Spark partition {partition}, attempt {attempt}, after {rows} acknowledged rows"
    return type(error)(
        f"{_as_of_spark(error)} [{place}]",
        topic=error.topic,
        retriable=error.retriable,
        broker_text=error.broker_text,
    )


def _as_of_spark(error: Error) -> str:
    """The text of an error, without arguments that a write does not have."""
    if (
        isinstance(error, SchemaError)
        and "the topic has a schema, and the producer has none" in error.message
    ):
        return (
            'the topic has a schema, and the rows would be payloads without one: use encoding="avro", or '
            f"write to another topic;{error.message.rpartition(';')[2]}"
        )
    return error.message.removesuffix(_NOTE)


def other_number_of_tasks(given: int, found: str) -> InvalidArgument:
    """The error for a write whose rows are in another number of partitions than the user gave.

    Args:
        given: the number that the user gave.
        found: the number of tasks, or what is known of it.
    """
    return InvalidArgument(
        f"tasks={given}, and the number of tasks that write is {found}: repeat the write with the right "
        "number, which stores rows again that were written under the wrong one"
    )


def no_key(what: str) -> InvalidArgument:
    """The error for a key whose text depends on who writes it, Spark, Arrow or Python. Equal keys would get
    to different partitions.

    Args:
        what: what was found, for the error.
    """
    return InvalidArgument(
        f"{what}: keys are text, binary, whole numbers, booleans or dates. Make a column of text of it, with "
        "the form that the readers expect"
    )
