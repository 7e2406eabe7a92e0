"""The engine's log records: their loggers, what they tell, and what they never hold."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import forebay
from forebay import errors
from forebay._core.native import log_records_dropped

from support.mqtt.harness import EmbeddedMqtt
from support.observing import behind, seek
from support.pulsar.harness import PulsarService
from support.scripts import free_port
from support.waiting import eventually, until

CANARY = "canary-57a1"


class Kept(logging.Handler):
    """Keeps the records, with everything that a formatter could show."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def texts(self, logger: str) -> list[str]:
        return [record.getMessage() for record in list(self.records) if record.name == logger]

    def has(self, logger: str, text: str) -> bool:
        return any(text in one for one in self.texts(logger))


@pytest.fixture
def kept() -> Iterator[Kept]:
    """The records of ``forebay`` at all levels."""
    logger, handler = logging.getLogger("forebay"), Kept()
    before = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    dead = f"mqtt://127.0.0.1:{free_port()}"

    def is_heard() -> bool:
        # The engine looks the level up again after a moment.
        with pytest.raises(errors.ConnectFailed):
            forebay.blocking.connect(dead)
        return bool(handler.records)

    eventually(is_heard)
    eventually(lambda: handler.has("forebay.mqtt.connection", "attempt 1"))
    handler.records.clear()
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.fixture(params=["pulsar", "mqtt", "tubemq"])
def broker(request: pytest.FixtureRequest) -> Any:
    """The embedded broker, by each protocol."""
    name = {"pulsar": "embedded", "mqtt": "embedded_mqtt", "tubemq": "embedded_tubemq"}[request.param]
    return request.getfixturevalue(name)


async def test_connects_and_losses_are_records_of_the_protocol_s_logger(broker: Any, kept: Kept) -> None:
    protocol = broker.url.partition(":")[0]
    logger = f"forebay.{protocol}.connection"
    async with behind(broker.url, told=protocol != "mqtt") as (proxy, url):
        address = f"127.0.0.1:{proxy.port}"
        async with forebay.connect(url, max_backoff=0.1) as client:
            topic = broker.topic()
            async with client.consumer(topic, "s") if protocol != "mqtt" else client.consumer(topic):
                await until(lambda: kept.has(logger, f"connected to {address}"))
                await proxy.deafen()
                proxy.cut()
                await until(lambda: kept.has(logger, f"the connection to {address} ended: "))
                await until(lambda: kept.has(logger, "attempt 2 to connect failed: "))
                if protocol == "mqtt":
                    assert kept.has(logger, "; the next one follows in ")
                await proxy.listen()
                await until(lambda: kept.has(logger, " attempts"))
        await until(lambda: kept.has(logger, f"disconnected from {address}: the client was closed"))
    for text, level in {"connected to": "INFO", "ended": "WARNING", "attempt 2": "DEBUG"}.items():
        of = {record.levelname for record in kept.records if text in record.getMessage()}
        assert of == {level}, kept.records


async def test_a_client_that_gives_up_is_a_warning(embedded_mqtt: EmbeddedMqtt, kept: Kept) -> None:
    first = await forebay.connect(embedded_mqtt.url, client_id="the-same")
    async with forebay.connect(embedded_mqtt.url, client_id="the-same"):
        await seek(first.events(), "gave_up")
        logger = "forebay.mqtt.connection"
        await until(lambda: kept.has(logger, "gave up: "))
    await first.close()
    told = [record for record in kept.records if record.getMessage().startswith("gave up: ")]
    assert [record.levelno for record in told] == [logging.WARNING]


async def test_no_secret_is_in_any_record(broker: Any, kept: Kept) -> None:
    protocol = broker.url.partition(":")[0]
    options: dict[str, Any] = {
        "pulsar": {"token": CANARY},
        "mqtt": {"username": f"{CANARY}-user", "password": f"{CANARY}-password"},
        "tubemq": {"username": f"{CANARY}-user", "password": f"{CANARY}-password"},
    }[protocol]
    async with behind(broker.url, told=protocol != "mqtt") as (proxy, url):
        async with forebay.connect(url, max_backoff=0.1, **options) as client:
            topic = broker.topic()
            async with client.consumer(topic, "s") if protocol != "mqtt" else client.consumer(topic):
                proxy.cut()
                await until(lambda: client.stats()["reconnects"])
        # Refused by name, before anything is sent.
        secret_url = url.replace("://", f"://{CANARY}:{CANARY}@")
        with pytest.raises(errors.InvalidArgument) as refused:
            await forebay.connect(secret_url)
        assert CANARY not in str(refused.value)
        with pytest.raises(errors.Error):
            await forebay.connect(f"{protocol}://127.0.0.1:{free_port()}", connect_timeout=2, **options)
        events = [repr(event) async for event in closed_events(url, options)]
    await until(lambda: kept.has(f"forebay.{protocol}.connection", "the client was closed"))
    shown = [f"{record.__dict__}" for record in kept.records] + events
    assert shown and not [one for one in shown if CANARY in one]


async def closed_events(url: str, options: dict[str, Any]) -> Any:
    client = await forebay.connect(url, **options)
    events = client.events()
    await client.close()
    async for event in events:
        yield event


async def test_a_refused_secret_is_not_in_the_record_of_the_refusal(kept: Kept) -> None:
    with forebay.Broker(durability="memory", token_key="k" * 32) as broker:
        with pytest.raises(errors.AuthenticationError):
            await forebay.connect(broker.url, token=CANARY)
        logger = "forebay.pulsar.connection"
        await until(lambda: kept.has(logger, "attempt 1 to connect"))
    assert not [record for record in kept.records if CANARY in f"{record.__dict__}"]


def test_a_handler_that_hangs_holds_up_no_client_and_drops_are_counted(
    embedded: PulsarService, kept: Kept
) -> None:
    """The queue is bounded, and the engine goes on."""
    hangs = threading.Event()
    stuck = threading.Event()
    before = log_records_dropped()

    class Hanging(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            stuck.set()
            hangs.wait(60)

    handler = Hanging()
    logger = logging.getLogger("forebay.pulsar.connection")
    logger.addHandler(handler)
    dead = f"pulsar://127.0.0.1:{free_port()}"

    async def fail_often() -> None:
        async with forebay.connect(embedded.url):
            assert await asyncio.to_thread(stuck.wait, 30)
            for _ in range(12):
                tries = [asyncio.ensure_future(attempt(dead)) for _ in range(100)]
                await asyncio.gather(*tries)

    async def attempt(url: str) -> None:
        with pytest.raises(errors.ConnectFailed):
            await forebay.connect(url)

    try:
        asyncio.run(fail_often())
        assert log_records_dropped() - before >= 100
    finally:
        logger.removeHandler(handler)
        hangs.set()
    eventually(lambda: kept.has("forebay", "log records were dropped, because handlers were too slow"))


def test_a_logger_that_raises_costs_no_other_record(
    embedded: PulsarService, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = threading.Event()

    def fails(*_: Any) -> int:
        raised.set()
        raise RuntimeError("of the logger")

    def ignored(_: Any) -> None:
        """The error is reported, and not this test's concern."""

    monkeypatch.setattr(sys, "unraisablehook", ignored)
    monkeypatch.setattr(logging.getLogger("forebay.mqtt.connection"), "getEffectiveLevel", fails)
    with forebay.blocking.connect(embedded.url):
        pass
    eventually(lambda: kept.has("forebay.pulsar.connection", "the client was closed"))
    assert raised.is_set() and kept.has("forebay.pulsar.connection", "connected to ")


def test_a_backlog_of_records_does_not_hold_up_the_exit(embedded: PulsarService) -> None:
    program = """
        import asyncio, contextlib, logging, sys, time
        import forebay

        class Slow(logging.Handler):
            def emit(self, record):
                time.sleep(0.1)

        logger = logging.getLogger("forebay")
        logger.addHandler(Slow())
        logger.setLevel(logging.DEBUG)

        async def attempt(url):
            with contextlib.suppress(forebay.Error):
                await forebay.connect(url)

        async def main(url):
            await asyncio.gather(*[attempt(url) for _ in range(200)])

        asyncio.run(main(sys.argv[1]))
        print("ended")
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), f"pulsar://127.0.0.1:{free_port()}"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "ended\n", "")


def test_records_after_a_fork_and_at_exit_do_no_harm(embedded: PulsarService) -> None:
    program = """
        import asyncio, logging, os, sys
        import forebay
        logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)

        async def main(url):
            async with forebay.connect(url):
                pass

        asyncio.run(main(sys.argv[1]))
        child = os.fork()
        asyncio.run(main(sys.argv[1]))
        if child:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    ran = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program), embedded.url],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0 and not ran.stderr, ran
    assert ran.stdout.count("forebay.pulsar.connection:connected to ") >= 2, ran.stdout


def test_a_fork_waits_for_the_record_that_a_handler_writes(embedded: PulsarService) -> None:
    program = """
        import asyncio, logging, os, sys, threading, time
        import forebay

        lock, entered = threading.Lock(), threading.Event()

        class Writes(logging.Handler):
            def emit(self, record):
                with lock:
                    entered.set()
                    time.sleep(0.2)

        logging.getLogger("forebay").addHandler(Writes())
        logging.getLogger("forebay").setLevel(logging.INFO)

        async def main(url):
            async with forebay.connect(url):
                pass

        asyncio.run(main(sys.argv[1]))
        assert entered.wait(30)
        child = os.fork()
        if child == 0:
            os._exit(0 if lock.acquire(timeout=10) else 1)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    ran = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program), embedded.url],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
