"""Credentials."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forebay.errors import InvalidArgument
from forebay.pulsar._oauth2 import OAuth2

from ._checks import check_type


class Authentication:
    """Credentials of a named method.

    Args:
        dynamicLibPath: name of the method or of its Java class: ``"token"``, ``"tls"``, ``"basic"``,
            ``"oauth2"``, ``"athenz"``. Shared libraries are not loaded.
        authParamsString: its parameters, as of the official clients.
    """

    method: str
    """Name of the method."""
    token: Callable[[], str] | None = None
    """The function that gives the token, for the methods ``"token"`` and ``"oauth2"``."""

    def __init__(self, dynamicLibPath: str, authParamsString: str) -> None:  # noqa: N803 - the official names
        check_type(str, dynamicLibPath, "dynamicLibPath")
        check_type(str, authParamsString, "authParamsString")
        self.method = _METHODS.get(dynamicLibPath.rpartition(".")[2].lower(), dynamicLibPath)
        if self.method == "token":
            self.token = _token(authParamsString)
        elif self.method == "oauth2":
            self.token = _oauth2(self, authParamsString)
        elif self.method == "basic":
            self._options = _basic(**_parameters(authParamsString))
        elif self.method == "tls":
            found = _parameters(authParamsString)
            self._options = _tls(found.get("tlsCertFile"), found.get("tlsKeyFile"))

    _options: dict[str, Any] | None = None

    _trusted: str | None = None

    def options(self, trusted: str | None = None) -> dict[str, Any]:
        """The options of the engine for these credentials.

        Args:
            trusted: path of the certificate authorities of the client, which OAuth 2.0 uses, too.
        """
        self._trusted = trusted
        if self.token is not None:
            return {"token": self.token}
        return dict(self._options or {})

    @property
    def auth(self) -> Authentication:
        """The credentials themselves."""
        return self

    def getAuthMethodName(self) -> str:  # noqa: N802 - the official name
        """Name of the method."""
        return self.method


_METHODS = {
    f"{prefix}{name}": name
    for name in ("token", "tls", "basic", "oauth2", "athenz")
    for prefix in ("", "authentication")
}


def _token(parameters: str) -> Callable[[], str]:
    """The token of ``"token:TEXT"``, ``"file:///PATH"``, ``'{"token": "TEXT"}'`` or the text itself."""
    if parameters.startswith("file:"):
        path = Path(parameters.removeprefix("file:").removeprefix("//"))
        return lambda: path.read_text().strip()
    if parameters.startswith("{"):
        found: dict[str, Any] = json.loads(parameters)
        parameters = str(found.get("token", ""))
    text = parameters.removeprefix("token:")
    return lambda: text


def _parameters(text: str) -> dict[str, Any]:
    """The parameters of JSON, or of ``"name:value,name:value"``."""
    if text.lstrip().startswith("{"):
        return json.loads(text)
    pairs = (part.partition(":") for part in text.split(",") if part)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _basic(username: Any = None, password: Any = None, method: Any = "basic", **_: Any) -> dict[str, Any]:
    check_type(str, username, "username")
    check_type(str, password, "password")
    check_type(str, method, "method")
    # Functions, so that a text such as "env:X" stands for itself.
    return {"username": username, "password": lambda: password, "basic_method": method}


def _tls(certificate: Any, key: Any) -> dict[str, Any]:
    check_type(str, certificate, "certificate_path")
    check_type(str, key, "private_key_path")
    return {"tls_cert": certificate, "tls_key": key}


def _oauth2(owner: Authentication, parameters: str) -> Callable[[], str]:
    """A function that gives the tokens. The parameters are checked when it is called, as there."""
    check_type(str, parameters, "auth_params_string")
    found: dict[str, Any] = json.loads(parameters)
    made: list[OAuth2] = []

    def token() -> str:
        if not made:
            texts = {
                to: str(found[name])
                for name, to in (
                    ("issuer_url", "issuer_url"),
                    ("client_id", "client_id"),
                    ("private_key", "key_file"),
                    ("audience", "audience"),
                    ("scope", "scope"),
                )
                if found.get(name)
            }
            secret = None if "key_file" in texts else found.get("client_secret")
            if owner._trusted:  # pyright: ignore[reportPrivateUsage]
                texts["tls_ca"] = owner._trusted  # pyright: ignore[reportPrivateUsage]
            made.append(OAuth2(**texts, client_secret=(lambda: str(secret)) if secret else None))
        return made[0]()

    def refused(text: str) -> None:
        for one in made:
            one.refused(text)

    token.refused = refused  # type: ignore[attr-defined]  # The engine calls it.
    if found.get("type", "client_credentials") != "client_credentials":
        raise InvalidArgument(f"OAuth 2.0 by {found['type']!r} is not supported: use client_credentials")
    return token


class AuthenticationTLS(Authentication):
    """Authentication by a client certificate.

    Args:
        certificate_path: path of the certificate.
        private_key_path: path of its private key.
    """

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        check_type(str, certificate_path, "certificate_path")
        check_type(str, private_key_path, "private_key_path")
        self.method = "tls"
        self.certificate_path, self.private_key_path = certificate_path, private_key_path
        self._options = _tls(certificate_path, private_key_path)


class AuthenticationToken(Authentication):
    """Authentication by a token.

    Args:
        token: the text, or a function that returns it whenever it is needed.
    """

    def __init__(self, token: str | Callable[[], str]) -> None:
        self.method = "token"
        if isinstance(token, str):
            self.token = lambda: token
        elif callable(token):
            self.token = token
        else:
            raise ValueError("Argument token is expected to be of type 'str' or a function returning 'str'")


class AuthenticationAthenz(Authentication):
    """Authentication by Athenz.

    Args:
        auth_params_string: its parameters as JSON.
    """

    def __init__(self, auth_params_string: str) -> None:
        check_type(str, auth_params_string, "auth_params_string")
        self.method, self.parameters = "athenz", auth_params_string


class AuthenticationOauth2(Authentication):
    """Authentication by OAuth 2.0.

    Args:
        auth_params_string: its parameters as JSON.
    """

    def __init__(self, auth_params_string: str) -> None:
        check_type(str, auth_params_string, "auth_params_string")
        self.method, self.parameters = "oauth2", auth_params_string
        self.token = _oauth2(self, auth_params_string)


class AuthenticationBasic(Authentication):
    """Authentication by name and password.

    Args:
        username: the name.
        password: the password.
        method: name of the method that is sent to the broker.
        auth_params_string: all of them as JSON; the others are ignored then.
    """

    def __init__(
        self,
        username: str | None = None,
        password: str | None = None,
        method: str = "basic",
        auth_params_string: str | None = None,
    ) -> None:
        self.method = "basic"
        if auth_params_string is not None:
            check_type(str, auth_params_string, "auth_params_string")
            found: dict[str, Any] = json.loads(auth_params_string)
            username, password = found.get("username"), found.get("password")
            method = found.get("method", "basic")
        self._options = _basic(username, password, method)
        self.username, self.password, self.method_name = username, password, method
