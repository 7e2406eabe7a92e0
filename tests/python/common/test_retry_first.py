"""The option ``retry_first``: a client that starts before its broker."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import pytest

import forebay
from forebay import errors
from forebay.blocking import connect as connect_blocking

from support.observing import behind
from support.scripts import free_port
from support.waiting import PATIENCE, until


@pytest.fixture(params=["pulsar", "mqtt", "tubemq"])
def broker(request: pytest.FixtureRequest) -> Any:
    """The embedded broker, by each protocol."""
    name = {"pulsar": "embedded", "mqtt": "embedded_mqtt", "tubemq": "embedded_tubemq"}[request.param]
    return request.getfixturevalue(name)


async def test_the_first_connect_is_retried_until_there_is_a_broker(
    broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "forebay")
    async with behind(broker.url, told=not broker.url.startswith("mqtt")) as (proxy, url):
        await proxy.deafen()
        connecting = asyncio.ensure_future(start(url))
        await until(lambda: "attempt 1 of the first connect failed" in caplog.text)
        assert not connecting.done()
        await proxy.listen()
        client = await asyncio.wait_for(connecting, 30)
        first = await anext(client.events())
        assert first.kind == "connected" and first.attempts > 1
        await client.close()


async def start(url: str, **options: Any) -> Any:
    return await forebay.connect(url, **{"retry_first": True, "max_backoff": 0.1, **options})


@pytest.mark.parametrize("protocol", ["pulsar", "mqtt", "tubemq"])
async def test_without_the_option_and_after_its_time_the_error_is_raised(protocol: str) -> None:
    url = f"{protocol}://127.0.0.1:{free_port()}"
    with pytest.raises(errors.ConnectFailed):
        await forebay.connect(url)
    began = time.monotonic()
    with pytest.raises(errors.ConnectFailed):
        await start(url, retry_first="300ms")
    assert time.monotonic() - began < 20


async def test_an_error_that_cannot_be_mended_ends_it() -> None:
    with forebay.Broker(durability="memory", token_key="k" * 32) as broker:
        with pytest.raises(errors.AuthenticationError):
            await asyncio.wait_for(start(broker.url, token="wrong"), 30)


async def test_it_may_be_cancelled() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(start(f"pulsar://127.0.0.1:{free_port()}"), 0.3)


async def test_values_that_are_neither() -> None:
    with pytest.raises(errors.InvalidArgument, match="retry_first"):
        forebay.connect("pulsar://127.0.0.1:6650", retry_first="perhaps")
    for value in (True, "true", 3, "3s"):
        with pytest.warns(RuntimeWarning, match="never opened"):
            forebay.connect("pulsar://127.0.0.1:6650", retry_first=value)


def test_the_blocking_face(broker: Any) -> None:
    """One that gives up after its time, and one whose broker is there."""
    clients: list[Any] = []
    with pytest.raises(errors.ConnectFailed):
        connect_blocking(f"mqtt://127.0.0.1:{free_port()}", retry_first=0.2, max_backoff=0.1)

    def run() -> None:
        clients.append(connect_blocking(broker.url, retry_first=True))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert next(clients[0].events()).attempts == 1
    clients[0].close()


@pytest.mark.parametrize("protocol", ["pulsar", "http", "mqtt", "tubemq"])
async def test_an_address_that_swallows_everything_leaves_the_next_its_time(protocol: str) -> None:
    with (
        forebay.Broker(durability="memory", http_port=0, mqtt_port=0, tubemq_port=0) as broker,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        scheme, _, address = broker.urls[protocol].partition("://")
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]},{address}"
        client: Any = await forebay.connect(url, connect_timeout=5)
        await client.close()


@pytest.mark.parametrize("scheme", ["pulsar", "http", "mqtt", "ws", "tubemq"])
async def test_a_silent_server_has_the_connect_timeout_whatever_requests_have(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}"
        limits: dict[str, Any] = {"connect_timeout": 0.3, "operation_timeout": 3 * PATIENCE}
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(errors.Timeout):
                await forebay.connect(url, **limits)
