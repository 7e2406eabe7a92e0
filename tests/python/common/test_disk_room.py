"""The room that the embedded broker's store leaves on its disk."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import forebay
from forebay import blocking, errors

#: More than any disk has.
ALL = 1 << 60


def ready(broker: forebay.Broker) -> dict[str, object]:
    try:
        with urllib.request.urlopen(f"{broker.http_url}/readyz", timeout=60) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        found = json.load(error)
    assert isinstance(found, dict)
    return found


def test_with_too_little_room_each_protocol_refuses_messages_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = str(tmp_path / "store")
    with forebay.Broker(data=store, mqtt_port=0, tubemq_port=0, http_port=0) as broker:
        assert ready(broker)["ready"]
        with blocking.connect(broker.url) as client:
            client.consumer("t", subscription="s").close()
            client.producer("t").send(b"kept")
    options = {"mqtt_port": 0, "tubemq_port": 0, "http_port": 0, "min_disk_free": ALL}
    with (
        caplog.at_level(logging.WARNING, "forebay.broker.store"),
        forebay.Broker(data=store, **options) as broker,
    ):
        found = ready(broker)
        assert not found["ready"] and found["store"] == "ok" and "min_disk_free" in str(found["disk"])
        with blocking.connect(broker.url) as client:
            with pytest.raises(errors.QuotaExceeded, match="min_disk_free"):
                client.producer("t").send(b"x")
            # What is there is read all the same.
            with client.consumer("t", subscription="s") as consumer:
                message = consumer.receive(timeout=60)
                assert message.data == b"kept"
                consumer.ack(message)
        with (
            blocking.connect(broker.mqtt_url, version=5) as client,
            pytest.raises(errors.QuotaExceeded, match="min_disk_free"),
        ):
            client.publish("t", b"x", qos=1)
        with (
            blocking.connect(broker.tubemq_url) as client,
            pytest.raises(errors.Error, match="min_disk_free"),
            client.producer("t", send_timeout=5) as producer,
        ):
            producer.send(b"x")
        assert broker.status()["store_bytes"] > 0
    assert "messages are refused" in caplog.text
