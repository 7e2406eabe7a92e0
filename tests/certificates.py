"""Certificates, good and bad, and a TLS server that shows them and counts what a client says to it."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
HERE = (x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost"))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


class Authority:
    """A certificate authority, or with ``parent`` one below it."""

    def __init__(
        self,
        name: str = "test authority",
        parent: Authority | None = None,
        *,
        ca: bool = True,
        begins: datetime = NOW - DAY,
        ends: datetime = NOW + 30 * DAY,
        constraints: x509.NameConstraints | None = None,
    ) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name(name)
        builder = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(parent.name if parent else self.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if constraints:
            builder = builder.add_extension(constraints, critical=True)
        self.certificate = builder.sign(parent.key if parent else self.key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def leaf(
        self,
        names: tuple[x509.GeneralName, ...] = HERE,
        *,
        begins: datetime = NOW - DAY,
        ends: datetime = NOW + 30 * DAY,
        usage: Any = ExtendedKeyUsageOID.SERVER_AUTH,
        digest: Any = None,
    ) -> tuple[bytes, bytes]:
        """Certificate and key, both PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name("127.0.0.1"))
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self.key, digest or hashes.SHA256())
        return (
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )


class Listener:
    """Shakes hands with whoever comes and keeps what he says."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.said = b""
        self.handshakes = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            connection.settimeout(5)
            with contextlib.suppress(OSError), self._context.wrap_socket(connection, server_side=True) as tls:
                self.handshakes += 1
                while data := tls.recv(4096):
                    self.said += data

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextlib.contextmanager
def listening(chain: bytes, key: bytes, prepare: Any = None) -> Iterator[Listener]:
    """A TLS server with this certificate chain and key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        chain_file, key_file = Path(folder) / "chain.pem", Path(folder) / "key.pem"
        chain_file.write_bytes(chain)
        key_file.write_bytes(key)
        context.load_cert_chain(chain_file, key_file)
    if prepare:
        prepare(context)
    listener = Listener(context)
    try:
        yield listener
    finally:
        listener.close()
