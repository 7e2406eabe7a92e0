"""Certificates that are replaced while a client runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import blocking

from support.mqtt.harness import MqttService
from support.tls_proxy import Files, tls_in_front_of
from support.waiting import PATIENCE, eventually, until


@pytest.mark.parametrize("scheme", ["mqtts", "wss"])
async def test_certificate_files_are_read_again_at_a_reconnect(
    broker: MqttService, topic: str, tmp_path: Path, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path)
    target = broker.port_of(broker.ws_url) if scheme == "wss" else broker.port
    path = "/mqtt" if scheme == "wss" else ""
    with tls_in_front_of(files, target) as proxy:
        url = f"{scheme}://127.0.0.1:{proxy.port}{path}"
        async with (
            forebay.connect(url, connect_timeout=PATIENCE, **files.options) as client,
            client.producer(topic) as producer,
        ):

            async def again(count: int) -> int:
                proxy.cut()
                await until(lambda: len(proxy.serials) == count)
                await producer.send(b"x", qos=1)
                return proxy.serials[-1]

            assert proxy.serials == [files.serial]
            second = files.renew()
            assert await again(2) == second
            files.renew_half()
            assert await again(3) == second
            text = "the connection uses the certificates as they were"
            await until(lambda: any(text in record.message for record in caplog.records))
            (files.folder / "client.crt").unlink()
            assert await again(4) == second
            third = files.renew()
            assert await again(5) == third


def test_the_blocking_client_reads_them_again_too(broker: MqttService, topic: str, tmp_path: Path) -> None:
    files = Files(tmp_path)
    with tls_in_front_of(files, broker.port) as proxy:
        options: dict[str, Any] = files.options | {"connect_timeout": PATIENCE}
        url = f"mqtts://127.0.0.1:{proxy.port}"
        with blocking.connect(url, **options) as client, client.producer(topic) as producer:
            second = files.renew()
            proxy.cut()
            eventually(lambda: len(proxy.serials) == 2)
            producer.send(b"x", qos=1)
            assert proxy.serials == [files.serial, second]
