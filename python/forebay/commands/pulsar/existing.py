"""Readers of the commands that look at topics."""

# The parts of a reader are not for users.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import Any

from forebay.pulsar import blocking
from forebay.pulsar._positions import reader_name, reader_start


def reader(client: blocking.PulsarClient, topic: str, **options: Any) -> blocking.PulsarConsumer[Any]:
    """As ``client.reader()``, but a topic that does not exist is an error and is not created.

    Raises:
        TopicNotFound: the topic does not exist.
    """
    start = reader_start(options.get("position"))
    if start:
        options["position"] = "earliest"
    values = client._defaults.resolve("consumer", options | {"durable": False})
    return client._open_reader([topic], reader_name(), values | {"creates_topic": False}, start)
