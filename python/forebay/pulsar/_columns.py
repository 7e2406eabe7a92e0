"""The columns of messages that are read as tables, as the engine makes them."""

from __future__ import annotations

from forebay._core.dataframes import Column

KAFKA = (
    Column("key", "key", "binary"),
    Column("value", "value", "binary"),
    Column("topic", "topic", "string"),
    Column("partition", "partition", "int"),
    Column("offset", "index", "bigint"),
    Column("timestamp", "publish_time", "timestamp"),
    Column("timestampType", "timestamp_type", "int"),
    Column("messageId", "message_id", "string"),
    Column("eventTime", "event_time", "timestamp"),
    Column("orderingKey", "ordering_key", "binary"),
    Column("producerName", "producer_name", "string"),
    Column("sequenceId", "sequence_id", "bigint"),
    Column("schemaVersion", "schema_version", "binary"),
)
"""Those of Spark's source for Kafka, and the message's own."""
PULSAR_SPARK = (
    Column("value", "value", "binary"),
    Column("__key", "key", "binary"),
    Column("__topic", "partition_topic", "string"),
    Column("__messageId", "message_id_bytes", "binary"),
    Column("__publishTime", "publish_time", "timestamp"),
    Column("__eventTime", "event_time", "timestamp"),
    Column("__messageProperties", "properties", "map<string,string>"),
)
"""Those of pulsar-spark."""
READ_FRAME = (
    Column("value", "value", "binary"),
    Column("key", "key_text", "string"),
    Column("topic", "partition_topic", "string"),
    Column("message_id", "message_id", "string"),
    Column("publish_time", "publish_time", "timestamp"),
    Column("event_time", "event_time", "timestamp"),
    Column("properties", "properties", "map<string,string>"),
)
"""Those of :meth:`forebay.pulsar.PulsarConsumer.read_frame`, without the number of deliveries."""
MORE = (
    Column("key_bytes", "key", "binary"),
    Column("ordering_key", "ordering_key", "binary"),
    Column("partition", "partition", "int"),
    Column("index", "index", "bigint"),
    Column("broker_time", "broker_time", "timestamp"),
    Column("producer_name", "producer_name", "string"),
    Column("sequence_id", "sequence_id", "bigint"),
    Column("schema_version", "schema_version", "binary"),
)
"""Those that are there beside :data:`READ_FRAME` for who asks for them."""
