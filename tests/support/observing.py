"""Connection events of a client behind a proxy, the same steps for every protocol."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from forebay import ConnectionEvent

from support.chaos import ChaosProxy
from support.scripts import free_port
from support.waiting import PATIENCE, until


@contextlib.asynccontextmanager
async def behind(url: str, *, told: bool) -> AsyncIterator[tuple[ChaosProxy, str]]:
    """A proxy in front of the broker at ``url``, and its URL. ``told``: the broker tells its address."""
    parts = urllib.parse.urlsplit(url)
    assert parts.port
    replaces = parts.netloc if told else None
    async with ChaosProxy(parts.port, seed=1, port=free_port(), replaces=replaces) as proxy:
        yield proxy, f"{parts.scheme}://127.0.0.1:{proxy.port}"


async def seek(events: Any, kind: str, **fields: Any) -> ConnectionEvent:
    """The next event of this kind."""

    async def look() -> ConnectionEvent:
        async for event in events:
            if event.kind == kind and all(getattr(event, name) == fields[name] for name in fields):
                return event
        raise AssertionError(f"the events ended before {kind}")

    return await asyncio.wait_for(look(), PATIENCE)


async def follow_a_loss(client: Any, proxy: ChaosProxy, works: Callable[[], Awaitable[Any]]) -> None:
    """Cuts the connections of a client with an open consumer, and follows its events to the end."""
    address = f"127.0.0.1:{proxy.port}"
    seen: list[ConnectionEvent] = []
    callback = client.on_event(seen.append)
    events = client.events()
    first = await seek(events, "connected")
    assert first.attempts == 1 and first.address == address
    await works()
    await proxy.deafen()
    proxy.cut()
    lost = await seek(events, "disconnected")
    assert lost.address == address and lost.error is not None and lost.error.code != "closed"
    failed = await seek(events, "connect_failed")
    assert failed.address == address and failed.error is not None and failed.attempts == 1
    await proxy.listen()
    # Another of its connections may have been up at the time.
    again = await seek(events, "connected")
    while again.attempts == 1:
        again = await seek(events, "connected")
    await works()
    opened = client.stats()["connections_opened"]
    assert client.stats()["reconnects"] >= 1 and opened >= 2
    assert client.stats()["connect_failures"] >= 1
    await client.close()
    rest = [event async for event in events]
    assert rest and all(event.kind in {"disconnected", "resubscribed"} for event in rest if event.error), rest
    assert rest[-1].kind == "disconnected" and rest[-1].error and rest[-1].error.code == "closed"
    assert [event async for event in events] == [], "the end is the end"
    # The callback has seen the same, before close() returned.
    assert seen[0] == first and seen[-1] == rest[-1] and lost in seen and again in seen
    assert callback.failed == callback.missed == events.missed == 0


async def raise_in_callbacks(client: Any, caplog: Any) -> None:
    """A callback that raises is logged and counted, and called with the next event."""
    seen: list[ConnectionEvent] = []

    async def raises(event: ConnectionEvent) -> None:
        seen.append(event)
        raise RuntimeError("of the callback")

    stuck = asyncio.Event()

    async def hangs(_: ConnectionEvent) -> None:
        await stuck.wait()

    with caplog.at_level("ERROR", "forebay.events"):
        callback = client.on_event(raises)
        client.on_event(hangs)
        await until(lambda: callback.failed)
        stuck.set()
        await client.close()
    assert len(seen) == callback.failed >= 2
    told = [record for record in caplog.records if record.name == "forebay.events"]
    assert len(told) == len(seen) and "of the callback" in told[0].getMessage()


def check_latency(sent: dict[str, Any]) -> None:
    """The latencies of a producer that has sent something."""
    shares = [sent[f"send_latency_{share}"] for share in ("p50", "p90", "p99", "p999")]
    assert sent["send_latency_count"] >= 1 and sent["send_latency_sum"] > 0
    assert shares == sorted(shares) and shares[0] > 0 and shares[-1] < PATIENCE


def check_sums(client: Any, producers: list[Any], consumers: list[Any]) -> None:
    """A client's counters are the sums of those of its handles."""
    total = client.stats()
    for name, handles in {
        **dict.fromkeys(("messages_sent", "bytes_sent", "messages_failed"), producers),
        **dict.fromkeys(("messages_received", "bytes_received", "messages_acknowledged"), consumers),
        "messages_refused": consumers,
    }.items():
        assert total[name] == sum(handle.stats()[name] for handle in handles), name
