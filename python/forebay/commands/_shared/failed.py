"""The exit status of an error: a mistake in how a command was called, or a failure of its work."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from forebay.errors import Error, InvalidArgument

WRONG_USAGE = 2
"""Exit status of a mistake in arguments, options or a configuration, as of argparse."""
FAILURE = 1
"""Exit status of any other error."""


class Failed(InvalidArgument):
    """Well-formed arguments that name something unfit, such as a file with other content than it should have.
    It is no wrong usage."""


@contextlib.contextmanager
def refusals() -> Generator[None, None, None]:
    """Makes failures of what the engine refuses: the arguments are checked, and the state of what they name
    does not fit."""
    try:
        yield
    except Failed:
        raise
    except InvalidArgument as error:
        raise Failed(error.message, topic=error.topic, broker_text=error.broker_text) from None


def status(error: Error) -> int:
    """The exit status of a command that ended with this error."""
    is_usage = isinstance(error, InvalidArgument) and not isinstance(error, Failed)
    return WRONG_USAGE if is_usage and error.broker_text is None else FAILURE
