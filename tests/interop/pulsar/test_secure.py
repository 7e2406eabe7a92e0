"""TLS, tokens and authorization on the real Pulsar: right settings work, wrong ones fail at once."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
from typing import Any

import pytest

import forebay
import pulsar
from forebay import errors

from support.messages import numbered, receive
from support.pulsar.harness import RealPulsar
from support.waiting import eventually

pytestmark = pytest.mark.real_pulsar

SOON = 50.0
"""Seconds; a client that retries does it for its timeouts of 60."""


def connect(broker: RealPulsar, **options: Any) -> Any:
    options = {
        "tls_ca": str(broker.ca),
        "token": broker.token("admin"),
        "operation_timeout": 60,
        "connect_timeout": 60,
    } | options
    return forebay.connect(
        broker.url, **{name: value for name, value in options.items() if value is not None}
    )


async def test_there_and_back(real_pulsar_secure: RealPulsar) -> None:
    topic = real_pulsar_secure.topic(partitions=2)
    async with connect(real_pulsar_secure) as client:
        async with (
            client.consumer(topic, "s") as consumer,
            client.producer(topic, compression="zstd") as producer,
        ):
            await producer.send_many(numbered(500), [str(i) for i in range(500)])
            messages = await receive(consumer, 500)
            assert sorted(bytes(message.data) for message in messages) == numbered(500)
            await consumer.ack_many(messages)


@pytest.mark.parametrize("form", ["text", "file", "env", "callable"])
async def test_where_a_token_comes_from(
    real_pulsar_secure: RealPulsar, form: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = real_pulsar_secure.token("admin")
    (tmp_path / "token").write_text(text + "\n")
    monkeypatch.setenv("A_TOKEN", text)
    token: Any = {
        "text": text,
        "file": f"file:{tmp_path / 'token'}",
        "env": "env:A_TOKEN",
        "callable": lambda: text,
    }[form]
    async with connect(real_pulsar_secure, token=token) as client:
        async with client.producer(real_pulsar_secure.topic()) as producer:
            await producer.send(b"x")


async def test_a_coroutine_function_supplies_the_token(real_pulsar_secure: RealPulsar) -> None:
    async def token() -> str:
        await asyncio.sleep(0)
        return real_pulsar_secure.token("admin")

    async with connect(real_pulsar_secure, token=token) as client:
        async with client.producer(real_pulsar_secure.topic()) as producer:
            await producer.send(b"x")


async def test_the_certificate_may_be_pinned(real_pulsar_secure: RealPulsar) -> None:
    with pytest.raises(errors.TlsError, match="tls_pin does not list") as caught:
        await connect(real_pulsar_secure, tls_ca=None, tls_pin="00" * 32)
    # What the error says is what an administrator would compare.
    pin = str(caught.value).partition("fingerprint ")[2].partition(",")[0]
    host, port = real_pulsar_secure.url.rpartition("/")[2].split(":")
    shown = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port))))
    assert pin == hashlib.sha256(shown).hexdigest()
    async with connect(real_pulsar_secure, tls_ca=None, tls_pin=pin) as client:
        async with client.producer(real_pulsar_secure.topic()) as producer:
            await producer.send(b"x")


async def test_the_ca_may_be_pem_itself(real_pulsar_secure: RealPulsar) -> None:
    for pem in (real_pulsar_secure.ca.read_bytes(), real_pulsar_secure.ca.read_text()):
        async with connect(real_pulsar_secure, tls_ca=pem) as client:
            async with client.producer(real_pulsar_secure.topic()) as producer:
                await producer.send(b"x")


async def test_the_official_client_gets_what_we_sent(real_pulsar_secure: RealPulsar) -> None:
    topic = real_pulsar_secure.topic()
    official = pulsar.Client(
        real_pulsar_secure.url,
        authentication=pulsar.AuthenticationToken(real_pulsar_secure.token("admin")),
        tls_trust_certs_file_path=str(real_pulsar_secure.ca),
        tls_validate_hostname=True,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    theirs = official.subscribe(topic, "s")
    async with connect(real_pulsar_secure) as client, client.producer(topic) as producer:
        await producer.send(b"x")
        assert theirs.receive(60_000).data() == b"x"
    official.close()


async def refused(opening: Any, kind: type[Exception]) -> Exception:
    started = time.monotonic()
    with pytest.raises(kind) as found:
        client = await opening
        try:
            await client.producer("persistent://public/default/refused")
        finally:
            await client.close()
    assert time.monotonic() - started < SOON, "the right error, but too late"
    return found.value


@pytest.mark.parametrize("which", ["expired", "missing", "forged", "garbage"])
async def test_a_token_that_is_wrong_is_an_authentication_error_at_once(
    real_pulsar_secure: RealPulsar, which: str
) -> None:
    good = real_pulsar_secure.token("admin")
    token = {
        "expired": real_pulsar_secure.token("expired"),
        "missing": None,
        "forged": good[:-8] + ("AAAAAAAA" if not good.endswith("AAAAAAAA") else "BBBBBBBB"),
        "garbage": "no-token",
    }[which]
    error = await refused(connect(real_pulsar_secure, token=token), errors.AuthenticationError)
    assert not error.retriable
    for secret in filter(None, (good, token)):
        assert secret not in str(error)
        assert secret not in repr(error)


async def test_a_role_without_a_grant_is_an_authorization_error_at_once(
    real_pulsar_secure: RealPulsar,
) -> None:
    topic = real_pulsar_secure.topic()
    async with connect(real_pulsar_secure, token=real_pulsar_secure.token("app")) as client:
        for opening in (client.producer(topic), client.consumer(topic, "s")):
            started = time.monotonic()
            with pytest.raises(errors.AuthorizationError):
                await opening
            assert time.monotonic() - started < SOON


async def test_a_role_with_a_grant_may_do_what_was_granted(real_pulsar_secure: RealPulsar) -> None:
    real_pulsar_secure.rest("PUT", "namespaces/public/granted", {})
    topic = "persistent://public/granted/t"
    path = "namespaces/public/granted/permissions/app"
    real_pulsar_secure.rest("POST", path, ["produce"])
    eventually(lambda: "app" in real_pulsar_secure.rest("GET", "namespaces/public/granted/permissions"))
    async with connect(real_pulsar_secure, token=real_pulsar_secure.token("app")) as client:
        async with client.producer(topic) as producer:
            await producer.send(b"x")
        with pytest.raises(errors.AuthorizationError):
            await client.consumer(topic, "s")


async def test_a_wrong_ca_is_a_tls_error_at_once(real_pulsar_secure: RealPulsar, tmp_path: Any) -> None:
    from support.certificates import Authority

    error = await refused(connect(real_pulsar_secure, tls_ca=Authority("another").pem), errors.TlsError)
    assert "certificate" in str(error).lower()


async def test_the_platforms_authorities_do_not_know_this_one(real_pulsar_secure: RealPulsar) -> None:
    await refused(connect(real_pulsar_secure, tls_ca=None), errors.TlsError)


async def test_the_name_localhost_is_in_the_certificate(real_pulsar_secure: RealPulsar) -> None:
    url = real_pulsar_secure.url.replace("127.0.0.1", "localhost")
    async with forebay.connect(
        url, tls_ca=str(real_pulsar_secure.ca), token=real_pulsar_secure.token("admin")
    ) as client:
        async with client.producer(real_pulsar_secure.topic()) as producer:
            await producer.send(b"x")


async def test_a_plain_client_on_the_tls_port_fails_soon(real_pulsar_secure: RealPulsar) -> None:
    url = real_pulsar_secure.url.replace("pulsar+ssl", "pulsar")
    started = time.monotonic()
    with pytest.raises(forebay.Error):
        await forebay.connect(url, connect_timeout=3)
    assert time.monotonic() - started < SOON


async def test_a_tls_client_on_a_plain_port_fails_soon(real_pulsar: RealPulsar) -> None:
    started = time.monotonic()
    with pytest.raises(forebay.Error):
        await forebay.connect(real_pulsar.url.replace("pulsar", "pulsar+ssl", 1), connect_timeout=3)
    assert time.monotonic() - started < SOON


async def test_a_secret_is_nowhere_to_be_seen(real_pulsar_secure: RealPulsar) -> None:
    token = real_pulsar_secure.token("admin")
    async with connect(real_pulsar_secure) as client:
        for text in (repr(client), str(client), repr(vars(client)), str(client.stats())):
            assert token not in text
