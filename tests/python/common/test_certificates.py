"""A server that cannot prove its identity: a TLS error at once, and not one byte of a credential is sent."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

import forebay
from forebay import errors
from forebay._core import parse

from support.certificates import DAY, HERE, NOW, Authority, listening
from support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[3]
Shown = tuple[bytes, bytes]
BAD: dict[str, Callable[[Authority], Shown]] = {}


def bad(make: Callable[[Authority], Shown]) -> Callable[[Authority], Shown]:
    BAD[make.__name__] = make
    return make


@bad
def signed_by_itself(_: Authority) -> Shown:
    own = Authority("127.0.0.1")
    return own.leaf()


@bad
def signed_by_another_authority(_: Authority) -> Shown:
    return Authority("test authority").leaf()


@bad
def for_another_name(ca: Authority) -> Shown:
    return ca.leaf((x509.DNSName("broker.example.test"),))


@bad
def for_another_address(ca: Authority) -> Shown:
    import ipaddress

    return ca.leaf((x509.IPAddress(ipaddress.ip_address("127.0.0.2")),))


@bad
def with_the_address_as_a_name(ca: Authority) -> Shown:
    return ca.leaf((x509.DNSName("127.0.0.1"),))


@bad
def with_a_wildcard(ca: Authority) -> Shown:
    return ca.leaf((x509.DNSName("*.0.0.1"), x509.DNSName("*")))


@bad
def with_a_common_name_only(ca: Authority) -> Shown:
    return ca.leaf(())


@bad
def expired(ca: Authority) -> Shown:
    return ca.leaf(begins=NOW - 3 * DAY, ends=NOW - DAY)


@bad
def not_yet_valid(ca: Authority) -> Shown:
    return ca.leaf(begins=NOW + DAY, ends=NOW + 3 * DAY)


@bad
def for_clients(ca: Authority) -> Shown:
    return ca.leaf(usage=ExtendedKeyUsageOID.CLIENT_AUTH)


@bad
def with_a_missing_link(ca: Authority) -> Shown:
    return Authority("between", ca).leaf()


@bad
def signed_by_what_is_no_authority(ca: Authority) -> Shown:
    between = Authority("between", ca, ca=False)
    chain, key = between.leaf()
    return chain + between.pem, key


@bad
def with_an_expired_link(ca: Authority) -> Shown:
    between = Authority("between", ca, begins=NOW - 3 * DAY, ends=NOW - DAY)
    chain, key = between.leaf()
    return chain + between.pem, key


@bad
def outside_the_names_of_its_authority(ca: Authority) -> Shown:
    import ipaddress

    allowed = x509.NameConstraints([x509.IPAddress(ipaddress.ip_network("10.0.0.0/8"))], None)
    between = Authority("between", ca, constraints=allowed)
    chain, key = between.leaf()
    return chain + between.pem, key


@bad
def with_a_damaged_signature(ca: Authority) -> Shown:
    from base64 import b64decode, encodebytes

    chain, key = ca.leaf()
    lines = chain.split(b"\n")
    der = bytearray(b64decode(b"".join(lines[1:-2])))
    der[-1] ^= 1
    return b"-----BEGIN CERTIFICATE-----\n" + encodebytes(der) + b"-----END CERTIFICATE-----\n", key


def connect(port: int, ca: Authority, **options: Any) -> Any:
    options = {"connect_timeout": 4} | options
    return forebay.connect(f"pulsar+ssl://127.0.0.1:{port}", tls_ca=ca.pem, token="a-secret", **options)


@pytest.mark.parametrize("kind", BAD)
async def test_a_bad_certificate_is_a_tls_error_at_once_and_no_byte_leaves(kind: str) -> None:
    ca = Authority()
    with listening(*BAD[kind](ca)) as server:
        started = time.monotonic()
        with pytest.raises(errors.TlsError) as refused:
            await connect(server.port, ca, connect_timeout=60)
        assert time.monotonic() - started < 30
        assert server.said == b""
        assert not refused.value.retriable
        assert "a-secret" not in f"{refused.value!r} {refused.value}"


async def test_a_good_certificate_gets_the_handshake() -> None:
    # The counterpart: the tests above must not pass for another reason.
    ca = Authority()
    with listening(*ca.leaf()) as server:
        with pytest.raises(forebay.Error):
            await connect(server.port, ca)
        assert b"a-secret" in server.said


async def test_a_chain_with_its_link_is_good() -> None:
    ca = Authority()
    between = Authority("between", ca)
    chain, key = between.leaf()
    with listening(chain + between.pem, key) as server:
        with pytest.raises(forebay.Error):
            await connect(server.port, ca)
        assert server.handshakes


async def test_the_host_name_check_can_be_left_out_but_not_the_authority() -> None:
    ca = Authority()
    other_name = ca.leaf((x509.DNSName("broker.example.test"),))
    with listening(*other_name) as server:
        with pytest.raises(forebay.Error):
            await connect(server.port, ca, tls_skip_hostname_check=True)
        assert b"a-secret" in server.said
    with listening(*signed_by_another_authority(ca)) as server:
        with pytest.raises(errors.TlsError):
            await connect(server.port, ca, tls_skip_hostname_check=True, connect_timeout=60)
        assert server.said == b""


async def test_a_server_that_wants_a_client_certificate() -> None:
    ca = Authority()

    def demand(context: ssl.SSLContext) -> None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=ca.pem.decode())

    chain, key = ca.leaf(usage=ExtendedKeyUsageOID.CLIENT_AUTH)
    with listening(*ca.leaf(), demand) as server:
        with pytest.raises(forebay.Error):
            await connect(server.port, ca)
        assert server.said == b""
        with pytest.raises(forebay.Error):
            await connect(server.port, ca, tls_cert=chain, tls_key=key)
        assert b"a-secret" in server.said


@pytest.mark.parametrize("port", ["pulsar", "http", "mqtt", "mqtt_ws", "tubemq"])
@pytest.mark.parametrize("retry_first", [False, True])
async def test_a_client_whose_certificate_is_refused_is_told_at_once(
    port: str, retry_first: bool, tmp_path: Path
) -> None:
    """With TLS 1.3 the refusal comes when the client's handshake is over."""
    ca = Authority()
    paths = [tmp_path / name for name in ("cert", "key", "ca")]
    for path, content in zip(paths, (*ca.leaf(), ca.pem), strict=True):
        path.write_bytes(content)
    tls = dict(zip(("tls_cert", "tls_key", "tls_client_ca"), map(str, paths), strict=True))
    ports = {f"{name}_port": 0 for name in ("mqtt", "mqtt_ws", "tubemq", "http")}
    with forebay.Broker(durability="memory", **ports, **tls) as broker:
        cert, key = Authority("another").leaf(usage=ExtendedKeyUsageOID.CLIENT_AUTH)
        shown: list[dict[str, bytes]] = [{"tls_cert": cert, "tls_key": key}]
        if port != "tubemq":
            # TubeMQ's client connects only with one.
            shown.append({})
        for one in shown:
            with pytest.raises(errors.TlsError, match="certificate"):
                await asyncio.wait_for(
                    forebay.connect(broker.urls[port], tls_ca=ca.pem, retry_first=retry_first, **one),
                    PATIENCE,
                )


async def test_a_server_that_speaks_only_old_tls() -> None:
    ca = Authority()

    def old(context: ssl.SSLContext) -> None:
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")

    with listening(*ca.leaf(HERE), old) as server:
        started = time.monotonic()
        with pytest.raises(errors.TlsError):
            await connect(server.port, ca, connect_timeout=60)
        assert time.monotonic() - started < 30
        assert server.said == b""


@pytest.mark.parametrize(
    "pem", [b"", b"not pem", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
async def test_an_authority_that_cannot_be_read_is_said_so(pem: bytes) -> None:
    ca = Authority()
    with listening(*ca.leaf()) as server:
        with pytest.raises((errors.InvalidArgument, errors.TlsError)):
            await forebay.connect(f"pulsar+ssl://127.0.0.1:{server.port}", tls_ca=pem, connect_timeout=4)
        assert server.said == b""


URLS = ["pulsar+ssl://127.0.0.1:{}", "mqtts://127.0.0.1:{}", "tubemq+ssl://127.0.0.1:{}"]


@pytest.mark.parametrize("url", URLS)
async def test_the_name_of_the_server_is_sent_and_checked(url: str) -> None:
    ca, names = Authority(), list[str | None]()

    def note(context: ssl.SSLContext) -> None:
        context.sni_callback = lambda _, name, __: names.append(name)  # pyright: ignore[reportAttributeAccessIssue]

    with listening(*ca.leaf((x509.DNSName("broker.example.test"),)), note) as server:
        # TubeMQ's TLS is mutual.
        chain, key = ca.leaf(usage=ExtendedKeyUsageOID.CLIENT_AUTH)
        options: dict[str, Any] = {"tls_ca": ca.pem, "tls_cert": chain, "tls_key": key, "connect_timeout": 4}
        for name in ("other.example.test", "127.0.0.1"):
            with pytest.raises(errors.TlsError):
                await forebay.connect(url.format(server.port), tls_server_name=name, **options)
        assert server.said == b""
        with pytest.raises(forebay.Error):
            await forebay.connect(url.format(server.port), tls_server_name="broker.example.test", **options)
        assert server.said
        # An address is no name to send.
        assert names[:2] == ["other.example.test", None]
        assert set(names[2:]) == {"broker.example.test"}
        with pytest.raises(errors.InvalidArgument, match="tls_server_name"):
            await forebay.connect(url.format(server.port), tls_server_name="two words", **options)


@pytest.mark.parametrize("kind", ["ec", "rsa"])
async def test_a_certificate_of_version_1_needs_a_pin(kind: str) -> None:
    pem = (ROOT / "tests" / "golden" / "tls" / f"version-1-{kind}.pem").read_bytes()
    chain = pem[: pem.index(b"-----BEGIN PRIVATE KEY")]
    pin = hashlib.sha256(ssl.PEM_cert_to_DER_cert(chain.decode())).hexdigest()
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):

        def only(context: ssl.SSLContext, version: ssl.TLSVersion = version) -> None:
            context.minimum_version = context.maximum_version = version

        with listening(chain, pem, only) as server:
            url = f"pulsar+ssl://127.0.0.1:{server.port}"
            for options in ({}, {"tls_ca": chain}):
                with pytest.raises(errors.TlsError, match=r"X.509 version 1.*tls_pin"):
                    await forebay.connect(url, token="a-secret", **options)
            with pytest.raises(errors.TlsError, match="does not list"):
                await forebay.connect(url, token="a-secret", tls_pin="00" * 32)
            assert server.said == b""
            with pytest.raises(forebay.Error):
                await forebay.connect(url, token="a-secret", tls_pin=pin, connect_timeout=4)
            assert b"a-secret" in server.said


async def test_a_byte_order_mark_before_pem_is_no_matter(tmp_path: Path) -> None:
    ca, mark = Authority(), b"\xef\xbb\xbf"

    def demand(context: ssl.SSLContext) -> None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=ca.pem.decode())

    chain, key = ca.leaf(usage=ExtendedKeyUsageOID.CLIENT_AUTH)
    files = {"tls_ca": ca.pem, "tls_cert": chain, "tls_key": key}
    for name, content in files.items():
        (tmp_path / name).write_bytes(mark + content)
        found = parse.pem(tmp_path / name)
        assert found == content
        assert isinstance(found, parse.FromFile) and found.path == str(tmp_path / name)
    with listening(*ca.leaf(), demand) as server:
        url = f"pulsar+ssl://127.0.0.1:{server.port}"
        for options in (
            {name: tmp_path / name for name in files},
            {name: mark + content for name, content in files.items()},
        ):
            server.said = b""
            with pytest.raises(forebay.Error):
                await forebay.connect(url, token="a-secret", connect_timeout=4, **options)
            assert b"a-secret" in server.said
