"""Certificates, good and bad, and a TLS server that presents them and records what a client sends to it."""

from __future__ import annotations

import contextlib
import ipaddress
import shutil
import socket
import ssl
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from support.accepting import Acceptor

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
HERE = (x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost"))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


class Authority:
    """A certificate authority; with ``parent`` an intermediate one."""

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
        common: str = "127.0.0.1",
    ) -> tuple[bytes, bytes]:
        """Issues a certificate and returns it with its key, both PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(common))
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


class Certificates:
    """A folder with the files of a TLS listener and its clients."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="forebay-tls-"))
        authority = Authority()
        self.ca = self._write("ca.crt", authority.pem)
        for name, usage in (
            ("server", ExtendedKeyUsageOID.SERVER_AUTH),
            ("client", ExtendedKeyUsageOID.CLIENT_AUTH),
        ):
            chain, key = authority.leaf(usage=usage)
            self._write(f"{name}.crt", chain)
            self._write(f"{name}.key", key)

    def _write(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        path.chmod(0o600)
        return path

    def __getattr__(self, name: str) -> Path:
        """``server_crt`` is the path of server.crt."""
        path = self.folder / name.replace("_", ".")
        if not path.exists():
            raise AttributeError(name)
        return path

    def context(self, *, client_certificate: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if client_certificate:
            context.load_cert_chain(self.client_crt, self.client_key)
        return context

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Listener:
    """Shakes hands with every client and keeps the bytes that it sends."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.said = b""
        self.handshakes = 0
        self._acceptor = Acceptor(self._serve)
        self.port = self._acceptor.port

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(60)
        with contextlib.suppress(OSError), self._context.wrap_socket(connection, server_side=True) as tls:
            self.handshakes += 1
            while data := tls.recv(4096):
                self.said += data

    def close(self) -> None:
        self._acceptor.close()


@contextlib.contextmanager
def listening(chain: bytes, key: bytes, prepare: Any = None) -> Iterator[Listener]:
    """Runs a TLS server with this certificate chain and key."""
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
