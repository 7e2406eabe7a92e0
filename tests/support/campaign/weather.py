"""The campaign of bad networks: the client behind a proxy that misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.campaign import measure
from support.campaign.flows import (
    MQTT_FILTER,
    PROTOCOLS,
    PULSAR_PARTITIONED,
    PULSAR_TOPIC,
    QUICK,
    TUBEMQ_TOPIC,
    Receiver,
    connect,
    opened,
)
from support.campaign.run import ClientProcess
from support.chance import seeded
from support.chaos import ChaosProxy
from support.scripts import free_port


@dataclass
class Behind:
    """A protocol of a broker, before which a proxy stands."""

    #: The broker's own URL, ``protocol://host:port``.
    url: str
    #: Port of the proxy; any free one by default.
    proxy: int = 0
    #: Address of the server that the broker tells its clients, where the proxy has to replace it.
    replaces: str | None = None
    #: Another server that clients find at this address: TubeMQ's broker behind its master.
    second: str | None = None


@dataclass
class Target:
    """A broker with its protocols."""

    name: str
    protocols: dict[str, Behind]
    #: Receivers to which this broker may send QoS 2 again.
    again: frozenset[str] = frozenset()
    #: Measures of the broker.
    sample: Callable[[], measure.Sample] = field(default=dict)


def port_of(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


async def _watch(
    folder: Path, stack: contextlib.AsyncExitStack, protocol: str, url: str
) -> dict[str, tuple[str, ...]]:
    """Starts receivers in this process, without a proxy; returns them with their flows."""
    wanted = {
        "pulsar": [
            ("pulsar-log", PULSAR_TOPIC, ("pulsar",)),
            ("pulsar-parts-log", PULSAR_PARTITIONED, ("pulsar-parts",)),
        ],
        "mqtt": [("mqtt-log", MQTT_FILTER, tuple(PROTOCOLS["mqtt"].flows))],
        "tubemq": [("tubemq-log", TUBEMQ_TOPIC, ("tubemq",))],
    }[protocol]
    options: dict[str, Any] = {
        "pulsar": {"position": "earliest", "subscription": "log"},
        "mqtt": {"qos": 2},
        "tubemq": {"position": "first", "subscription": "log"},
    }[protocol]
    client = await stack.enter_async_context(opened(lambda: connect(url, **QUICK)))
    for name, topic, _ in wanted:
        consumer = await stack.enter_async_context(
            opened(lambda topic=topic: client.consumer(topic, **options))
        )
        task = asyncio.ensure_future(Receiver(folder, name).run(consumer))

        async def end(task: asyncio.Task[None] = task) -> None:
            if task.done():
                task.result()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        stack.push_async_callback(end)
    return {name: flows for name, _, flows in wanted}


async def storm(folder: Path, target: Target, *, seconds: float, every: float = 60.0) -> None:
    """Runs the client through bad weather for so long, and judges the ledger and what was used."""
    chance = seeded()
    receivers: dict[str, tuple[str, ...]] = {}
    samples: list[measure.Sample] = []
    async with contextlib.AsyncExitStack() as stack:
        proxies: dict[str, ChaosProxy] = {}
        urls: dict[str, str] = {}
        for protocol, behind in target.protocols.items():
            receivers |= await _watch(folder, stack, protocol, behind.url)
            replaces = behind.replaces
            if behind.second:
                # Of five digits, as the broker's own.
                second = ChaosProxy(port_of(behind.second), seed=chance.randrange(2**32), port=free_port())
                proxies[f"{protocol}, second"] = await stack.enter_async_context(second)
                replaces = behind.second
            proxy = ChaosProxy(
                port_of(behind.url),
                seed=chance.randrange(2**32),
                port=behind.proxy or free_port(),
                replaces=replaces,
                by=proxies[f"{protocol}, second"].port if behind.second else None,
            )
            proxies[protocol] = await stack.enter_async_context(proxy)
            urls[protocol] = f"{protocol}://127.0.0.1:{proxy.port}"
        client = ClientProcess(folder, urls)
        client.start()
        stack.callback(client.kill)
        await client.progress(20)

        def sample() -> None:
            assert client.process is not None
            found = measure.of_process("client", client.process.pid) | target.sample()
            samples.append(found)
            print(f"{target.name}: {measure.show(found)}")

        sample()
        end = time.monotonic() + seconds
        weather = [asyncio.ensure_future(proxy.weather(seconds)) for proxy in proxies.values()]
        try:
            while (left := end - time.monotonic()) > 0:
                await asyncio.wait(weather, timeout=min(every, left))
                client.check()
                sample()
            await asyncio.gather(*weather)
        finally:
            for task in weather:
                task.cancel()
        # The weather is good again: everything proceeds, and every future ends.
        await client.progress(20)
        pending = await asyncio.to_thread(client.drain)
        receivers |= {
            name: flows
            for protocol in target.protocols
            for name, flows in PROTOCOLS[protocol].receivers.items()
        }
        await client.complete(receivers)
        await asyncio.sleep(0.5)
        sample()
        await asyncio.to_thread(client.end)
    for protocol, proxy in proxies.items():
        print(f"{target.name}, {protocol}: faults {dict(proxy.counts)}")
        with (folder / f"{protocol}.faults").open("w") as log:
            log.writelines(f"{at:.3f} {kind} {number}\n" for at, kind, number in proxy.log)
    client.judge(receivers, killed=False, pending=pending, again=target.again)
    excess = measure.excess(samples)
    assert not excess, excess
