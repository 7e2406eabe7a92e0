"""The version of the package, which Cargo.toml states and the installation records."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("forebay")
except PackageNotFoundError:
    # The folder alone was copied, without what an installation writes beside it.
    __version__ = "unknown"
