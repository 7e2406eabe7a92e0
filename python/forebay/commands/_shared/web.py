"""The web service of a broker, asked over HTTP: Pulsar's, and that of the embedded broker."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import logging
import socket
import ssl
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from forebay._core import authorities, protocols
from forebay._core.secrets import supplied
from forebay.commands._shared.failed import Failed
from forebay.commands._shared.options import is_web
from forebay.errors import (
    AuthenticationError,
    AuthorizationError,
    ConnectFailed,
    Disconnected,
    Error,
    InvalidArgument,
    NotAllowed,
    ProtocolError,
    ServiceNotReady,
    Timeout,
    TlsError,
    TooManyRequests,
    UnknownError,
)

log = logging.getLogger("forebay.web")

ANSWER_LIMIT = 64 << 20
"""Bytes of the longest answer that is read."""
MAX_REDIRECTS = 20
"""More redirects than this are a loop."""
_PORTS = {"http": 8080, "https": 8443}
_PART = 64 << 10
_REDIRECTS = (301, 302, 307, 308)
_WORDS = 512
"""Characters of an answer that an error shows."""
_ERRORS: dict[int, type[Error]] = {
    400: InvalidArgument,
    401: AuthenticationError,
    403: AuthorizationError,
    404: InvalidArgument,
    405: NotAllowed,
    408: Timeout,
    409: NotAllowed,
    412: NotAllowed,
    422: InvalidArgument,
    429: TooManyRequests,
    503: ServiceNotReady,
    504: Timeout,
}


class Answer(NamedTuple):
    """An answer, whose status is 2xx if it is the result of :meth:`Web.ask`."""

    url: str
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        """The JSON in the body; ``None`` if that is empty.

        Raises:
            ProtocolError: it is something else.
        """
        try:
            return json.loads(self.body) if self.body else None
        except (ValueError, RecursionError):
            raise ProtocolError(
                f"the answer of {self.url} is not JSON: is this the web service of a broker?",
                broker_text=_words(self.body),
            ) from None


class Web:
    """A web service. Each request has a connection of its own, and has to be answered within
    ``operation_timeout``.

    Args:
        url: ``http://HOST:PORT``; of several hosts with commas between them, the first that can be reached
            answers.
        given: options of a Pulsar client.

    Raises:
        InvalidArgument: another URL, or a bad option.
    """

    def __init__(self, url: str, given: Mapping[str, Any]) -> None:
        if not is_web(url):
            raise InvalidArgument(
                f"the administration is asked over HTTP: -u http://HOST:8080, not {url!r}. The embedded"
                " broker answers HTTP with --http-port"
            )
        base, options, _ = protocols.for_connection(url, given, only="pulsar")
        self._scheme, _, rest = base.partition("://")
        hosts, _, path = rest.partition("/")
        if path.strip("/"):
            raise InvalidArgument(
                f"the URL of a web service has no path: {self._scheme}://{hosts}, not {base!r}"
            )
        self._hosts = [f"{self._scheme}://{host}" for host in hosts.split(",")]
        self._options = options
        self._context = tls_context(options) if self._scheme == "https" else None

    def ask(
        self,
        method: str,
        path: Sequence[str],
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        *,
        errors: Mapping[int, type[Error]] | None = None,
        topic: str | None = None,
    ) -> Answer:
        """Asks, and follows redirects to other brokers of the cluster.

        Args:
            method: of HTTP.
            path: the parts of the path, not encoded.
            body: sent as JSON, if it is not ``None``.
            query: names and values behind the path; those that are ``None`` are left out.
            errors: the classes of errors by status, where they are not the usual ones.
            topic: that the request is about, for errors.

        Raises:
            Error: no answer, or one that refuses; it has the URL, and the broker's words.
        """
        target = "/" + "/".join(urllib.parse.quote(part, safe="") for part in path)
        pairs = {name: _plain(value) for name, value in (query or {}).items() if value is not None}
        if pairs:
            target += "?" + urllib.parse.urlencode(pairs)
        content = None if body is None else json.dumps(body).encode()
        failure: Error | None = None
        for host in self._hosts:
            try:
                status, answer = self._followed(method, host + target, content)
            except ConnectFailed as error:
                failure = failure or error
                continue
            if 200 <= status < 300:
                return answer
            kind = {**_ERRORS, **(errors or {})}.get(status, UnknownError)
            if kind is InvalidArgument:
                # A refusal of the service is no wrong usage.
                kind = Failed
            words = _words(answer.body)
            raise kind(f"{method} {answer.url}: HTTP {status}", topic=topic, broker_text=words)
        raise failure or InvalidArgument("the URL names no host")

    def _followed(self, method: str, url: str, content: bytes | None) -> tuple[int, Answer]:
        for _ in range(MAX_REDIRECTS + 1):
            status, headers, body = self._once(method, url, content)
            if status not in _REDIRECTS:
                return status, Answer(url, headers, body)
            url = _redirected(url, headers.get("Location"))
        raise ProtocolError(f"{method} {url}: the request was redirected {MAX_REDIRECTS} times")

    def _once(
        self, method: str, url: str, content: bytes | None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and body of one answer, whatever the status."""
        headers = {"Accept": "application/json, */*;q=0.1", **self._credentials()}
        if content is not None:
            headers["Content-Type"] = "application/json"
        limit = float(self._options["operation_timeout"])
        late = Timeout(f"{method} {url}: no complete answer within {limit:g} seconds (operation_timeout)")
        started = time.monotonic()
        try:
            with self._connected(url, limit) as connection:
                split = urllib.parse.urlsplit(url)
                target = split.path + (f"?{split.query}" if split.query else "")
                connection.request(method, target, content, headers)
                answer = connection.getresponse()
                body = _read(answer)
        except http.client.HTTPException as error:
            if time.monotonic() - started >= limit:
                raise late from None
            raise ProtocolError(
                f"{method} {url}: the answer is not HTTP, or ends too early: {_name(error)}"
            ) from None
        except Error:
            # Some are errors of the system as well.
            raise
        except OSError as error:
            if isinstance(error, TimeoutError) or time.monotonic() - started >= limit:
                raise late from None
            if isinstance(error, ssl.SSLError):
                raise TlsError(f"{method} {url}: {_name(error)}") from None
            # Not ConnectFailed: the request may have been carried out, and no other host is asked.
            raise Disconnected(f"{method} {url}: the connection was lost: {_name(error)}") from None
        took = time.monotonic() - started
        if took >= limit:
            raise late
        if len(body) > ANSWER_LIMIT:
            raise ProtocolError(
                f"{method} {url}: the answer has more than {ANSWER_LIMIT >> 20} MiB and is not read"
            )
        log.debug("%s %s: %d, %d bytes, %.1f ms", method, url, answer.status, len(body), took * 1000)
        return answer.status, answer.headers, body

    @contextlib.contextmanager
    def _connected(self, url: str, limit: float) -> Generator[http.client.HTTPConnection, None, None]:
        """A connection that ends after ``limit`` seconds, however slowly the other side goes on."""
        split = urllib.parse.urlsplit(url)
        try:
            host, port = split.hostname or "", split.port or _PORTS[split.scheme]
        except (ValueError, KeyError):
            raise InvalidArgument(f"{url!r} is not a URL such as http://HOST:8080") from None
        wait = min(float(self._options["connect_timeout"]), limit)
        try:
            plain = socket.create_connection((host, port), wait)
        except (OSError, UnicodeError) as error:
            raise ConnectFailed(f"cannot connect to {host} port {port}, for {url}: {_name(error)}") from None
        plain.settimeout(limit)
        sock: list[socket.socket] = [plain]
        # The timeout of a socket is one for each byte.
        expired = threading.Timer(limit, _shut, (sock,))
        expired.daemon = True
        expired.start()
        try:
            if split.scheme == "https" and self._context:
                name = self._options.get("tls_server_name") or host
                secured = self._context.wrap_socket(
                    plain, server_hostname=name, do_handshake_on_connect=False
                )
                sock[0] = secured
                try:
                    secured.do_handshake()
                except ssl.SSLError as error:
                    raise TlsError(f"{url}: {_name(error)}") from None
                self._check_pin(url, secured)
            connection = http.client.HTTPConnection(host, port)
            connection.sock = sock[0]
            yield connection
        finally:
            expired.cancel()
            sock[0].close()

    def _check_pin(self, url: str, sock: ssl.SSLSocket) -> None:
        pins = [pin.replace(":", "").lower() for pin in self._options.get("tls_pin", ())]
        found = hashlib.sha256(sock.getpeercert(binary_form=True) or b"").hexdigest()
        if pins and found not in pins:
            raise TlsError(
                f"{url}: the server's certificate has the fingerprint {found}, which tls_pin does not list"
            )

    def _credentials(self) -> dict[str, str]:
        """The headers that say who asks. A function that supplies a secret is called for each request."""

        def secret(name: str) -> Any:
            value = self._options.get(name)
            return supplied(name, value) if callable(value) else value

        if token := secret("token"):
            return _ascii({"Authorization": f"Bearer {token}", "X-Pulsar-Auth-Method-Name": "token"})
        if name := self._options.get("username"):
            pair = base64.b64encode(f"{name}:{secret('password') or ''}".encode()).decode()
            method = str(self._options.get("basic_method", "basic"))
            return _ascii({"Authorization": f"Basic {pair}", "X-Pulsar-Auth-Method-Name": method})
        return {}


def _shut(sock: list[socket.socket]) -> None:
    with contextlib.suppress(OSError):
        sock[0].shutdown(socket.SHUT_RDWR)


def _read(answer: http.client.HTTPResponse) -> bytes:
    """The body, up to a byte more than the limit. A length that is only claimed has no memory."""
    parts: list[bytes] = []
    left = ANSWER_LIMIT + 1
    while left and (part := answer.read(min(left, _PART))):
        parts.append(part)
        left -= len(part)
    if left and answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    return b"".join(parts)


def _ascii(headers: dict[str, str]) -> dict[str, str]:
    for value in headers.values():
        if not (value.isascii() and value.isprintable()):
            raise InvalidArgument("the credentials have characters that a header of HTTP cannot hold")
    return headers


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _name(error: Exception) -> str:
    """The words of an error, or its name if it has none."""
    return str(error) or type(error).__name__


def _words(content: bytes) -> str:
    """The words of a refusal: the ``reason`` in its JSON, or its beginning."""
    text = content[: _WORDS * 4].decode(errors="replace")
    try:
        said = json.loads(content) if len(content) < 1 << 20 else None
    except (ValueError, RecursionError):
        said = None
    if isinstance(said, dict):
        text = str(said.get("reason") or text)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return "".join(one if one.isprintable() else " " for one in text[:_WORDS]).strip()


def _redirected(url: str, location: str | None) -> str:
    if not location:
        raise ProtocolError(f"{url}: a redirect does not say where it leads")
    to = urllib.parse.urljoin(url, location)
    if not is_web(to):
        raise ProtocolError(f"{url}: a redirect leads to {to!r}, which is not HTTP")
    if url.startswith("https:") and to.startswith("http:"):
        raise ProtocolError(
            f"{url}: a redirect leads from https to http, where others could read the credentials"
        )
    return to


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """TLS as a client's options ask for it. The caller compares the certificate with ``tls_pin``.

    Raises:
        InvalidArgument: certificates that cannot be read, or options that exclude each other.
    """
    try:
        context = authorities.context(options.get("tls_ca"))
    except ValueError as error:
        raise InvalidArgument(f"client option 'tls_ca': {error}") from None
    # Newer versions of Python are strict by default, and the engine is not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if options.get("tls_pin"):
        if options.get("tls_ca") or options.get("tls_skip_hostname_check"):
            raise InvalidArgument(
                "tls_pin excludes tls_ca and tls_skip_hostname_check: only the certificates with these"
                " fingerprints are accepted"
            )
        context.check_hostname = False
        # The fingerprint is checked after the handshake, before anything is sent.
        context.verify_mode = ssl.CERT_NONE
    elif options.get("tls_skip_hostname_check"):
        context.check_hostname = False
    if certificate := options.get("tls_cert"):
        _present(context, certificate, options.get("tls_key"))
    return context


def _present(context: ssl.SSLContext, certificate: bytes, key: bytes | None) -> None:
    """Loads a client certificate. The library takes it from a file only."""
    if not key:
        raise InvalidArgument("tls_cert needs tls_key, the private key of the certificate")
    with tempfile.TemporaryDirectory(prefix="forebay-") as folder:
        file = Path(folder, "client.pem")
        file.touch(mode=0o600)
        file.write_bytes(certificate + b"\n" + key)
        try:
            context.load_cert_chain(file)
        except ssl.SSLError as error:
            raise InvalidArgument(f"tls_cert and tls_key cannot be used together: {_name(error)}") from None
