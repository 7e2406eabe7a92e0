"""Counters of clients, producers and consumers: what their docstrings promise."""

from __future__ import annotations

import pytest

from support.observing import check_latency, check_sums
from support.tubemq.harness import TubeMqService, group
from support.tubemq.load import connect, take

pytestmark = pytest.mark.timeout(120)


async def test_what_is_sent_and_received_is_counted(tube: TubeMqService) -> None:
    topic = tube.topic()
    async with connect(tube) as client:
        consumer = await client.consumer(topic, group(), position="first")
        producer = await client.producer(topic)
        await producer.send_many([b"12345"] * 100)
        sent = producer.stats()
        assert (sent["messages_sent"], sent["messages_failed"], sent["messages_pending"]) == (100, 0, 0)
        assert sent["bytes_sent"] >= 500
        check_latency(sent)
        # Acknowledges them.
        await take(consumer, 100)
        got = consumer.stats()
        assert (got["messages_received"], got["bytes_received"]) == (100, 500)
        assert got["messages_acknowledged"] == 100
        check_sums(client, [producer], [consumer])
