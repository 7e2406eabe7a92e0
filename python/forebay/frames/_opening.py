"""Optional libraries, and the connection of a call."""

from __future__ import annotations

import collections
import contextlib
import importlib
import os
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay import blocking
from forebay._core import parse, protocols
from forebay.errors import InvalidArgument

if TYPE_CHECKING:
    from forebay._core.types import Duration
    from forebay.broker import Broker


def library(name: str, extra: str) -> Any:
    """A library that is not there by itself.

    Raises:
        ImportError: it is not installed; names the extra to install.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f'forebay.frames needs {name} here: pip install "forebay[{extra}]"') from error


def seconds(name: str, value: Duration) -> float:
    """The duration that an argument stands for.

    Raises:
        InvalidArgument: it is not a duration; names the argument.
    """
    try:
        return parse.duration(value)
    except ValueError as error:
        raise InvalidArgument(f"{name}: {error}") from None


@contextlib.contextmanager
def connected(
    url: str | None, options: Mapping[str, Any], *, creates: bool = True
) -> Generator[Any, None, None]:
    """A blocking client. An ``embedded:`` URL is that of the broker which runs in this process on that
    folder, or in memory; on a folder without one, a broker is started.

    Args:
        url: of the broker.
        options: of the client.
        creates: whether a folder that is not there is created.

    Raises:
        InvalidArgument: no broker runs in memory, or several do; or there is no such folder.
    """
    base, _ = protocols.split_url(url)
    folder = protocols.embedded_data(base)
    connect: Any = blocking.connect
    with contextlib.ExitStack() as stack:
        if folder and not creates and not Path(folder).is_dir():
            raise InvalidArgument(f"there is no folder {folder!r}, so there is nothing in it to read")
        if folder is not None:
            address = stack.enter_context(_on_folder(folder)) if folder else _in_memory()
            url = (url or os.environ["FOREBAY_URL"]).replace(base, address, 1)
        yield stack.enter_context(connect(url, **options))


def _in_memory() -> str:
    """The URL of the broker that runs in the memory of this process."""
    from forebay.broker import running_with

    running = running_with("")
    if len(running) == 1:
        return running[0].url
    found = f"{len(running)} brokers run" if running else "no broker runs"
    raise InvalidArgument(
        f"{found} in the memory of this process: start a forebay.Broker and pass its url, or"
        ' "embedded:./data", which keeps what is written'
    )


class _Shared:
    """A broker that was started here, for all who read and write its folder meanwhile.

    An iteration that is left ends in a finaliser, which may run in a thread that is just in this module. So
    giving back waits for no lock, and brokers start and stop without one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users = 1
        self.broker: Broker | None = None
        """``None`` while it starts or stops."""
        self.changed = threading.Event()
        """Set when it has started, when that failed, and when it has stopped."""

    def start(self, folder: str) -> tuple[_Shared | None, str]:
        """Starts the broker, unless this process has another one on the folder; returns what `_take` does."""
        from forebay.broker import Broker, running_with

        try:
            if others := running_with(folder):
                return None, others[0].url
            self.broker = Broker(data=folder)
            return self, self.broker.url
        finally:
            self._changes()

    def stop(self, broker: Broker) -> None:
        try:
            broker.stop()
        finally:
            self._changes()

    def _changes(self) -> None:
        if self.broker is None:
            del _shared[self.path]
        self.changed.set()


_lock = threading.Lock()
_shared: dict[Path, _Shared] = {}
_left: collections.deque[_Shared] = collections.deque()
"""Given back, and not yet counted."""


@contextlib.contextmanager
def _on_folder(folder: str) -> Generator[str, None, None]:
    """The URL of the broker on a folder. One that was started here ends with the last of its users, which may
    be in several threads."""
    shared, url = _take(folder)
    try:
        yield url
    finally:
        if shared is not None:
            _left.append(shared)
            _settle()


def _take(folder: str) -> tuple[_Shared | None, str]:
    """The broker on a folder, which has to be given back if it was started here, and its URL."""
    path = Path(folder).resolve()
    while True:
        with _lock:
            known = _shared.get(path)
            shared = known or _shared.setdefault(path, _Shared(path))
            broker = shared.broker
            if broker is not None:
                shared.users += 1
        _settle()
        if broker is not None:
            return shared, broker.url
        if known is None:
            return shared.start(folder)
        shared.changed.wait()


def _settle() -> None:
    """Counts what was given back, and stops brokers without users. If the lock is held, its holder does this
    as soon as it has released it."""
    while _left and _lock.acquire(blocking=False):
        idle: list[tuple[_Shared, Broker]] = []
        try:
            while _left:
                shared = _left.popleft()
                shared.users -= 1
                if not shared.users and shared.broker is not None:
                    idle.append((shared, shared.broker))
                    shared.broker = None
                    shared.changed.clear()
        finally:
            _lock.release()
        for shared, broker in idle:
            shared.stop(broker)
