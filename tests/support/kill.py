"""``forebay broker --data`` killed again and again while clients of some protocol are at work."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from support.service import BrokerProcess

KILLS = 20


def seeded() -> random.Random:
    """Randomness whose seed is printed."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


@contextlib.contextmanager
def brokers_on(data: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Provides ``start(*options)``, which runs a broker on that folder, and ends what was started."""
    started: list[BrokerProcess] = []

    def start(*options: str) -> BrokerProcess:
        process = BrokerProcess(data, *options)
        process.start()
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            if process.is_running:
                process.end()


def kill_under_load(process: BrokerProcess, chance: random.Random, progress: Callable[[int], None]) -> None:
    """Kills and restarts the broker after each of many random amounts of ``progress(messages)``."""
    for _ in range(KILLS):
        progress(chance.randrange(1, 300))
        process.end()
        process.start()
    progress(200)


class Reconnecting(threading.Thread):
    """A client that connects again as often as its connection breaks, until it is told to stop."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.port = port
        self.stopping = threading.Event()
        self.connections = 0
        #: What ended the thread before its time.
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                try:
                    self.session()
                except Exception as error:
                    if not self.is_cut(error):
                        raise
                    self.stopping.wait(0.005)
        except BaseException as error:
            self.error = error
            raise

    def session(self) -> None:
        """Connects and works until the connection ends or the thread is told to stop."""
        raise NotImplementedError

    def is_cut(self, error: Exception) -> bool:
        """Whether the error is what a killed broker looks like to the client."""
        return isinstance(error, OSError | TimeoutError)
