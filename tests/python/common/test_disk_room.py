"""The room that the embedded broker's store leaves on its disk."""

from __future__ import annotations

import json
import logging
import resource
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import forebay
from forebay import blocking, errors

from support.waiting import PATIENCE

#: More than any disk has.
ALL = 1 << 60


def ready(http_url: str | None) -> dict[str, object]:
    try:
        with urllib.request.urlopen(f"{http_url}/readyz", timeout=60) as answer:
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
        assert ready(broker.http_url)["ready"]
        with blocking.connect(broker.url) as client:
            client.consumer("t", subscription="s").close()
            client.producer("t").send(b"kept")
    options = {"mqtt_port": 0, "tubemq_port": 0, "http_port": 0, "min_disk_free": ALL}
    with (
        caplog.at_level(logging.WARNING, "forebay.broker.store"),
        forebay.Broker(data=store, **options) as broker,
    ):
        found = ready(broker.http_url)
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


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process are Linux's")
def test_a_file_that_may_not_grow_is_a_full_disk_and_not_the_end(tmp_path: Path) -> None:
    """As with ``ulimit -f``, a quota, or a file system whose files have a largest size."""
    limit = 4 << 20
    command = [sys.executable, "-m", "forebay", "broker", "--json", "--port", "0", "--http-port", "0"]
    with subprocess.Popen(
        [*command, "--data", str(tmp_path / "store")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as broker:
        try:
            assert broker.stdout
            urls = json.loads(broker.stdout.readline())
            with blocking.connect(urls["url"]) as client, client.consumer("t", "s") as consumer:
                producer = client.producer("t", batching=False)
                resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
                for _ in range(40):
                    producer.send_nowait(bytes(256 << 10))
                deadline = time.monotonic() + PATIENCE
                while ready(urls["http_url"])["store"] == "ok":
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                assert broker.poll() is None
                resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
                producer.flush()
                for _ in range(40):
                    consumer.ack(consumer.receive(timeout=PATIENCE))
        finally:
            broker.terminate()
