"""Options of ``paho-mqtt``, ``aiomqtt`` and ``gmqtt`` that have another name here, or none.

An error about an unknown option ends with the sentence of this table, after "use".
"""

from collections.abc import Mapping

_HOST = "the URL, the first argument: mqtt://host:1883"
_TLS = "a URL that begins with mqtts://, and tls_ca=, tls_cert= and tls_key="

RENAMED: Mapping[str, Mapping[str, str]] = {
    "client": {
        "host": _HOST,
        "hostname": _HOST,
        "port": _HOST,
        "bind_address": "nothing in its place: the system chooses the local address",
        "identifier": "client_id=",
        "keepalive": "keep_alive=, in seconds",
        "clean_session": "clean_start=",
        "protocol": 'version="5", "3.1.1" or "3.1"',
        "transport": "a URL that begins with ws:// or wss://",
        "websocket_path": "the path of the URL: ws://host/mqtt",
        "websocket_headers": "ws_headers=",
        "timeout": "connect_timeout= and operation_timeout=, in seconds",
        "reconnect_delay": "max_backoff=, in seconds",
        "reconnect_on_failure": "nothing in its place: the client always reconnects",
        "max_inflight_messages": "max_inflight=",
        "max_queued_outgoing_messages": "max_pending= of producer(), or memory_limit=",
        "max_queued_incoming_messages": "receive_buffer=",
        "max_concurrent_outgoing_calls": "max_pending= of producer()",
        "tls": _TLS,
        "ssl": _TLS,
        "tls_context": _TLS,
        "tls_params": _TLS,
        "ca_certs": "tls_ca=",
        "certfile": "tls_cert=",
        "keyfile": "tls_key=",
        "tls_insecure": "tls_skip_hostname_check=, or tls_pin=",
        "will_set": "will=",
        "will_message": "will=",
        "properties": "options such as session_expiry=, receive_maximum= and connect_properties=",
        "session_expiry_interval": "session_expiry=, in seconds",
        "maximum_packet_size": "max_packet_size=",
        "logger": "the loggers below forebay of the module logging",
        "userdata": "nothing in its place: callbacks are closures",
    },
    "consumer": {
        "options": "qos=, no_local=, retain_as_published= and retain_handling=",
        "retain_handling_options": "retain_handling=",
    },
}
"""Scope -> option of another client -> what to use."""
