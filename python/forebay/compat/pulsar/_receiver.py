"""Base of consumers and readers: receiving, by calls or by a listener, and seeking."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from forebay import errors
from forebay._core.native import MessageId as NativeId

from ._calls import Worker, log
from ._checks import check_type
from ._closing import Closing
from ._enums import Result
from ._ids import MessageId
from ._messages import Message, receive
from .exceptions import PulsarException, make, result_of_id, translated, waited
from .schema.schema import Schema

if TYPE_CHECKING:
    from forebay._engine import PulsarConsumer, PulsarMessage


def target(message: Any) -> Any:
    """The message or id of the engine for one of this module.

    Raises:
        TypeError: neither a message nor an id.
    """
    if not isinstance(message, Message | MessageId):
        raise TypeError(f"expected a Message or a MessageId, not {type(message).__name__}")
    return message._native  # pyright: ignore[reportPrivateUsage]


def is_position(native: Any) -> bool:
    """Whether an id is that of no message, such as the last id of an empty topic. Official clients send its
    acknowledgement, which the broker ignores."""
    return isinstance(native, NativeId) and native.entry < 0


def whole_entry(native: Any) -> Any:
    """The id that is acknowledged. An id without the size of its batch, as of ``get_last_message_id``, stands
    for the whole entry."""
    if not isinstance(native, NativeId) or native.batch_index < 0 or native.batch_size > 0:
        return native
    entry = NativeId.parse(f"({native.ledger},{native.entry},{native.partition},-1)")
    return NativeId.from_bytes(entry.to_bytes(), native.topic)


def failed(error: errors.Error) -> PulsarException:
    """The exception for a failed receive. That of a timeout has exactly the text that programs compare."""
    return make(Result.Timeout) if isinstance(error, errors.Timeout) else translated(error)


def seek_target(messageid: Any) -> Any:
    """The position of the engine for the argument of ``seek``.

    Raises:
        ValueError: neither an id nor milliseconds since 1970.
    """
    if isinstance(messageid, MessageId):
        return messageid._native  # pyright: ignore[reportPrivateUsage]
    if isinstance(messageid, int):
        return messageid
    raise ValueError(f"invalid seek_arg type {type(messageid)}")


class Receiver(Closing):
    """A consumer or a reader.

    Args:
        native: the consumer of the engine.
        schema: decodes the messages.
        inclusive: whether ``seek`` delivers the message of its id, too.
        forget: takes this object off the list of its client.
    """

    def __init__(
        self, native: PulsarConsumer, schema: Schema, inclusive: bool, forget: Callable[[Any], None]
    ) -> None:
        super().__init__(forget)
        self._native, self._schema = native, schema
        self._take = native.receive_blocking
        self._inclusive = inclusive
        # Messages that were taken from the engine and did not fit into a batch.
        self._held: collections.deque[PulsarMessage] = collections.deque()
        self._open = True
        self._listener: Worker | None = None
        self._running = threading.Event()
        self._running.set()

    def topic(self) -> str:
        """Full name of the topic; several are joined by commas."""
        return self._native.topic

    def _listen(self, listener: Callable[[Self, Message], Any], turn: threading.Lock) -> None:
        """Starts the thread of a listener, which is called while it has the lock ``turn``."""

        def run() -> None:
            while True:
                try:
                    native = self._take(None)
                except errors.Closed:
                    return
                except errors.EndOfTopic:
                    # A seek to earlier messages has it go on.
                    time.sleep(0.1)
                    if not self._open:
                        return
                    continue
                except errors.Error:
                    log.exception("the listener of %s ends", self._native.topic)
                    return
                self._running.wait()
                # The listener that has the turn may be closing this one, and wait for its thread.
                while not turn.acquire(timeout=0.05):
                    if not self._open:
                        return
                try:
                    if not self._open:
                        return
                    listener(self, self._made(native))
                except BaseException:
                    # Also one that asks to end the thread, which other messages need.
                    log.exception("the listener of %s failed", self._native.topic)
                finally:
                    turn.release()

        self._listener = Worker(run, self._end, self._end, f"listener of {self._native.topic}")

    def _end(self) -> None:
        self._open = False
        self._running.set()
        self._native.close()

    def _made(self, native: PulsarMessage) -> Message:
        """A message for the caller."""
        return receive(native, self._schema)

    def _next(self, timeout_millis: int | None) -> Message:
        if self._listener:
            raise make(Result.InvalidConfiguration, "the messages go to the listener")
        seconds = None
        if timeout_millis is not None:
            check_type(int, timeout_millis, "timeout_millis")
            seconds = max(timeout_millis, 0) / 1000
        if self._held:
            return self._made(self._held.popleft())
        try:
            return self._made(self._take(seconds))
        except KeyboardInterrupt:
            if seconds is not None:
                raise
            raise make(Result.Interrupted) from None
        except errors.Error as error:
            raise failed(error) from None

    def seek(self, messageid: MessageId | int) -> None:
        """Moves to a position.

        Args:
            messageid: an id, or milliseconds since 1970.

        Raises:
            ValueError: neither of them.
        """
        at = seek_target(messageid)
        try:
            waited(self._native.seek(at, self._inclusive))
        except errors.Error as error:
            raise make(result_of_id(error), str(error)) from None
        self._held.clear()

    def close(self) -> None:
        """Closes it. Calling it again does nothing."""
        self._start_close()
        self._finish_close()

    def _start_close(self) -> None:
        if self._open:
            try:
                self._shut()
                self._ending = self._native.close()
            except errors.Error as error:
                raise translated(error) from None

    def _shut(self) -> None:
        """Ends the thread of the listener when the client has closed the consumer, or will have soon."""
        self._open = False
        if self._listener:
            self._listener.stop()

    def is_connected(self) -> bool:
        """Whether it is open and the broker serves it now."""
        return self._open and self._native.connected
