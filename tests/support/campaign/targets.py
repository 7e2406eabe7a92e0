"""The brokers of the campaign of bad networks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from support.campaign import measure
from support.campaign.flows import PULSAR_PARTITIONED, PULSAR_TOPIC, TUBEMQ_TOPIC
from support.campaign.weather import Behind, Target
from support.mqtt.harness import Mosquitto
from support.pulsar.harness import RealPulsar
from support.scripts import free_port
from support.service import BrokerProcess
from support.tubemq.harness import RealTubeMq


@contextlib.contextmanager
def embedded(folder: Path) -> Iterator[Target]:
    """``forebay broker`` with all protocols and data on disk.

    It keeps old messages for a short time, so that its tables reach their size soon.
    """
    mqtt, tubemq, proxy = free_port(), free_port(), free_port()
    broker = BrokerProcess(
        folder / "data",
        *("--durability", "fsync", "--mqtt-port", str(mqtt), "--tubemq-port", str(tubemq)),
        *("--topic", "campaign-parts=3", "--topic", "tubemq:campaign=3"),
        *("-X", f"advertised_url=pulsar://127.0.0.1:{proxy}", "-X", "mqtt_max_queue=1000000"),
        *("-X", "keep_alive=2", "-X", "retention=20", "-X", "tubemq_client_timeout=3"),
        # A TubeMQ broker deletes what no group has read, too.
        *("-X", "tubemq_retention=120"),
    )
    broker.start()
    try:
        assert broker.process is not None
        pid = broker.process.pid
        yield Target(
            "embedded",
            {
                "pulsar": Behind(broker.url, proxy=proxy),
                "mqtt": Behind(f"mqtt://127.0.0.1:{mqtt}"),
                "tubemq": Behind(f"tubemq://127.0.0.1:{tubemq}", replaces=f"127.0.0.1:{tubemq}"),
            },
            sample=lambda: measure.of_process("broker", pid) | measure.of_store(broker.data),
        )
        assert broker.is_running, "the broker ended by itself"
    finally:
        if broker.is_running:
            broker.end()


@contextlib.contextmanager
def mosquitto() -> Iterator[Target]:
    """Mosquitto, which keeps all messages for a subscriber that is away.

    It sends a QoS 2 message again after its PUBREL if a client that owes the PUBCOMP connects twice in a row
    before the PUBREL is written: `db__message_reconnect_reset_outgoing` forgets `mosq_ms_resend_pubrel`. The
    client has released the identifier by then and cannot know the message.
    """
    broker = Mosquitto(extra="max_queued_messages 0\n", VERBOSE="0")
    try:
        yield Target(
            "mosquitto",
            {"mqtt": Behind(broker.url)},
            again=frozenset({"mqtt-work"}),
            sample=lambda: measure.of_process("broker", broker.pid),
        )
    finally:
        broker.stop()


@contextlib.contextmanager
def pulsar() -> Iterator[Target]:
    """Apache Pulsar standalone, with deduplication."""
    broker = RealPulsar()
    try:
        broker.create_topic(PULSAR_TOPIC, 0)
        broker.create_topic(PULSAR_PARTITIONED, 3)
        broker.drop_repetitions(PULSAR_TOPIC)
        broker.drop_repetitions(PULSAR_PARTITIONED, 3)
        address = broker.url.removeprefix("pulsar://")
        yield Target("pulsar", {"pulsar": Behind(broker.url, replaces=address)})
    finally:
        broker.stop()


@contextlib.contextmanager
def tubemq() -> Iterator[Target]:
    """Apache InLong TubeMQ: its master tells clients where the broker is."""
    server = RealTubeMq(pool={})
    try:
        server.create_topic(TUBEMQ_TOPIC, 3)
        yield Target("tubemq", {"tubemq": Behind(server.url, second=server.broker)})
    finally:
        server.stop()
