"""The columns of messages that are read as tables, as the engine makes them."""

from __future__ import annotations

from forebay._core.dataframes import Column

KAFKA = (
    Column("key", "key", "binary"),
    Column("value", "value", "binary"),
    Column("topic", "topic", "string"),
    Column("partition", "partition", "int"),
    Column("offset", "offset", "bigint"),
    Column("timestamp", "event_time", "timestamp"),
    Column("timestampType", "timestamp_type", "int"),
    Column("brokerId", "broker_id", "int"),
    Column("messageType", "message_type", "string"),
    Column("messageId", "message_id", "bigint"),
)
"""Those of Spark's source for Kafka, and the message's own."""
READ_FRAME = (
    Column("value", "value", "binary"),
    Column("key", "key_text", "string"),
    Column("topic", "topic", "string"),
    Column("message_type", "message_type", "string"),
    Column("event_time", "event_time", "timestamp"),
    Column("broker_id", "broker_id", "int"),
    Column("partition", "partition", "int"),
    Column("offset", "offset", "bigint"),
    Column("properties", "properties", "map<string,string>"),
)
"""Those of :meth:`forebay.tubemq.TubeMqConsumer.read_frame`."""
MORE = (
    Column("key_bytes", "key", "binary"),
    Column("message_id", "message_id", "bigint"),
)
"""Those that are there beside :data:`READ_FRAME` for who asks for them."""
