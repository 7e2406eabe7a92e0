"""Tokens of an OAuth 2.0 server, by client credentials."""

from __future__ import annotations

import base64
import binascii
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from forebay._core import authorities, parse
from forebay._core.secrets import supplied
from forebay._core.types import Duration, Pem
from forebay.errors import AuthenticationError, InvalidArgument

__all__ = ["OAuth2"]

T = TypeVar("T")

_LARGEST = 1 << 20
"""Largest believable answer in bytes."""
_WELL_KNOWN = "/.well-known/openid-configuration"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Credentials go to the server that was named, and to no other."""

    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


class OAuth2:
    """Gets tokens from an OAuth 2.0 server by client credentials (RFC 6749, 4.4): ``token=OAuth2(...)``.

    The token is used until nine tenths of its lifetime are over, or until a broker refuses it or asks for
    another one; then the next connection, or that broker, gets a new one. If the server cannot be reached
    then, the old one is used until it expires.

    Args:
        issuer_url: URL of the server, ``https://`` only. Its token endpoint is looked up under
            ``/.well-known/openid-configuration``.
        client_id: who asks.
        client_secret: the secret: text, ``env:NAME``, ``file:PATH`` or a function that returns it.
        key_file: a JSON file with ``client_id``, ``client_secret`` and perhaps ``issuer_url``, instead of the
            other arguments: a path, ``file://PATH`` or ``data:application/json;base64,...``. It is read for
            each token.
        audience: the service that the token is for, if the server wants to know.
        scope: the scope to ask for.
        tls_ca: certificate authorities to trust instead of the platform's.
        timeout: time limit of each request in seconds.

    Raises:
        InvalidArgument: a URL that is not of ``https``, or arguments that are missing or exclude each other.
    """

    def __init__(
        self,
        issuer_url: str | None = None,
        *,
        client_id: str | None = None,
        client_secret: Any = None,
        key_file: str | None = None,
        audience: str | None = None,
        scope: str | None = None,
        tls_ca: Pem | None = None,
        timeout: Duration = 10.0,
    ) -> None:
        if (client_secret is None) == (key_file is None):
            raise InvalidArgument("OAuth2 needs a client_secret or a key_file, and not both")
        if client_secret is not None and not (client_id and issuer_url):
            raise InvalidArgument("OAuth2 needs issuer_url and client_id beside client_secret")
        self._secret = (
            None if client_secret is None else _parsed("client_secret", parse.secret, client_secret)
        )
        self._ca = None if tls_ca is None else _parsed("tls_ca", _authorities, tls_ca)
        self._timeout = _parsed("timeout", parse.duration, timeout)
        self._issuer, self._id, self._key_file = issuer_url, client_id, key_file
        if issuer_url is not None:
            _https(issuer_url, InvalidArgument)
        if key_file is not None:
            self._credentials()
        self._audience, self._scope = audience, scope
        self._lock = threading.Lock()
        self._token, self._renew_at, self._ends_at = "", 0.0, 0.0

    def __repr__(self) -> str:
        return f"OAuth2({self._issuer!r})"

    def __call__(self) -> str:
        """A token that is valid now.

        Raises:
            AuthenticationError: the server refused the credentials, answered something else, or could not be
                reached.
        """
        with self._lock:
            now = time.monotonic()
            if now < self._renew_at:
                return self._token
            try:
                token, lifetime = self._ask()
            except AuthenticationError:
                if now < self._ends_at:
                    return self._token
                raise
            self._token, self._ends_at = token, now + lifetime
            self._renew_at = now + lifetime * 0.9
            return token

    def refused(self, token: str) -> None:
        """Voids a token that a broker has refused, or wants replaced. Clients call it."""
        with self._lock:
            # Another connection may have got a new one since.
            if token == self._token:
                self._renew_at = 0.0

    def _credentials(self) -> tuple[str, str, str]:
        """Issuer, client id and secret."""
        if self._key_file is None:
            secret = supplied("client_secret", self._secret) if callable(self._secret) else self._secret
            return cast("tuple[str, str, str]", (self._issuer, self._id, secret))
        try:
            found = json.loads(_content(self._key_file))
        except (OSError, ValueError, binascii.Error) as error:
            raise InvalidArgument(f"the key file of OAuth2 cannot be read: {type(error).__name__}") from None
        given: dict[str, Any] = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        values = (
            self._issuer or given.get("issuer_url"),
            self._id or given.get("client_id"),
            given.get("client_secret"),
        )
        for name, value in zip(("issuer_url", "client_id", "client_secret"), values, strict=True):
            if not isinstance(value, str) or not value:
                raise InvalidArgument(f"the key file of OAuth2 has no {name}")
        issuer, client, secret = cast("tuple[str, str, str]", values)
        _https(issuer, InvalidArgument)
        return issuer, client, secret

    def _ask(self) -> tuple[str, float]:
        """A new token, and its lifetime in seconds."""
        try:
            issuer, client, secret = self._credentials()
        except InvalidArgument as error:
            raise AuthenticationError(error.message) from None
        found = self._json(issuer.rstrip("/") + _WELL_KNOWN, None)
        endpoint = found.get("token_endpoint")
        if not isinstance(endpoint, str):
            raise AuthenticationError(f"{issuer} names no token_endpoint")
        _https(endpoint, AuthenticationError)
        fields = {"grant_type": "client_credentials", "client_id": client, "client_secret": secret}
        more = {"audience": self._audience, "scope": self._scope}
        fields |= {name: value for name, value in more.items() if value}
        answer = self._json(endpoint, urllib.parse.urlencode(fields).encode())
        token, lifetime = answer.get("access_token"), answer.get("expires_in", 3600)
        if not isinstance(token, str) or not token:
            raise AuthenticationError(f"the answer of {endpoint} has no access_token")
        try:
            seconds = float(lifetime)
        except (TypeError, ValueError):
            seconds = 0.0
        # Also not a number.
        if not 0 < seconds < 1e9:
            raise AuthenticationError(
                f"{endpoint} gives a token that expires in {str(lifetime)[:40]!r} seconds"
            )
        return token, seconds

    def _json(self, url: str, body: bytes | None) -> dict[str, Any]:
        """The object that a request is answered with."""
        context = authorities.context(self._ca)
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirects())
        request = urllib.request.Request(url, body, {"Accept": "application/json"})  # noqa: S310 - https only
        try:
            with opener.open(request, timeout=self._timeout) as answer:
                content = answer.read(_LARGEST + 1)
        except urllib.error.HTTPError as error:
            with error:
                _refused(url, error.code, error.read(_LARGEST))
        except (OSError, ValueError) as error:
            why = error.reason if isinstance(error, urllib.error.URLError) else error
            raise AuthenticationError(f"{url} cannot be asked for a token: {why}") from None
        except Exception as error:
            raise AuthenticationError(f"{url} does not answer as HTTP: {type(error).__name__}") from None
        if len(content) > _LARGEST:
            raise AuthenticationError(f"the answer of {url} has more than {_LARGEST} bytes")
        found = _object(content)
        if found is None:
            raise AuthenticationError(f"the answer of {url} is not a JSON object")
        return found


def _parsed(name: str, parser: Callable[[Any], T], value: Any) -> T:
    try:
        return parser(value)
    except ValueError as error:
        raise InvalidArgument(f"OAuth2: {name}: {error}") from None


def _authorities(value: Any) -> bytes:
    """PEM of authorities that Python's ssl can read."""
    content = parse.pem(value)
    authorities.context(content)
    return content


def _https(url: str, kind: type[InvalidArgument | AuthenticationError]) -> None:
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        raise kind(f"{url!r} is not a URL") from None
    if parts.scheme != "https" or not parts.hostname:
        raise kind(f"OAuth2 uses https:// only, so that no other can read the secret, not {url!r}")


def _content(key_file: str) -> bytes:
    if key_file.startswith("data:"):
        head, comma, data = key_file.partition(",")
        if not comma or not head.endswith(";base64"):
            raise ValueError
        return base64.b64decode(data, validate=True)
    return Path(key_file.removeprefix("file:").removeprefix("//")).read_bytes()


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _refused(url: str, status: int, content: bytes) -> NoReturn:
    found = _object(content) or {}
    words = [str(found[name])[:200] for name in ("error", "error_description") if name in found]
    raise AuthenticationError(
        f"{url} refused to give a token with status {status}: {': '.join(words) or 'no reason'}"
    )
