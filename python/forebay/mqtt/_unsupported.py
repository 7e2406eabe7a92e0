"""Verbs and fields of other protocols that MQTT lacks, and what to use instead."""

_PAUSE = "MQTT has no pause() and resume(): stop receiving, and receive_maximum limits what is in flight"
_REDELIVERY = "MQTT has no redelivery on a live session: leave the message unacknowledged and reconnect"
_IDS = "MQTT has no message ids"
_TIMES = "MQTT has no event times: put the time into the payload or into properties"
_DELAY = "MQTT has no delayed delivery"

LACKS = {
    "reader": "MQTT has no readers: brokers keep no log; use subscribe()",
    "interceptor_errors": "MQTT has no interceptors: wrap send() and the callback of listen()",
    "table_view": "MQTT has no table views: subscribe() gets the retained message of each topic",
    "partitions": "MQTT has neither partitions nor a list of topics",
    "schema": "MQTT has no schemas: encode values yourself",
    "topics": "MQTT has neither partitions nor a list of topics",
    "broker": "MQTT has no embedded: URL; start a forebay.Broker with mqtt_port and use its mqtt_url",
    "name": "MQTT has no producer names",
    "started_partitions": "MQTT has no partitions",
    "last_sequence_id": "MQTT has no sequence ids",
    "key": "MQTT has no message keys: put the key into the topic, or into properties",
    "ordering_key": "MQTT has no ordering keys",
    "event_time": _TIMES,
    "sequence_id": "MQTT has no sequence ids: QoS 2 delivers exactly once",
    "deliver_at": _DELAY,
    "message_type": "MQTT has no message types: put the type into the topic",
    "ack_cumulative": "MQTT has no cumulative acknowledgement: use ack() or ack_many()",
    "nack": _REDELIVERY,
    "nack_many": _REDELIVERY,
    "redeliver_unacknowledged": _REDELIVERY,
    "reconsume_later": "MQTT has no topic of retries: publish the message again",
    "seek": "MQTT has no seek: brokers keep no log",
    "last_message_ids": _IDS,
    "has_message_available": "MQTT has no log to look ahead in: use receive with a timeout",
    "reached_end": "topics of MQTT have no end",
    "wait_for_end": "topics of MQTT have no end",
    "is_active": "MQTT serves all members of a shared subscription",
    "active_change": "MQTT serves all members of a shared subscription",
    "pause": _PAUSE,
    "resume": _PAUSE,
    "id": _IDS,
    "message_id": _IDS,
    "publish_time": "MQTT has no publish times: use received_time",
    "broker_time": "MQTT has no broker times: use received_time",
    "redelivery_count": "MQTT has no redelivery count: use dup",
    "producer_name": "MQTT has no producer names",
    "is_null": "MQTT has no null values",
    "index": "MQTT has no broker index",
    "schema_version": "MQTT has no schemas",
    "broker_id": "MQTT has no broker ids",
    "partition": "MQTT has no partitions",
    "offset": "MQTT has no offsets",
}
