"""The official Java client with a pattern, as in Pulsar's command line: brokers tell it of new topics."""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

import pytest

import penstock

from support.pulsar.harness import PulsarService, RealPulsar
from support.waiting import until

VERSION = os.environ.get("PULSAR_VERSION", "4.0.8")
CACHE = Path(os.environ.get("PULSAR_CACHE", Path.home() / f".cache/penstock-real/pulsar-{VERSION}"))

pytestmark = [pytest.mark.real_pulsar, pytest.mark.timeout(240)]


async def test_the_java_client_hears_of_new_topics_from_the_embedded_broker(
    real_pulsar: RealPulsar, embedded: PulsarService
) -> None:
    """It looks by itself only once a minute."""
    prefix = f"persistent://public/default/j{uuid.uuid4().hex[:8]}"
    # Maven unpacks it without permission to execute.
    command = ["bash", str(CACHE / f"apache-pulsar-{VERSION}/bin/pulsar-client")]
    command += ["--url", embedded.url, "consume"]
    command += ["--regex", "--subscription-name", "s", "--num-messages", "2", f"{prefix}-.*"]
    async with penstock.connect(embedded.url) as client:
        async with client.producer(f"{prefix}-a") as producer:
            java = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            try:
                stats = embedded.call  # type: ignore[attr-defined]
                await until(lambda: stats("topic_stats", f"{prefix}-a")["subscriptions"], timeout=60)
                await producer.send(b"first")
                async with client.producer(f"{prefix}-b") as late:
                    await until(lambda: stats("topic_stats", f"{prefix}-b")["subscriptions"], timeout=20)
                    await late.send(b"second")
                printed, _ = java.communicate(timeout=60)
            finally:
                java.kill()
    assert java.returncode == 0, printed
    assert "first" in printed and "second" in printed
