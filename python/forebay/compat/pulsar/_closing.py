"""The end of a producer, a consumer or a reader, for which the client waits when it has begun all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from forebay import errors

from .exceptions import translated, waited

if TYPE_CHECKING:
    from forebay._core.types import Pending


class Closing:
    """A handle that is closed in two steps.

    Args:
        forget: called with the handle when it is closed.
    """

    def __init__(self, forget: Callable[[Any], object]) -> None:
        self._forget = forget
        self._ending: Pending[None] | None = None
        """The close that has begun."""

    def _finish_close(self) -> None:
        ending, self._ending = self._ending, None
        if ending is None:
            return
        try:
            waited(ending)
        except errors.Error as error:
            raise translated(error) from None
        finally:
            self._forget(self)
            self._ended()

    def _ended(self) -> None:
        """Called when it is closed."""
