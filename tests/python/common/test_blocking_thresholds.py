"""Verbs of the blocking face that take many: in threads, beyond the window and memory of a client."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pyarrow as pa
import pytest

import forebay
from forebay import blocking, errors, frames

from support.waiting import PATIENCE

ROWS = 300
OPTIONS: dict[str, dict[str, Any]] = {
    "pulsar": {"position": "earliest"},
    "mqtt": {"qos": 1},
    "tubemq": {"position": "first"},
}
LIMITS: dict[str, Any] = {"memory_limit": "20kB"}


def one_by_one(producer: Any, payloads: list[bytes]) -> None:
    for payload in payloads:
        while True:
            try:
                producer.send_nowait(payload, properties={"of": payload[:6].decode()})
                break
            except (errors.QueueFull, errors.MemoryLimit):
                producer.flush(PATIENCE)
    producer.flush(PATIENCE)


@pytest.mark.parametrize("protocol", OPTIONS)
def test_each_thread_sends_its_rows_once_and_in_order(protocol: str) -> None:
    qos = {"qos": 1} if protocol == "mqtt" else {}
    lots = [[b"%d-%04d" % (lot, row) + bytes(100) for row in range(ROWS)] for lot in range(4)]
    tables = [pa.table({"value": lot}) for lot in lots]
    with forebay.Broker(mqtt_port=0, tubemq_port=0) as broker:
        # Threads of one partition keep their order.
        broker.create_topic("tubemq:orders", 1)
        url = broker.urls[protocol]
        with (
            blocking.connect(url, connect_timeout=PATIENCE, **LIMITS) as client,
            client.consumer("orders", "s", **OPTIONS[protocol]) as consumer,
            client.producer("orders", max_pending=3, **qos) as producer,
        ):
            work = [
                lambda: producer.send_many(lots[0]),
                lambda: producer.send_frame(tables[1], value="value"),
                lambda: frames.write(tables[2], url, "orders", value="value", max_pending=3, **LIMITS, **qos),
                lambda: one_by_one(producer, lots[3]),
            ]
            threads = [threading.Thread(target=each) for each in work]
            for thread in threads:
                thread.start()
            got: list[Any] = []
            while len(got) < 4 * ROWS:
                some = [consumer.receive(PATIENCE)]
                some += consumer.receive_batch(50, max_bytes=3000, timeout=0.01)
                some += consumer.receive_many(7, timeout=0.01)
                consumer.ack_many(some)
                got += some
            for thread in threads:
                thread.join(PATIENCE)
        payloads = [bytes(message.data) for message in got]
        assert sorted(payloads) == sorted(itertools.chain(*lots))
        for lot in lots:
            assert [payload for payload in payloads if payload[:1] == lot[0][:1]] == lot
        for message in got:
            sent = dict(message.user_properties if protocol == "mqtt" else message.properties)
            payload = bytes(message.data)
            assert sent == ({"of": payload[:6].decode()} if payload[:1] == b"3" else {})
