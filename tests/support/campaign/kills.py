"""The campaign of kills."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

from support.campaign.flows import PROTOCOLS
from support.campaign.run import (
    ClientProcess,
    Neighbour,
    audit_pulsar,
    audit_tubemq,
    keep_for_audit,
    steady_mqtt,
)
from support.chance import seeded
from support.scripts import free_port
from support.service import BrokerProcess


async def kills(folder: Path, *, rounds: int | None = None, seconds: float | None = None) -> None:
    """Kills the client and the broker in turn, so often or for so long, and judges the ledger.

    The broker keeps its data with fsync. Most rounds let all flows and receivers proceed first; a quarter do
    not, so that a kill also hits a recovery.
    """
    chance = seeded()
    ports = {protocol: free_port() for protocol in ("mqtt", "tubemq")}
    broker = BrokerProcess(
        folder / "data",
        *("--durability", "fsync", "-X", "mqtt_max_queue=1000000", "-X", "tubemq_client_timeout=3"),
        *("--topic", "campaign-parts=3", "--topic", "tubemq:campaign=3"),
        *(word for protocol, port in ports.items() for word in (f"--{protocol}-port", str(port))),
    )
    urls = {protocol: f"{protocol}://127.0.0.1:{port}" for protocol, port in ports.items()}
    urls = {"pulsar": broker.url} | urls
    client = ClientProcess(folder, urls)
    receivers = {name: flows for one in PROTOCOLS.values() for name, flows in one.receivers.items()}
    end = time.monotonic() + seconds if seconds else None
    counts = {"client": 0, "broker": 0}
    neighbour: Neighbour | None = None
    broker.start()
    try:
        neighbour = Neighbour(broker.data / "broker.db", folder)
        await keep_for_audit(urls["pulsar"])
        async with steady_mqtt(folder, urls["mqtt"]):
            client.start()
            await client.progress(20)
            while (rounds is None or sum(counts.values()) < rounds) and (
                end is None or time.monotonic() < end
            ):
                victim = ("client", "broker")[sum(counts.values()) % 2]
                if chance.random() < 0.75:
                    await client.progress(5)
                await asyncio.sleep(chance.random() * 0.2)
                if victim == "client":
                    client.kill()
                    client.start()
                else:
                    await asyncio.to_thread(broker.end)
                    await asyncio.sleep(chance.choice((0, 0, 0.2)))
                    await asyncio.to_thread(broker.start)
                counts[victim] += 1
            await client.progress(20)
            pending = await asyncio.to_thread(client.drain)
            receivers["mqtt-steady"] = tuple(PROTOCOLS["mqtt"].flows)
            await client.complete(receivers)
            # What is repeated comes soon.
            await asyncio.sleep(0.5)
            await asyncio.to_thread(client.end)
        receivers |= await audit_pulsar(folder, urls["pulsar"])
        receivers |= await audit_tubemq(folder, urls["tubemq"])
        reads = neighbour.reads
        print(f"kills: {counts}; the neighbour has read the database {reads} times")
        client.judge(receivers, killed=True, pending=pending)
        assert reads > sum(counts.values()), "the neighbour could read"
    finally:
        if neighbour is not None:
            neighbour.end()
        with contextlib.suppress(OSError):
            client.kill()
        if broker.is_running:
            broker.end()
