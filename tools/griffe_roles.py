"""Extension of griffe for the reference: removes Sphinx roles from docstrings.

Docstrings refer to names as in ``:class:`forebay.Broker` ``, which editors understand; Markdown does not.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`~?([^`]+)`")


class Roles(griffe.Extension):
    """Rewrites the docstring of each object when it has been loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = ROLE.sub(r"`\1`", obj.docstring.value)
