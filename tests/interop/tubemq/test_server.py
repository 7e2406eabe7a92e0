"""Our client and the real TubeMQ: servers that stop, credentials, and mutual TLS."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from forebay import errors

from support.certificates import Certificates
from support.messages import numbered, payloads
from support.tubemq.harness import RealTubeMq, group
from support.tubemq.java import Java
from support.tubemq.load import BALANCES, Flow, connect, ready, take
from support.waiting import eventually, until

pytestmark = [pytest.mark.real_tubemq, pytest.mark.timeout(400)]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["master1", "broker"])
async def test_a_restart_in_mid_flight_loses_nothing_acknowledged(own_tubemq: RealTubeMq, part: str) -> None:
    topic, name = own_tubemq.topic(3), group()
    async with connect(own_tubemq) as client, client.producer(topic, send_timeout=150) as producer:
        async with client.consumer(topic, name, position="first") as consumer:
            got: set[int] = set()

            async def read() -> None:
                while True:
                    for message in await consumer.receive_many(1000, timeout=0.5):
                        got.add(int(bytes(message.data)))
                        await consumer.ack(message)

            reading = asyncio.ensure_future(read())
            flow = Flow(producer)
            await flow.progress(500)
            await asyncio.to_thread(own_tubemq.halt, part)
            await asyncio.to_thread(own_tubemq.start, part)
            await flow.progress(500)
            await flow.stop()
            assert not flow.failed, flow.failed[:3]
            await until(lambda: got >= set(flow.taken), 60)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading


@pytest.mark.slow
@pytest.mark.parametrize("balance", BALANCES)
async def test_a_killed_member_leaves_its_partitions(
    own_tubemq: RealTubeMq, java: Java, balance: str
) -> None:
    topic, name = own_tubemq.topic(3), group()
    async with connect(own_tubemq) as client, client.producer(topic) as producer:
        with Java() as doomed:
            open_ = doomed.pull if balance == "server" else doomed.balance
            await asyncio.to_thread(open_, own_tubemq, name, topic, position="first")
            async with client.consumer(topic, name, balance=balance, position="first") as consumer:
                if balance == "client":
                    await until(lambda: {part["state"] for part in consumer.partitions()} == {"occupied"})
                await producer.send_many(numbered(30))
                await asyncio.to_thread(doomed.kill)
                await ready(consumer, 3, 60)
                # Unconfirmed messages are delivered to us, some twice if the server drops us for
                # silence.
                seen: set[bytes] = set()
                while len(seen) < 30:
                    seen |= set(payloads(await take(consumer, 1)))
                assert seen == set(numbered(30))


@pytest.mark.slow
async def test_a_standby_takes_over_in_mid_flight() -> None:
    cluster = await asyncio.to_thread(lambda: RealTubeMq(masters=3, pool={(1, 1): 1}))
    try:
        topic, name = cluster.topic(), group()
        async with connect(cluster) as client, client.producer(topic, send_timeout=150) as producer:
            async with client.consumer(topic, name, position="first", balance="server") as consumer:
                flow = Flow(producer)
                await flow.progress(200)
                await take(consumer, 200)
                await asyncio.to_thread(cluster.halt, "master1", kill=True)
                await asyncio.to_thread(eventually, lambda: cluster.active() not in ("", "master1"), 120)
                await flow.progress(200)
                await flow.stop()
                assert not flow.failed, flow.failed[:3]
        # A new client finds the active master too.
        async with connect(cluster) as client, client.consumer(topic, group(), position="first") as consumer:
            got = {int(bytes(message.data)) for message in await take(consumer, len(flow.taken), 40)}
            assert got >= set(flow.taken)
    finally:
        await asyncio.to_thread(cluster.stop)


def secured(server: RealTubeMq, **options: Any) -> Any:
    assert server.certificates is not None
    tls = {
        "tls_ca": str(server.certificates.ca),
        "tls_cert": str(server.certificates.client_crt),
        "tls_key": str(server.certificates.client_key),
        "username": "ann",
        "password": "secret",
    }
    return connect(server.tls_url, **(tls | options))


@pytest.mark.parametrize("balance", BALANCES)
async def test_credentials_over_mutual_tls(real_tubemq_secure: RealTubeMq, balance: str) -> None:
    topic, name = real_tubemq_secure.topic(3), group()
    async with secured(real_tubemq_secure) as client, client.producer(topic) as producer:
        async with client.consumer(topic, name, position="first", balance=balance) as consumer:
            await producer.send_many(numbered(100))
            assert sorted(payloads(await take(consumer, 100, 30))) == numbered(100)


async def test_credentials_without_tls(real_tubemq_secure: RealTubeMq) -> None:
    topic = real_tubemq_secure.topic()
    async with connect(real_tubemq_secure, username="ann", password="secret") as client:
        async with client.producer(topic) as producer:
            assert (await producer.send(b"x")).offset == 0
    with pytest.raises(errors.AuthenticationError):
        async with connect(real_tubemq_secure) as client, client.producer(topic) as producer:
            await producer.send(b"x")


async def test_tls_without_our_certificate_is_refused_before_it_kills_the_server(
    real_tubemq_secure: RealTubeMq,
) -> None:
    certificates = real_tubemq_secure.certificates
    assert certificates is not None
    with pytest.raises(errors.InvalidArgument, match="one-way"):
        async with connect(real_tubemq_secure.tls_url, tls_ca=str(certificates.ca)):
            pass
    assert real_tubemq_secure.active() == "master1"


async def test_a_server_that_another_authority_vouches_for(real_tubemq_secure: RealTubeMq) -> None:
    others = Certificates()
    try:
        with pytest.raises(errors.Error):
            async with secured(real_tubemq_secure, tls_ca=str(others.ca), connect_timeout=3):
                pass
        with pytest.raises(errors.Error):
            async with secured(
                real_tubemq_secure,
                tls_cert=str(others.client_crt),
                tls_key=str(others.client_key),
                connect_timeout=3,
            ):
                pass
    finally:
        others.remove()
    topic = real_tubemq_secure.topic()
    async with secured(real_tubemq_secure) as client, client.producer(topic) as producer:
        assert (await producer.send(b"x")).offset == 0
