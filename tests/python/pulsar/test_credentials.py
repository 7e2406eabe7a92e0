"""Credentials of Pulsar clients: what they say to a broker, and certificates that are replaced or pinned."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import http.server
import json
import shutil
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

import forebay
import forebay.compat.pulsar as compat
import pulsar as official
from forebay import errors
from forebay.pulsar import OAuth2

from support.certificates import Authority
from support.pulsar import wire
from support.pulsar.wire import FakeBroker
from support.waiting import until

CA = Authority()
Said = tuple[str, bytes]
AUTH_METHOD, AUTH_DATA = 5, 3


class Listening(FakeBroker):
    """A broker that keeps the credentials of each connection, and its certificate with TLS."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.said: list[Said] = []
        self.certificates: list[dict[str, Any]] = []
        self.lookups: list[dict[int, list[Any]]] = []
        self.refuses: set[bytes] = set()
        self.challenges = 0
        self.answered: list[bytes] = []
        super().__init__({wire.CONNECT: self._connect}, context)
        found = self.answers[wire.LOOKUP]

        def lookup(peer: wire.Peer, fields: dict[int, list[Any]], rest: bytes) -> None:
            self.lookups.append(fields)
            found(peer, fields, rest)

        self.answers[wire.LOOKUP] = lookup
        self.answers[wire.AUTH_RESPONSE] = self._answered

    def _connect(self, peer: wire.Peer, fields: dict[int, list[Any]], rest: bytes) -> None:
        if isinstance(peer.socket, ssl.SSLSocket):
            self.certificates.append(dict(peer.socket.getpeercert() or {}))
        self.said.append((fields[AUTH_METHOD][0].decode(), fields.get(AUTH_DATA, [b""])[0]))
        if self.said[-1][1] in self.refuses:
            peer.send(wire.frame(wire.ERROR, {1: wire.Huge, 2: 3, 3: "refused"}))
            return
        peer.send(wire.frame(wire.CONNECTED, {1: "fake", 2: 19, 3: 5 << 20}))
        for _ in range(self.challenges):
            challenge = wire.message({1: "token", 2: b""})
            peer.send(wire.frame(wire.AUTH_CHALLENGE, {1: "fake", 2: challenge, 3: 19}))

    def _answered(self, peer: wire.Peer, fields: dict[int, list[Any]], rest: bytes) -> None:
        self.answered.append(wire.parse(fields[2][0])[2][0])


@pytest.fixture
def broker() -> Iterator[Listening]:
    made = Listening()
    yield made
    made.close()


# ------------------------------------------------------------------------------------------- basic


async def test_basic_authentication_says_name_and_password(broker: Listening) -> None:
    async with forebay.connect(broker.url, username="ann", password="s:cret"):
        assert broker.said == [("basic", b"ann:s:cret")]


async def test_the_basic_method_may_have_another_name(broker: Listening) -> None:
    options: dict[str, Any] = {"username": "ann", "password": lambda: "late", "basic_method": "house"}
    async with forebay.connect(broker.url, **options):
        assert broker.said == [("house", b"ann:late")]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"username": "ann"}, "set together"),
        ({"password": "x"}, "set together"),
        ({"basic_method": "x"}, "set together"),
        ({"username": "a:b", "password": "x"}, "colon"),
        ({"username": "ann", "password": "x", "token": "y"}, "exclude each other"),
    ],
)
async def test_credentials_that_cannot_be_are_refused(
    broker: Listening, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(errors.InvalidArgument, match=why):
        await forebay.connect(broker.url, **options)
    assert broker.said == []


@pytest.mark.parametrize(
    "make",
    [
        lambda module: module.AuthenticationBasic("ann", "env:s:cret"),
        lambda module: module.AuthenticationBasic("ann", "secret", "house"),
        lambda module: module.AuthenticationBasic(
            auth_params_string='{"username": "ann", "password": "secret", "method": "house"}'
        ),
        lambda module: module.Authentication("basic", '{"username": "ann", "password": "secret"}'),
        lambda module: module.AuthenticationToken(lambda: "token"),
    ],
)
def test_the_drop_in_says_what_the_official_client_says(make: Callable[[Any], Any]) -> None:
    said: list[list[Said]] = []
    for module in (official, compat):
        with contextlib.closing(Listening()) as broker:
            client = module.Client(broker.url, authentication=make(module), operation_timeout_seconds=10)
            client.get_topic_partitions("t")
            client.close()
            said.append(broker.said[:1])
    assert said[0] == said[1]
    assert said[0]


# ------------------------------------------------------------------------------- functions, asyncio


async def test_a_coroutine_function_supplies_the_token(broker: Listening) -> None:
    loops: list[Any] = []

    async def token() -> str:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())
        return "fresh"

    async with forebay.connect(broker.url, token=token):
        assert broker.said == [("token", b"fresh")]
        assert loops == [asyncio.get_running_loop()]


async def test_a_coroutine_function_that_raises_or_hangs_is_an_error(broker: Listening) -> None:
    async def bad() -> str:
        raise errors.AuthenticationError("the vault is sealed")

    async def hangs() -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(errors.AuthenticationError, match="the vault is sealed"):
        await forebay.connect(broker.url, token=bad)
    with pytest.raises(errors.Error, match=r"has not (ended|returned) within"):
        await forebay.connect(broker.url, token=hangs, connect_timeout=0.2)
    assert broker.said == []


def test_a_coroutine_function_needs_asyncio(broker: Listening) -> None:
    async def token() -> str:
        return "x"

    with pytest.raises(errors.AuthenticationError, match="use the asyncio client"):
        forebay.blocking.connect(broker.url, token=token)


def test_the_text_of_other_exceptions_stays_secret(broker: Listening) -> None:
    def token() -> str:
        raise ValueError("hunter2")

    with pytest.raises(errors.AuthenticationError, match="ValueError") as caught:
        forebay.blocking.connect(broker.url, token=token)
    assert "hunter2" not in str(caught.value)


# ------------------------------------------------------------------------------------ certificates


class Files:
    """A folder with the certificates of a broker and of clients."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.authority = folder, Authority()
        (folder / "ca.crt").write_bytes(self.authority.pem)
        self.serial = self.write("client", ExtendedKeyUsageOID.CLIENT_AUTH)
        self.write("server", ExtendedKeyUsageOID.SERVER_AUTH)

    def write(self, name: str, usage: x509.ObjectIdentifier) -> int:
        """Makes a certificate and its key; its serial number."""
        chain, key = self.authority.leaf(usage=usage)
        (self.folder / f"{name}.crt").write_bytes(chain)
        (self.folder / f"{name}.key").write_bytes(key)
        return x509.load_pem_x509_certificate(chain).serial_number

    def context(self, *, mutual: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        if mutual:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.folder / "ca.crt")
        return context

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)

    def fingerprint(self) -> str:
        der = x509.load_pem_x509_certificate((self.folder / "server.crt").read_bytes())
        from cryptography.hazmat.primitives.serialization import Encoding

        return hashlib.sha256(der.public_bytes(Encoding.DER)).hexdigest()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def serials(broker: Listening) -> list[int]:
    return [int(certificate["serialNumber"], 16) for certificate in broker.certificates]


async def test_certificate_files_are_read_again_at_a_reconnect(files: Files) -> None:
    with contextlib.closing(Listening(files.context(mutual=True))) as broker:
        options: dict[str, Any] = {
            "tls_ca": files["ca.crt"],
            "tls_cert": files["client.crt"],
            "tls_key": files["client.key"],
        }
        async with forebay.connect(broker.url, **options) as client, client.producer("t") as producer:
            assert (serials(broker), broker.said) == ([files.serial], [("tls", b"")])
            await producer.send(b"x")
            second = files.write("client", ExtendedKeyUsageOID.CLIENT_AUTH)
            broker.peers[-1].socket.shutdown(2)
            await producer.send(b"x")
            assert serials(broker)[-1] == second
            # Half a change: the key does not belong to the certificate.
            shutil.copy(files["server.key"], files["client.key"])
            broker.peers[-1].socket.shutdown(2)
            await producer.send(b"x")
            assert serials(broker)[-1] == second
            (files.folder / "client.key").unlink()
            broker.peers[-1].socket.shutdown(2)
            await producer.send(b"x")
            third = files.write("client", ExtendedKeyUsageOID.CLIENT_AUTH)
            broker.peers[-1].socket.shutdown(2)
            await producer.send(b"x")
            assert serials(broker)[-1] == third


@pytest.mark.parametrize("form", ["tls", "class", "plugin"])
def test_the_drop_in_authenticates_with_a_certificate(files: Files, form: str) -> None:
    def authentication(module: Any) -> Any:
        certificate, key = files["client.crt"], files["client.key"]
        if form == "class":
            return module.AuthenticationTLS(certificate, key)
        if form == "plugin":
            name = "org.apache.pulsar.client.impl.auth.AuthenticationTls"
            return module.Authentication(name, f"tlsCertFile:{certificate},tlsKeyFile:{key}")
        return module.Authentication("tls", json.dumps({"tlsCertFile": certificate, "tlsKeyFile": key}))

    with contextlib.closing(Listening(files.context(mutual=True))) as broker:
        client = compat.Client(
            broker.url,
            authentication=authentication(compat),
            tls_trust_certs_file_path=files["ca.crt"],
            operation_timeout_seconds=10,
        )
        client.get_topic_partitions("t")
        client.close()
        assert (broker.said[0], serials(broker)[0]) == (("tls", b""), files.serial)


@pytest.mark.parametrize(
    "form", [str, str.upper, lambda pin: ":".join(pin[i : i + 2] for i in range(0, 64, 2))]
)
async def test_a_pinned_certificate_is_accepted(files: Files, form: Callable[[str], str]) -> None:
    with contextlib.closing(Listening(files.context())) as broker:
        async with forebay.connect(broker.url, tls_pin=form(files.fingerprint())):
            assert broker.said == [("none", b"")]
        async with forebay.connect(broker.url, tls_pin=["00" * 32, files.fingerprint()]):
            pass


async def test_another_certificate_than_the_pinned_one_is_refused(files: Files) -> None:
    with contextlib.closing(Listening(files.context())) as broker:
        with pytest.raises(errors.TlsError, match=f"fingerprint {files.fingerprint()}, which tls_pin"):
            await forebay.connect(broker.url, tls_pin="00" * 32, token="secret")
        assert broker.said == []


async def test_a_server_with_the_certificate_of_an_authority(files: Files) -> None:
    # As made by `openssl req -x509`, which many tutorials tell to use.
    own = Authority("localhost")
    (files.folder / "server.crt").write_bytes(own.pem)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = own.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (files.folder / "server.key").write_bytes(key)
    with contextlib.closing(Listening(files.context())) as broker:
        with pytest.raises(errors.TlsError, match=r"authority \(CA:TRUE\).*tls_pin"):
            await forebay.connect(broker.url, tls_ca=own.pem)
        async with forebay.connect(broker.url, tls_pin=files.fingerprint()):
            pass


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tls_pin": "00" * 31}, "64 hexadecimal digits"),
        ({"tls_pin": []}, "at least one"),
        ({"tls_pin": "zz" * 32}, "64 hexadecimal digits"),
        ({"tls_pin": "00" * 32, "tls_skip_hostname_check": True}, "tls_pin excludes"),
    ],
)
async def test_pins_that_cannot_be_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=why):
        await forebay.connect("pulsar+ssl://127.0.0.1:1", **options)


async def test_lookups_have_their_properties(broker: Listening) -> None:
    async with forebay.connect(broker.url, lookup_properties={"rack": "7"}) as client:
        async with client.producer("t"):
            pass
    assert [wire.parse(pair) for pair in broker.lookups[0][8]] == [{1: [b"rack"], 2: [b"7"]}]


# ------------------------------------------------------------------------------------------ OAuth 2


class Issuer:
    """A server that gives tokens, over TLS."""

    def __init__(self, files: Files) -> None:
        self.asked: list[dict[str, str]] = []
        self.answer: tuple[int, dict[str, str], bytes] | None = None
        self.lifetime: Any = 3600
        self.endpoint: str | None = None
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *arguments: Any) -> None:
                pass

            def _say(self, status: int, headers: dict[str, str], content: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(content)

            def do_GET(self) -> None:
                assert self.path == "/.well-known/openid-configuration"
                endpoint = issuer.endpoint or f"{issuer.url}/oauth/token"
                self._say(200, {}, json.dumps({"token_endpoint": endpoint}).encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                issuer.asked.append(dict(urllib.parse.parse_qsl(body)))
                if issuer.answer:
                    return self._say(*issuer.answer)
                token = {"access_token": f"token-{len(issuer.asked)}", "expires_in": issuer.lifetime}
                self._say(200, {}, json.dumps(token).encode())

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket = files.context().wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def issuer(files: Files) -> Iterator[Issuer]:
    made = Issuer(files)
    yield made
    made.close()


def oauth2(issuer: Issuer, files: Files, **more: Any) -> OAuth2:
    given: dict[str, Any] = {"client_id": "ann", "client_secret": "s3cret", "tls_ca": files["ca.crt"]}
    return OAuth2(issuer.url, **(given | more))


async def test_oauth2_gets_a_token_once_and_uses_it_again(
    broker: Listening, issuer: Issuer, files: Files
) -> None:
    token = oauth2(issuer, files, audience="urn:pulsar", scope="produce")
    for _ in range(2):
        async with forebay.connect(broker.url, token=token):
            pass
    assert broker.said == [("token", b"token-1")] * 2
    assert issuer.asked == [
        {
            "grant_type": "client_credentials",
            "client_id": "ann",
            "client_secret": "s3cret",
            "audience": "urn:pulsar",
            "scope": "produce",
        }
    ]
    assert "s3cret" not in repr(token)


def test_oauth2_gets_a_new_token_early_and_keeps_the_old_one_if_it_must(issuer: Issuer, files: Files) -> None:
    token = oauth2(issuer, files)
    assert token() == token() == "token-1"
    # Nine tenths of its lifetime are over.
    token._renew_at = 0.0
    issuer.answer = (503, {}, b"")
    assert token() == "token-1", "it is still valid"
    issuer.answer = None
    assert token() == "token-3"
    token._renew_at = token._ends_at = 0.0
    issuer.answer = (503, {}, b"")
    with pytest.raises(errors.AuthenticationError, match="503"):
        token()


@pytest.mark.parametrize(
    "before",
    [b"\xef\xbb\xbf", "# Autorité de certification\n".encode(), "# Autorité\n".encode("latin-1")],
)
def test_oauth2_reads_authorities_behind_other_text(issuer: Issuer, files: Files, before: bytes) -> None:
    assert oauth2(issuer, files, tls_ca=before + Path(files["ca.crt"]).read_bytes())() == "token-1"


async def test_oauth2_gets_a_new_token_when_a_broker_refuses_it(
    broker: Listening, issuer: Issuer, files: Files
) -> None:
    token = oauth2(issuer, files)
    async with forebay.connect(broker.url, token=token):
        pass
    broker.refuses = {b"token-1"}
    with pytest.raises(errors.AuthenticationError):
        await forebay.connect(broker.url, token=token)
    async with forebay.connect(broker.url, token=token), forebay.connect(broker.url, token=token):
        pass
    assert [data for _, data in broker.said] == [b"token-1"] * 2 + [b"token-2"] * 2
    # An old refusal that comes late voids no newer token.
    token.refused("token-1")
    assert token() == "token-2"
    token.refused("token-2")
    issuer.answer = (503, {}, b"")
    assert token() == "token-2", "it may still do"


async def test_oauth2_gets_a_new_token_when_a_broker_asks(
    broker: Listening, issuer: Issuer, files: Files
) -> None:
    broker.challenges = 1
    async with forebay.connect(broker.url, token=oauth2(issuer, files)):
        await until(lambda: broker.answered == [b"token-2"])
    assert broker.said == [("token", b"token-1")]


async def test_a_supplier_is_told_what_was_refused(broker: Listening) -> None:
    class Supplier:
        refused_: ClassVar[list[str]] = []

        async def __call__(self) -> str:
            return f"token-{len(self.refused_)}"

        def refused(self, token: str) -> None:
            self.refused_.append(token)

    broker.refuses = {b"token-0", b"token-1"}
    supplier = Supplier()
    for _ in range(2):
        with pytest.raises(errors.AuthenticationError):
            await forebay.connect(broker.url, token=supplier)
    client = await forebay.connect(broker.url, token=supplier)
    await client.close()
    assert supplier.refused_ == ["token-0", "token-1"]


@pytest.mark.parametrize("form", ["path", "file", "data"])
def test_oauth2_reads_a_key_file(issuer: Issuer, files: Files, form: str) -> None:
    content = {
        "type": "client_credentials",
        "client_id": "bob",
        "client_secret": "x",
        "issuer_url": issuer.url,
    }
    (files.folder / "key.json").write_text(json.dumps(content))
    name = {
        "path": files["key.json"],
        "file": f"file://{files['key.json']}",
        "data": "data:application/json;base64," + base64.b64encode(json.dumps(content).encode()).decode(),
    }[form]
    assert OAuth2(key_file=name, tls_ca=files["ca.crt"])() == "token-1"
    assert issuer.asked[0]["client_id"] == "bob"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((401, {}, b'{"error": "invalid_client", "error_description": "who?"}'), "401: invalid_client: who?"),
        ((500, {}, b"<html>"), "500: no reason"),
        ((302, {"Location": "https://127.0.0.1:1/"}, b""), "status 302"),
        ((200, {}, b"[]"), "not a JSON object"),
        ((200, {}, b"[" * 100_000), "not a JSON object"),
        ((200, {}, b"{}"), "no access_token"),
        ((200, {}, b'{"access_token": 7}'), "no access_token"),
        ((200, {}, b'{"access_token": "t", "expires_in": -1}'), "expires in '-1'"),
        ((200, {}, b'{"access_token": "t", "expires_in": NaN}'), "expires in 'nan'"),
        ((200, {}, b'{"access_token": "t", "expires_in": "soon"}'), "expires in 'soon'"),
        ((200, {}, b'{"access_token": "t", "expires_in": []}'), "expires in"),
        ((200, {}, b" " * (1 << 21)), "more than"),
    ],
)
def test_oauth2_tells_what_went_wrong(
    broker: Listening, issuer: Issuer, files: Files, answer: Any, why: str
) -> None:
    issuer.answer = answer
    with pytest.raises(errors.AuthenticationError, match=why) as caught:
        forebay.blocking.connect(broker.url, token=oauth2(issuer, files))
    assert "s3cret" not in str(caught.value)
    assert broker.said == []


@pytest.mark.parametrize(
    ("supplied", "why"),
    [
        (ValueError("s3cret"), "failed: ValueError"),
        (errors.AuthenticationError("the vault is sealed"), "failed: the vault is sealed"),
        (7, "returned int, not text"),
        (b"s3cret\xff", "returned bytes that are not text in UTF-8"),
        (b" ", "returned an empty secret"),
        ("", "returned an empty secret"),
        (" \n", "returned an empty secret"),
    ],
)
def test_a_function_for_the_secret_of_oauth2_is_named(
    issuer: Issuer, files: Files, supplied: Any, why: str
) -> None:
    def supply() -> Any:
        if isinstance(supplied, Exception):
            raise supplied
        return supplied

    with pytest.raises(errors.AuthenticationError, match=f"the function for client_secret .*{why}") as caught:
        oauth2(issuer, files, client_secret=supply)()
    assert "s3cret" not in str(caught.value)
    assert issuer.asked == []


def test_a_function_for_the_secret_of_oauth2_may_return_bytes(issuer: Issuer, files: Files) -> None:
    assert oauth2(issuer, files, client_secret=lambda: "sécret".encode())() == "token-1"
    assert issuer.asked[0]["client_secret"] == "sécret"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("tls_ca", b""),
        ("tls_ca", b"-----BEGIN CERTIFICATE-----\n"),
        ("tls_ca", "# -----BEGIN CERTIFICATE-----"),
        ("tls_ca", b"-----BEGIN CERTIFICATE-----\n\xff\n-----END CERTIFICATE-----\n"),
        ("tls_ca", CA.pem + b"-----BEGIN CERTIFICATE-----\nAAAA\n"),
        ("tls_ca", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ("tls_ca", b"-----BEGIN CERTIFICATE-----\n\xff"),
        ("client_secret", ""),
        ("timeout", "soon"),
    ],
)
def test_an_error_of_oauth2_names_its_argument(option: str, value: Any) -> None:
    given: dict[str, Any] = {"client_id": "a", "client_secret": "b"} | {option: value}
    with pytest.raises(errors.InvalidArgument, match=f"OAuth2: {option}: "):
        OAuth2("https://127.0.0.1:1", **given)


def test_oauth2_uses_https_only(issuer: Issuer, files: Files) -> None:
    with pytest.raises(errors.InvalidArgument, match="https:// only"):
        OAuth2("http://127.0.0.1:1", client_id="a", client_secret="b")
    issuer.endpoint = issuer.url.replace("https", "http")
    with pytest.raises(errors.AuthenticationError, match="https:// only"):
        oauth2(issuer, files)()
    with pytest.raises(errors.AuthenticationError, match=r"(?i)certificate"):
        oauth2(issuer, files, tls_ca=Authority().pem)()
    assert issuer.asked == []


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"issuer_url": "https://a", "client_id": "b"},
        {"issuer_url": "https://a", "client_secret": "b"},
        {"client_id": "a", "client_secret": "b"},
        {"issuer_url": "https://a", "client_id": "b", "client_secret": "c", "key_file": "d"},
        {"key_file": "/no/such/file"},
        {"key_file": "data:application/json;base64,!"},
        {"key_file": "data:application/json;base64,e30="},
        {"issuer_url": "https://a", "client_id": "b", "client_secret": "env:NO_SUCH_VARIABLE"},
    ],
)
def test_oauth2_refuses_what_cannot_be(given: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument):
        OAuth2(**given)


def test_oauth2_of_the_drop_in(broker: Listening, issuer: Issuer, files: Files) -> None:
    content = {"client_id": "bob", "client_secret": "x"}
    (files.folder / "key.json").write_text(json.dumps(content))
    for parameters in (
        {"issuer_url": issuer.url, "client_id": "ann", "client_secret": "x"},
        {
            "type": "client_credentials",
            "issuer_url": issuer.url,
            "private_key": f"file://{files['key.json']}",
        },
    ):
        client = compat.Client(
            broker.url,
            authentication=compat.AuthenticationOauth2(json.dumps(parameters)),
            tls_trust_certs_file_path=files["ca.crt"],
            operation_timeout_seconds=10,
        )
        client.get_topic_partitions("t")
        client.close()
    assert [data for _, data in broker.said] == [b"token-1", b"token-2"]
    assert [asked["client_id"] for asked in issuer.asked] == ["ann", "bob"]
