"""Certificates that are replaced while clients run, and a proxy before a plain server that asks for them."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from support.accepting import Acceptor
from support.certificates import Authority


class Files:
    """A folder with an authority, and the certificates of a server and a client."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.authority = folder, Authority()
        (folder / "ca.crt").write_bytes(self.authority.pem)
        self.write("server", ExtendedKeyUsageOID.SERVER_AUTH)
        self.serial = self.renew()

    def write(self, name: str, usage: x509.ObjectIdentifier) -> int:
        """Makes a certificate and its key; its serial number."""
        chain, key = self.authority.leaf(usage=usage)
        (self.folder / f"{name}.crt").write_bytes(chain)
        (self.folder / f"{name}.key").write_bytes(key)
        return x509.load_pem_x509_certificate(chain).serial_number

    def renew(self) -> int:
        """Replaces the client's certificate and key; the serial number."""
        return self.write("client", ExtendedKeyUsageOID.CLIENT_AUTH)

    def renew_half(self) -> None:
        """Replaces the client's key by one that does not belong to its certificate."""
        shutil.copy(self.folder / "server.key", self.folder / "client.key")

    @property
    def options(self) -> dict[str, Any]:
        """Options of a client with these files."""
        names = {"tls_ca": "ca.crt", "tls_cert": "client.crt", "tls_key": "client.key"}
        return {option: str(self.folder / name) for option, name in names.items()}


class TlsProxy:
    """Takes TLS with a client's certificate and passes on what comes to ``target``."""

    def __init__(self, files: Files, target: int) -> None:
        self._target = target
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(files.folder / "server.crt", files.folder / "server.key")
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_verify_locations(files.folder / "ca.crt")
        self._open: list[socket.socket] = []
        self.serials: list[int] = []
        """Serial numbers of the certificates of the clients, one for each connection."""
        self._acceptor = Acceptor(self._take)
        self.port = self._acceptor.port

    def _take(self, connection: socket.socket) -> None:
        threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            client = self._context.wrap_socket(connection, server_side=True)
            self.serials.append(int(str((client.getpeercert() or {})["serialNumber"]), 16))
            server = socket.create_connection(("127.0.0.1", self._target))
            self._open += [client, server]
            threading.Thread(target=self._pump, args=(server, client), daemon=True).start()
            self._pump(client, server)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        self._end(source, sink)

    @staticmethod
    def _end(*sockets: socket.socket) -> None:
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Ends all connections."""
        ended, self._open = self._open, []
        self._end(*ended)

    def close(self) -> None:
        self._acceptor.close()
        self.cut()


@contextlib.contextmanager
def tls_in_front_of(files: Files, target: int) -> Iterator[TlsProxy]:
    """A :class:`TlsProxy` in front of the port ``target``."""
    proxy = TlsProxy(files, target)
    try:
        yield proxy
    finally:
        proxy.close()
