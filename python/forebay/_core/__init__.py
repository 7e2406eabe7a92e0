"""Modules that both faces and all protocols share. None of them knows a face.

This file has the lazy attributes of packages (PEP 562), because ``import forebay`` loads it and nothing else.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def attach(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its ``__name__``.
        homes: attribute -> submodule that defines it; ``""`` when the attribute is the submodule itself.
    """
    names = sys.modules[package].__dict__

    def get(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = importlib.import_module(f"{package}.{home or name}")
        if home:
            value = getattr(value, name)
        names[name] = value
        return value

    return get, lambda: sorted({*names, *homes})
