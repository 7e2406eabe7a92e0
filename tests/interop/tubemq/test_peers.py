"""The server of `support.tubemq.liar`, judged by the official Java client."""

from __future__ import annotations

import asyncio

import pytest

from support.tubemq.harness import group
from support.tubemq.java import Java
from support.tubemq.liar import Liar

pytestmark = [pytest.mark.real_tubemq, pytest.mark.timeout(400)]


@pytest.mark.parametrize("balance", ["server", "client"])
async def test_the_liar_is_honest_by_itself(java: Java, balance: str) -> None:
    liar = Liar({"demo": 2})

    def talk(address: str) -> None:
        consume = java.pull if balance == "server" else java.balance
        name = group()
        with (
            java.producer(address, "demo") as producer,
            consume(address, name, {"demo": ["till"]}, position="first") as filtered,
            consume(address, group(), "demo", position="first") as consumer,
        ):
            at = producer.send("demo", b"first", type="till", attributes={"a": "b"})
            assert at["success"] and at["offset"] == 0
            sent = [b"%d" % number for number in range(200)]
            producer.send_all("demo", sent)
            got = consumer.receive(201)
            assert sorted(one.data for one in got) == sorted([b"first", *sent])
            assert [one.attributes["a"] for one in filtered.receive(1)] == ["b"]
            filtered.nothing()
        # A later member resumes at the position of the group.
        with consume(address, name, {"demo": ["till"]}, position="first") as again:
            again.nothing()

    async with liar.up() as url:
        await asyncio.to_thread(talk, url.removeprefix("tubemq://"))
    methods = {"producer_register", "producer_heartbeat", "producer_close", "consumer_close", "send", "get"}
    methods |= {"commit", "partition_register"}
    master = "consumer" if balance == "server" else "balance"
    methods |= {f"{master}_register", f"{master}_heartbeat"} - {"balance_heartbeat"}
    assert methods <= liar.asked.keys()
