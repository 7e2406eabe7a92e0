"""Optional libraries, and the connection of a call."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import blocking, parse, protocols
from penstock.errors import InvalidArgument

if TYPE_CHECKING:
    from penstock._typing import Duration
    from penstock.broker import Broker


def library(name: str, extra: str) -> Any:
    """A library that is not there by itself.

    Raises:
        ImportError: it is not installed; names the extra to install.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f'penstock.frames needs {name} here: pip install "penstock[{extra}]"') from error


def seconds(name: str, value: Duration) -> float:
    """The duration that an argument stands for.

    Raises:
        InvalidArgument: it is none; names the argument.
    """
    try:
        return parse.duration(value)
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}") from None


@contextlib.contextmanager
def connected(url: str | None, options: Mapping[str, Any]) -> Generator[Any, None, None]:
    """A blocking client. An ``embedded:`` URL is that of the broker which runs in this process on that
    folder, or in memory; on a folder without one, a broker is started.

    Raises:
        InvalidArgument: no broker runs in memory, or several do.
    """
    base, _ = protocols.split_url(url)
    folder = protocols.embedded_data(base)
    connect: Any = blocking.connect
    with contextlib.ExitStack() as stack:
        if folder is not None:
            address = stack.enter_context(_on_folder(folder)) if folder else _in_memory()
            url = (url or os.environ["PENSTOCK_URL"]).replace(base, address, 1)
        yield stack.enter_context(connect(url, **options))


def _in_memory() -> str:
    """The URL of the broker that runs in the memory of this process."""
    from penstock.broker import running_with

    running = running_with("")
    if len(running) == 1:
        return running[0].url
    found = f"{len(running)} brokers run" if running else "no broker runs"
    raise InvalidArgument(
        f"{found} in the memory of this process: start a penstock.Broker and pass its url, or"
        ' "embedded:./data", which keeps what is written'
    )


_starting = threading.Lock()
_started: dict[Path, tuple[Broker, int]] = {}
"""The brokers that were started here, and the number of their users."""


@contextlib.contextmanager
def _on_folder(folder: str) -> Generator[str, None, None]:
    """The URL of the broker on a folder. One that was started here ends with the last of its users, which may
    be in several threads."""
    from penstock.broker import Broker, running_with

    path = Path(folder).resolve()
    with _starting:
        if path not in _started and (others := running_with(folder)):
            url = others[0].url
            broker = None
        else:
            broker, users = _started.get(path) or (Broker(data=folder), 0)
            _started[path] = broker, users + 1
            url = broker.url
    try:
        yield url
    finally:
        if broker is not None:
            with _starting:
                _, users = _started.pop(path)
                if users > 1:
                    _started[path] = broker, users - 1
                else:
                    broker.stop()
