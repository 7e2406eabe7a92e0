"""Verbs and fields of other protocols that Pulsar lacks, and what to use instead."""

_V5 = "Pulsar has no {}: put it into properties"

NAMES_THERE = {
    "create_producer": "producer()",
    "create_reader": "reader()",
    "create_table_view": "table_view()",
    "get_topic_partitions": "partitions()",
    "shutdown": "close()",
    "send_async": "send() or send_nowait()",
    "partition_key": "key",
    "event_timestamp": "event_time",
    "acknowledge": "ack()",
    "acknowledge_cumulative": "ack_cumulative()",
    "negative_acknowledge": "nack()",
    "redeliver_unacknowledged_messages": "redeliver_unacknowledged()",
    "batch_receive": "receive_batch()",
    "read_next": "receive()",
    "publish_timestamp": "publish_time",
    "topic_name": "topic",
}
"""Verbs and fields of pulsar-client that have another name here."""

LACKS = {
    "unsubscribe": "a Pulsar client ends no subscription by its filter: use unsubscribe() of the consumer",
    "publish": "Pulsar has no publish(): open a producer and use send()",
    "subscribe": "Pulsar has no subscribe(): open a consumer, or a reader that leaves nothing behind",
    "reauthenticate": "reauthenticate() is supported for MQTT 5 only; a Pulsar broker asks for it itself",
    "partitions": "Pulsar's consumers do not list partitions: use partitions(topic) of the client",
    "topic": "a Pulsar producer has one topic: open a producer for each topic",
    "topics": "a Pulsar producer has one topic: open a producer for each topic",
    "qos": "Pulsar has no qos: send() completes when the message is stored",
    "retain": "Pulsar has no retain: a topic keeps its messages; read_compacted gives the last of each key",
    "content_type": _V5.format("content_type"),
    "response_topic": _V5.format("response_topic"),
    "correlation_data": _V5.format("correlation_data"),
    "message_expiry": "Pulsar has no message_expiry: its namespaces have a message TTL",
    "is_text": _V5.format("is_text"),
    "message_type": _V5.format("message_type"),
    "user_properties": "Pulsar has no repeated properties: use properties",
    "received_time": "Pulsar has no received_time: use publish_time or event_time",
    "packet_id": "Pulsar has no packet identifiers: use id",
    "dup": "Pulsar has no dup flag: use redelivery_count",
    "subscription_ids": "Pulsar has no subscription identifiers",
    "broker_id": "Pulsar has no broker ids: use id",
    "offset": "Pulsar has no offsets: use id",
    "message_id": "Pulsar's messages have an id: use id",
    **{name: f"Pulsar's {name} is called {here} here" for name, here in NAMES_THERE.items()},
}
