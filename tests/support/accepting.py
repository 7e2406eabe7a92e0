"""A listening socket whose connections are taken on a thread."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable


class Acceptor:
    """Listens on a port of the loopback, and calls ``handle`` with each connection on one thread.

    With ``tls`` the handshake is left to ``handle``.
    """

    def __init__(self, handle: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> None:
        self._handle = handle
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        if tls:
            self._socket = tls.wrap_socket(self._socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._handle(connection)

    def close(self) -> None:
        """Stops listening. Connections stay open."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        # A thread that is about to accept has the number of the descriptor already. Were that
        # closed now, it would take the connections of the next socket that gets the number.
        self._thread.join(timeout=2)
        self._socket.close()
