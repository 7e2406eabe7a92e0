"""Verbs and fields of other protocols that TubeMQ lacks, and what to use instead."""

_V5 = "TubeMQ has no {}: put it into properties"
_DELAY = "TubeMQ has no delayed delivery"
_IDS = "TubeMQ has no message ids: partitions() gives the offsets"

LACKS = {
    "unsubscribe": "a TubeMQ client ends no subscription by its filter: use unsubscribe() of the consumer",
    "publish": "TubeMQ has no publish(): open a producer and use send()",
    "subscribe": "TubeMQ has no subscribe(): open a consumer with the name of a group",
    "reader": "TubeMQ has no readers: brokers keep the offsets of every group",
    "reauthenticate": "TubeMQ has no re-authentication: each request to a master is signed",
    "topics": "TubeMQ's masters do not list topics",
    "broker": "TubeMQ has no embedded: URL; start a penstock.Broker with tubemq_port and use its tubemq_url",
    "name": "TubeMQ has no producer names",
    "last_sequence_id": "TubeMQ has no sequence ids",
    "ordering_key": "TubeMQ has no ordering keys: key chooses the partition",
    "sequence_id": "TubeMQ has no sequence ids",
    "deliver_at": _DELAY,
    "deliver_after": _DELAY,
    "null_value": "TubeMQ has no null values: payloads must not be empty",
    "topic": "a TubeMQ producer has one topic: open a producer for each topic",
    "qos": "TubeMQ has no qos: send() completes when a broker has the message",
    "retain": "TubeMQ has no retained messages: a topic keeps its messages",
    "content_type": _V5.format("content_type"),
    "response_topic": _V5.format("response_topic"),
    "correlation_data": _V5.format("correlation_data"),
    "message_expiry": "TubeMQ has no message expiry: topics have a retention time",
    "is_text": _V5.format("is_text"),
    "inclusive": "TubeMQ has no inclusive: a Position is always inclusive",
    "last_message_ids": _IDS,
    "publish_time": "TubeMQ has no publish times: use event_time",
    "producer_name": "TubeMQ has no producer names",
    "is_null": "TubeMQ has no null values",
    "index": "TubeMQ has no broker index: use offset",
    "schema_version": "TubeMQ has no schemas",
    "user_properties": "TubeMQ has no repeated properties: use properties",
    "received_time": "TubeMQ has no received_time: use event_time",
    "packet_id": "TubeMQ has no packet identifiers: use id",
    "dup": "TubeMQ has no dup flag: use redelivery_count",
    "subscription_ids": "TubeMQ has no subscription identifiers",
}
