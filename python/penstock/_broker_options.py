"""Options of the embedded broker; public as :class:`penstock.broker.BrokerOptions`."""

import os
from typing import Annotated, Literal, TypedDict

from . import parse
from .options import Duration, Option, Pem, Secret, Size

_flag, _text = parse.boolean, parse.text


class BrokerOptions(TypedDict, total=False):
    """Options of :class:`penstock.Broker`."""

    data: Annotated[str | os.PathLike[str], Option(parse.path, None, "folder of the store; none: in memory")]
    host: Annotated[str, Option(_text, "127.0.0.1", "address to listen on")]
    port: Annotated[int, Option(parse.whole(0, 65535), 0, "port to listen on; 0: any free one")]
    durability: Annotated[
        Literal["fsync", "os", "memory"],
        Option(parse.one_of("fsync", "os", "memory"), None, "fsync with `data`, memory without"),
    ]
    tls_cert: Annotated[Pem, Option(parse.pem, None, "certificate chain: speak TLS")]
    tls_key: Annotated[Pem, Option(parse.pem, None, "private key of the certificate", secret=True)]
    token_key: Annotated[Secret | bytes, Option(parse.key_bytes, None, "HS256 key of tokens", secret=True)]
    allow_insecure_bind: Annotated[
        bool, Option(_flag, False, "other addresses than loopback without TLS and tokens")
    ]
    advertised_url: Annotated[
        str, Option(_text, None, "URL that clients are told; default: made of host and port")
    ]
    max_store: Annotated[
        Size, Option(parse.size, None, "bytes kept; then producers get an error; 10 GiB, 1 GiB in memory")
    ]
    max_connections: Annotated[int, Option(parse.whole(1), 16_384, "most connections")]
    max_topics: Annotated[int, Option(parse.whole(1), 10_000, "most topics and partitions")]
    max_message_size: Annotated[Size, Option(parse.size, 5 << 20, "bytes of the largest message")]
    keep_alive: Annotated[Duration, Option(parse.duration, 30.0, "seconds between two PINGs")]
    retention: Annotated[Duration, Option(parse.duration, 600.0, "seconds that acknowledged messages stay")]
    retention_bytes: Annotated[Size, Option(parse.size, 32 << 20, "bytes of them in each topic, in memory")]
    auto_create: Annotated[bool, Option(_flag, True, "topics come into being on first use")]
    default_partitions: Annotated[
        int, Option(parse.whole(0, 1000), 0, "partitions of those; 0: plain topics")
    ]
    deduplicate: Annotated[bool, Option(_flag, True, "drops what a named producer has sent before")]
    mqtt_port: Annotated[
        int, Option(parse.whole(0, 65535), None, "port for MQTT, 0: any free one; none: no MQTT")
    ]
    mqtt_ws_port: Annotated[
        int, Option(parse.whole(0, 65535), None, "port for MQTT over WebSocket, path /mqtt; 0: any free one")
    ]
    mqtt_password_file: Annotated[
        str | os.PathLike[str], Option(parse.path, None, "users of MQTT, as `mosquitto_passwd` writes them")
    ]
    mqtt_max_packet_size: Annotated[
        Size, Option(parse.packet_size, 2_000_000, "bytes of the largest MQTT packet")
    ]
    mqtt_max_sessions: Annotated[int, Option(parse.whole(1), 100_000, "most MQTT sessions, connected or not")]
    mqtt_max_queue: Annotated[int, Option(parse.whole(1), 10_000, "most messages that wait for one session")]
    mqtt_max_queue_bytes: Annotated[Size, Option(parse.size, 64 << 20, "most bytes of them")]
    mqtt_max_output: Annotated[
        Size, Option(parse.size, 8 << 20, "bytes that wait for a slow connection before QoS 0 is dropped")
    ]
    mqtt_max_inflight: Annotated[
        int, Option(parse.whole(1, 10_000), 100, "messages of QoS 1 and 2 in flight to an MQTT client")
    ]
    mqtt_receive_maximum: Annotated[
        int, Option(parse.whole(1, 65535), 1000, "messages of QoS 1 and 2 in flight from an MQTT client")
    ]
    mqtt_topic_alias_maximum: Annotated[
        int, Option(parse.whole(0, 65535), 100, "highest topic alias of an MQTT client; 0: none")
    ]
    mqtt_max_retained: Annotated[int, Option(parse.whole(0), 100_000, "most retained messages")]
    mqtt_max_session_expiry: Annotated[
        Duration, Option(parse.duration, None, "longest time a session outlives its connection; none: any")
    ]
    tubemq_port: Annotated[
        int,
        Option(parse.whole(0, 65535), None, "port for TubeMQ, 0: any free one; none: no TubeMQ"),
    ]
    tubemq_user_file: Annotated[
        str | os.PathLike[str], Option(parse.path, None, "users of TubeMQ: a line `name:password` for each")
    ]
    tubemq_advertised_host: Annotated[str, Option(_text, None, "host that clients of TubeMQ are told")]
    tubemq_partitions: Annotated[
        int, Option(parse.whole(1, 10_000), 3, "partitions of TubeMQ's topics that come into being")
    ]
    tubemq_retention: Annotated[
        Duration, Option(parse.duration, 604_800.0, "seconds that messages stay, whoever has had them")
    ]
    tubemq_offset_retention: Annotated[
        Duration,
        Option(parse.duration, 1_728_000.0, "seconds that offsets of a group stay that holds no partition"),
    ]
    tubemq_max_message_size: Annotated[
        Size, Option(parse.size, 1 << 20, "bytes of TubeMQ's largest message, attributes included")
    ]
    tubemq_client_timeout: Annotated[
        Duration, Option(parse.duration, 30.0, "seconds of silence after which a client of TubeMQ has left")
    ]
