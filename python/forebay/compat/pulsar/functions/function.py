"""The interface of a function."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from .context import Context


class Function:
    """A function that is called for each message of its input topics."""

    @abstractmethod
    def process(self, input: Any, context: Context) -> Any:
        """Processes a message; what it returns goes to the output topic."""
