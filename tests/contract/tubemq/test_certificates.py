"""Certificates that are replaced while a client runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import forebay

from support.tls_proxy import Files, tls_in_front_of
from support.tubemq.harness import TubeMqService
from support.waiting import until


async def test_certificate_files_are_read_again_at_a_reconnect(
    tube: TubeMqService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, topic = Files(tmp_path), tube.topic()
    master = int(tube.address.split(",")[0].rsplit(":", 1)[1])
    with tls_in_front_of(files, master) as proxy:
        url = f"tubemq+ssl://127.0.0.1:{proxy.port}"
        async with forebay.connect(url, **files.options) as client:
            # The master is asked; what it says of the brokers is not used here.
            async with client.producer(topic):
                assert set(proxy.serials) == {files.serial}
            second = files.renew()
            proxy.cut()
            async with client.producer(topic):
                assert proxy.serials[-1] == second
            files.renew_half()
            proxy.cut()
            async with client.producer(topic):
                assert proxy.serials[-1] == second
            text = "the connection uses the certificates as they were"
            await until(lambda: any(text in record.message for record in caplog.records))
            third = files.renew()
            proxy.cut()
            async with client.producer(topic):
                assert proxy.serials[-1] == third
