"""Handles on event loops of asyncio and of others: a handle is used on the loop that it was opened on, and
says so otherwise."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

import forebay
from forebay import errors

PATIENCE = 30
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.mark.parametrize("loop", LOOPS)
def test_messages_come_and_go_on_every_loop(broker: Any, loop: str) -> None:
    async def main() -> list[bytes]:
        async with forebay.connect(broker.url) as client:
            topic = broker.topic()
            options = {} if broker.url.startswith("mqtt") else {"subscription": "s", "position": "earliest"}
            if broker.url.startswith("tubemq"):
                options["position"] = "first"
            async with client.consumer(topic, **options) as consumer, client.producer(topic) as producer:
                await asyncio.gather(*[producer.send(b"%d" % i) for i in range(100)])
                payloads: list[bytes] = []
                async with asyncio.timeout(PATIENCE):
                    async for message in consumer:
                        payloads.append(message.data)
                        await consumer.ack(message)
                        if len(payloads) == 100:
                            break
                return payloads

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert sorted(runner.run(main())) == sorted(b"%d" % i for i in range(100))


@pytest.mark.parametrize(("loop", "other"), [("asyncio", "uvloop"), ("uvloop", "asyncio")])
def test_a_send_on_another_loop_is_refused(broker: Any, loop: str, other: str) -> None:
    """Also in the thread of the handle's own loop, while that does not run."""

    async def opened() -> tuple[Any, Any]:
        client: Any = await forebay.connect(broker.url)
        return client, await client.producer(broker.topic())

    async def send(producer: Any) -> None:
        await producer.send(b"x")

    async def close(client: Any) -> None:
        await client.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        client, producer = runner.run(opened())
        with pytest.raises(errors.InvalidArgument, match="belongs to another event loop"):
            producer.send(b"x")
        with (
            asyncio.Runner(loop_factory=LOOPS[other]) as second,
            pytest.raises(errors.InvalidArgument, match="belongs to another event loop"),
        ):
            second.run(send(producer))
        runner.run(send(producer))
        runner.run(close(client))


class Opened:
    """A client with a handle of each kind."""

    async def open(self, broker: Any) -> None:
        options: dict[str, Any] = {} if broker.url.startswith("mqtt") else {"subscription": "s"}
        self.client: Any = await forebay.connect(broker.url)
        topic = broker.topic()
        self.producer: Any = await self.client.producer(topic)
        self.consumer: Any = await self.client.consumer(topic, **options)
        self.listener = self.consumer.listen(lambda message: None)
        self.events = self.client.events()
        self.callback = self.client.on_event(lambda event: None)
        await asyncio.sleep(0)

    @property
    def endings(self) -> list[Callable[[], Any]]:
        """What may be called to end them."""
        return [
            *(self.listener.stop, self.listener.wait, self.consumer.close, self.producer.close),
            *(self.client.close, lambda: self.client.__aexit__(None, None, None)),
            *(self.callback.stop, self._read),
        ]

    async def _read(self) -> None:
        async for _ in self.events:
            pass


async def ended(act: Callable[[], Any]) -> None:
    done = act()
    if done is not None:
        async with asyncio.timeout(PATIENCE):
            await done


@pytest.mark.parametrize(("loop", "other"), [("asyncio", "uvloop"), ("uvloop", "asyncio")])
def test_nothing_is_closed_from_another_loop(broker: Any, loop: str, other: str) -> None:
    handles = Opened()
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(handles.open(broker))
        with asyncio.Runner(loop_factory=LOOPS[other]) as second:
            for ending in handles.endings:
                with pytest.raises(errors.InvalidArgument, match="belongs to another event loop"):
                    second.run(ended(ending))
        assert not handles.client.closed and not handles.producer.closed and not handles.consumer.closed

        async def work() -> None:
            await handles.producer.send(b"x")
            await handles.client.close()

        runner.run(work())
        assert handles.client.closed


@pytest.mark.parametrize(("loop", "other"), [("asyncio", "uvloop"), ("uvloop", "asyncio")])
@pytest.mark.filterwarnings("error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning")
def test_handles_of_a_loop_that_was_closed_are_released(broker: Any, loop: str, other: str) -> None:
    handles = Opened()
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(handles.open(broker))
    with asyncio.Runner(loop_factory=LOOPS[other]) as second:
        for ending in handles.endings * 2:
            second.run(ended(ending))
        assert handles.client.closed and handles.producer.closed and handles.consumer.closed
        assert not handles.client.connected
    del handles
    gc.collect()
