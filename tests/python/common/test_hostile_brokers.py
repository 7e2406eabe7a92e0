"""What a hostile broker costs its clients: memory, processor time, connections and descriptors stay within
the limits of the options, whatever it sends, and whether it reads or not.

Each client is a process of its own. An attack ends when the broker has sent all that it may, or after some
seconds. Limits are generous: they are missed by multiples where one is forgotten.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support import hostile_client
from support.hostile import Connection, Handler, Hostile, HostileMqtt, HostilePulsar, HostileTubeMq
from support.mqtt import wire as mqtt
from support.pulsar import wire as pulsar
from support.tubemq import wire as tubemq
from support.waiting import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the figures are those of /proc")

MIB = 1 << 20
SECONDS = 3
"""Of an attack that would have no end."""
SENT = 16 * MIB
AT_ONCE = 4
"""Attacks side by side."""


@dataclass(frozen=True)
class Attack:
    """What a broker does, and what its client may spend."""

    answers: dict[Any, Handler]
    work: str = "consume"
    budget: int = 64 * MIB
    """Bytes that the broker sends at most."""
    memory: int = 16 * MIB
    """Growth of the resident memory at most. The options allow 1 MiB of received messages, and 1 MiB of
    answers may wait. Senders may hold as much again as ``memory_limit``, which is :data:`SENT`."""
    connections: int = 60
    """Connections in :data:`SECONDS` at most: the pauses between them grow."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the client."""
    consumer: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    """Of the order to the client's process."""
    asked: dict[Any, int] = field(default_factory=dict)
    """How often a client may ask at most."""


def flood(make: bytes | Callable[[], bytes], *, deaf: bool = False) -> Callable[[Handler | None], Handler]:
    """Answers well, if there is a good answer, and floods from then on."""

    def after(good: Handler | None) -> Handler:
        def answer(connection: Connection, said: Any) -> None:
            if good:
                good(connection, said)
            connection.flood(make, deaf=deaf)

        return answer

    return after


def honest(kind: Any) -> Handler:
    return lambda connection, said: connection.server.behave(connection, kind, said)


def after(kind: Any, make: bytes | Callable[[], bytes], *, deaf: bool = False) -> dict[Any, Handler]:
    """A flood that follows the honest answer to this."""
    return {kind: flood(make, deaf=deaf)(honest(kind))}


def deaf_to(kind: Any) -> dict[Any, Handler]:
    """Reads nothing after this."""

    def answer(connection: Connection, said: Any) -> None:
        connection.server.behave(connection, kind, said)
        connection.is_deaf = True

    return {kind: answer}


# ------------------------------------------------------------------------------ Pulsar


def delivery(number: int, payload: bytes, consumer: int = 0) -> bytes:
    return pulsar.frame(pulsar.MESSAGE, {1: consumer, 2: {1: 1, 2: number}}, rest=payload)


def entry(payload: bytes, metadata: dict[int, Any]) -> bytes:
    """Without a checksum, which takes long to compute here."""
    head = pulsar.message({1: "p", 2: 0, 3: 1_700_000_000_000} | metadata)
    return struct.pack(">I", len(head)) + head + payload


def by_permits(make: Callable[[int], bytes]) -> dict[Any, Handler]:
    """As many entries as the client has asked for."""
    number = 0

    def flow(connection: Connection, said: Any) -> None:
        nonlocal number
        for _ in range(said[0][2][0]):
            if connection.server.sent > connection.server.budget:
                return
            connection.send(delivery(number, make(number)))
            number += 1

    return {pulsar.FLOW: flow}


def closes(connection: Connection, said: Any) -> None:
    fields = said[0]
    connection.send(
        pulsar.frame(pulsar.SUCCESS, {1: fields[5][0]}),
        pulsar.frame(pulsar.CLOSE_CONSUMER, {1: fields[4][0], 2: pulsar.NO_REQUEST}),
    )


def redirects(connection: Connection, said: Any) -> None:
    url = connection.server.url
    connection.send(pulsar.frame(pulsar.LOOKUP_RESPONSE, {1: url, 3: 0, 4: said[0][2][0], 5: 1}))


def many_topics(connection: Connection, said: Any) -> None:
    body = pulsar.message({1: said[0][1][0], 4: "h", 5: 1}) + TOPICS
    connection.send(pulsar.raw(b"\x08\x21" + pulsar.varint(33 << 3 | 2) + pulsar.varint(len(body)) + body))


def twice(kind: int) -> Handler:
    def answer(connection: Connection, said: Any) -> None:
        for _ in range(2):
            connection.server.behave(connection, kind, said)

    return answer


TOPICS = b"".join(pulsar.message({2: f"persistent://public/default/t{number}"}) for number in range(2000))
BOMB = zlib.compress(bytes(5 * MIB))
UNKNOWN = b"".join(
    pulsar.frame(pulsar.SUCCESS, {1: 1_000_000 + number})
    + pulsar.frame(pulsar.LOOKUP_RESPONSE, {1: "pulsar://127.0.0.9:1", 3: 0, 4: 1_000_000 + number})
    + pulsar.frame(pulsar.ERROR, {1: 2_000_000 + number, 2: 0, 3: "no"})
    + pulsar.frame(pulsar.SEND_RECEIPT, {1: 999, 2: number, 3: {1: 1, 2: 1}})
    for number in range(500)
)

PULSAR: dict[str, Attack] = {
    # It is given up when 64 MiB too many have come.
    "messages beyond the permits": Attack(
        after(pulsar.SUBSCRIBE, delivery(0, entry(bytes(100_000), {})) * 10),
        budget=256 * MIB,
        memory=128 * MIB,
    ),
    "PING, and reads nothing": Attack(after(pulsar.CONNECT, pulsar.frame(pulsar.PING) * 2000, deaf=True)),
    "challenges, and reads nothing": Attack(
        after(
            pulsar.CONNECT,
            pulsar.frame(pulsar.AUTH_CHALLENGE, {1: "e", 2: {1: "token", 2: b"x"}}) * 500,
            deaf=True,
        ),
        more={"challenged": True},
    ),
    "answers that nobody asked for": Attack(after(pulsar.SUBSCRIBE, UNKNOWN)),
    "CLOSE_CONSUMER": Attack(
        after(pulsar.SUBSCRIBE, pulsar.frame(pulsar.CLOSE_CONSUMER, {1: 0, 2: pulsar.NO_REQUEST}) * 1000),
        asked={pulsar.SUBSCRIBE: 60},
    ),
    "closes each consumer": Attack({pulsar.SUBSCRIBE: closes}, asked={pulsar.SUBSCRIBE: 60}),
    "active and inactive": Attack(
        after(pulsar.SUBSCRIBE, b"".join(pulsar.frame(31, {1: 0, 2: active}) for active in (0, 1)) * 500),
        consumer={"type": "failover"},
    ),
    "redirects to itself": Attack({pulsar.LOOKUP: redirects}, asked={pulsar.LOOKUP: 600}),
    "many topics of a pattern": Attack(
        {pulsar.TOPICS: many_topics}, more={"by_pattern": True}, memory=128 * MIB
    ),
    "answers twice": Attack(
        {kind: twice(kind) for kind in (pulsar.PARTITIONS, pulsar.LOOKUP, pulsar.SUBSCRIBE, pulsar.PING)}
    ),
    "two handshakes in one": Attack({pulsar.CONNECT: twice(pulsar.CONNECT)}),
    "chunks that are never complete": Attack(
        by_permits(
            lambda number: entry(bytes(50_000), {8: 0, 26: f"u{number}", 27: 100, 28: 5_000_000, 29: 0})
        )
    ),
    "batches that claim two billion messages": Attack(
        by_permits(lambda _: entry(bytes(100), {11: 2**31 - 1})), budget=8 * MIB
    ),
    "bombs that claim more": Attack(by_permits(lambda _: entry(BOMB, {8: 2, 9: 2**32 - 1})), budget=32 * MIB),
    "reads nothing": Attack(deaf_to(pulsar.PRODUCER), "produce"),
    "never answers a SEND": Attack({pulsar.SEND: lambda *_: None}, "produce"),
}

# ------------------------------------------------------------------------------ MQTT


def in_turn(make: Callable[[int], bytes], count: int = 100) -> Callable[[], bytes]:
    """Packets whose identifiers differ."""
    number = 0

    def lot() -> bytes:
        nonlocal number
        number += count
        return b"".join(make((number + index) % 65_535 + 1) for index in range(count))

    return lot


def aliased(number: int) -> bytes:
    return mqtt.publish("t" * 65_000 + str(number % 100), b"", props={"topic_alias": number % 100 + 1})


def sends_away(connection: Connection, said: Any) -> None:
    connection.server.behave(connection, mqtt.SUBSCRIBE, said)
    connection.send(mqtt.disconnect(0x9C))


MQTT: dict[str, Attack] = {
    "QoS 0 that nobody takes": Attack(after(mqtt.SUBSCRIBE, mqtt.publish("t", bytes(100_000)) * 10)),
    "QoS 1 that nobody takes": Attack(
        after(mqtt.SUBSCRIBE, in_turn(lambda number: mqtt.publish("t", bytes(1000), 1, number)))
    ),
    "QoS 2 that is never released": Attack(
        after(mqtt.SUBSCRIBE, in_turn(lambda number: mqtt.publish("t", bytes(1000), 2, number)))
    ),
    "PUBREL, and reads nothing": Attack(after(mqtt.CONNECT, mqtt.ack(mqtt.PUBREL, 7) * 5000, deaf=True)),
    "QoS 1 for nobody, and reads nothing": Attack(
        after(mqtt.CONNECT, in_turn(lambda number: mqtt.publish("u", b"", 1, number)), deaf=True)
    ),
    "PINGRESP": Attack(after(mqtt.CONNECT, mqtt.packet(mqtt.PINGRESP) * 5000)),
    "answers that nobody asked for": Attack(
        after(
            mqtt.SUBSCRIBE,
            b"".join(mqtt.ack(kind, 9) for kind in (mqtt.PUBACK, mqtt.PUBREC, mqtt.PUBCOMP)) * 500,
        )
    ),
    "AUTH, and reads nothing": Attack(
        after(
            mqtt.CONNECT,
            mqtt.auth(0x18, [("authentication_method", "m"), ("authentication_data", b"x")]) * 500,
            deaf=True,
        ),
        more={"authenticated": True},
    ),
    "aliases of long topics": Attack(after(mqtt.SUBSCRIBE, in_turn(aliased, 20)), memory=32 * MIB),
    "ends each connection": Attack({mqtt.SUBSCRIBE: sends_away}),
    "reads nothing": Attack(deaf_to(mqtt.CONNECT), "produce"),
    "never answers a PUBLISH": Attack({mqtt.PUBLISH: lambda *_: None}, "produce"),
}

# ------------------------------------------------------------------------------ TubeMQ


def said(**fields: Any) -> Handler:
    """The honest answer with these fields."""

    def answer(connection: Connection, asked: tubemq.Request) -> None:
        server: Any = connection.server
        server.liar.port = server.port
        connection.send(tubemq.response(asked.serial, asked.name, **(server.liar.fields(asked) | fields)))

    return answer


def pack(size: int, count: int) -> dict[str, Any]:
    messages = [tubemq.transfered(bytes(size), message_id=number) for number in range(count)]
    return {
        "success": True,
        "errCode": 200,
        "errMsg": "OK!",
        "messages": messages,
        "currOffset": 0,
        "maxOffset": 28 * count,
    }


def twice_tubemq(connection: Connection, asked: tubemq.Request) -> None:
    for _ in range(2):
        connection.server.behave(connection, asked.name, asked)


TUBEMQ: dict[str, Attack] = {
    "answers that nobody asked for": Attack(
        after(
            "get",
            b"".join(
                tubemq.response(10_000 + n, "get", success=True, errCode=404, errMsg="no")
                for n in range(1000)
            ),
        )
    ),
    "answers twice": Attack(dict.fromkeys(tubemq.METHODS, twice_tubemq)),
    "frames of two billion blocks": Attack(
        after(
            "producer_register",
            struct.pack(">III", tubemq.TOKEN, 1, 2**31 - 1) + (struct.pack(">I", 8192) + bytes(8192)) * 20,
        )
    ),
    "large packs": Attack({"get": said(**pack(400_000, 2))}),
    "packs of small messages": Attack({"get": said(**pack(1, 5000))}),
    "many topics": Attack(
        {"producer_heartbeat": said(topicInfos=[f"t{n}#1:1:1" for n in range(20_000)])}, "produce"
    ),
    "a topic of a billion partitions": Attack(
        {"producer_heartbeat": said(topicInfos=["demo#1:1000000000:1"])}, "produce"
    ),
    "many brokers": Attack(
        {"producer_register": said(brokerInfos=[f"{n}:127.0.0.1:9" for n in range(20_000)])}
    ),
    "rules that are nested": Attack(
        {"consumer_heartbeat": said(defFlowCheckId=1, defFlowControlInfo="[" * 100_000)},
        consumer={"balance": "server"},
    ),
    "reads nothing": Attack(deaf_to("send"), "produce"),
    "never answers a send": Attack({"send": lambda *_: None}, "produce"),
}

SERVERS: dict[str, type[Hostile]] = {"pulsar": HostilePulsar, "mqtt": HostileMqtt, "tubemq": HostileTubeMq}
ATTACKS = {"pulsar": PULSAR, "mqtt": MQTT, "tubemq": TUBEMQ}
CLIENTS: dict[str, dict[str, Any]] = {
    "pulsar": {"operation_timeout": 2},
    "mqtt": {"receive_buffer": MIB, "receive_maximum": 10},
    "tubemq": {"receive_buffer": MIB, "request_timeout": 2, "heartbeat_interval": 0.5},
}
CONSUMERS: dict[str, dict[str, Any]] = {
    "pulsar": {"subscription": "s", "receive_buffer": MIB},
    "mqtt": {"qos": 2},
    "tubemq": {"subscription": "s", "position": "first"},
}


async def attack(protocol: str, row: Attack) -> dict[str, Any]:
    """What it costs."""
    server = SERVERS[protocol](row.answers, row.budget)
    async with server.up("0.0.0.0"):
        order = {
            "url": server.url,
            "work": row.work,
            "topic": "demo" if protocol == "tubemq" else "t",
            "client": {"connect_timeout": PATIENCE, "max_backoff": 1, "memory_limit": SENT}
            | CLIENTS[protocol]
            | row.options,
            "consumer": CONSUMERS[protocol] | row.consumer,
            "send": {"qos": 1} if protocol == "mqtt" else {},
        } | row.more
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, str(Path(hostile_client.__file__)), json.dumps(order)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert child.stdout and child.stdin
        try:
            assert await asyncio.wait_for(child.stdout.readline(), PATIENCE), "the client did not start"
            await spent(server)
            child.stdin.close()
            cost = json.loads(await asyncio.wait_for(child.stdout.readline(), PATIENCE))
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()
    assert not server.broken, server.broken
    return cost | {
        "sent": server.sent,
        "connections": server.connections,
        "most": server.most,
        "asked": server.asked,
    }


async def spent(server: Hostile) -> None:
    """Waits until all is sent, or some seconds since the client has come."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while server.sent < server.budget:
        if not server.connections:
            began = loop.time()
        if loop.time() - began > SECONDS:
            return
        await asyncio.sleep(0.05)


def excess(row: Attack, cost: dict[str, Any]) -> list[str]:
    """The limits that do not hold."""
    limits = {
        "memory": row.memory + (2 * SENT if row.work == "produce" else 0),
        # A debug build, beside others.
        "seconds": SECONDS * 2 + 3 * cost["sent"] / MIB,
        "connections": row.connections,
        "descriptors": 100,
    }
    over = [f"{name} {cost[name]} > {limit}" for name, limit in limits.items() if cost[name] > limit]
    return over + [
        f"{kind} {cost['asked'][kind]} > {n}" for kind, n in row.asked.items() if cost["asked"][kind] > n
    ]


@pytest.mark.parametrize("protocol", ATTACKS)
async def test_what_a_hostile_broker_costs(protocol: str) -> None:
    rows, turns = ATTACKS[protocol], asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> str:
        async with turns:
            cost = await attack(protocol, rows[name])
        print(f"{protocol}, {name}: {cost}")
        over = excess(rows[name], cost)
        return f"{name}: {over} of {cost}" if over else ""

    results = await asyncio.gather(*map(one, rows), return_exceptions=True)
    found = [
        f"{name}: {result!r}" if isinstance(result, BaseException) else result
        for name, result in zip(rows, results, strict=True)
    ]
    assert not any(found), "\n".join(filter(None, found))
