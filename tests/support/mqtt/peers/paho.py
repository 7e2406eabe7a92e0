"""paho-mqtt, with its network loop in a thread."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import Any

from paho.mqtt import client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from support.mqtt.peers.base import Filter, PeerWill, QueuedPeer, Refused, Seen, Target, snake_case
from support.mqtt.wire import V5, V31, V311
from support.waiting import PATIENCE


def _camel(name: str) -> str:
    """``WillDelayInterval`` for ``will_delay_interval``."""
    return "".join(part.capitalize() for part in name.split("_")).replace("Qos", "QoS")


def paho_properties(kind: int, given: dict[str, Any] | None) -> Properties | None:
    if not given:
        return None
    made = Properties(kind)
    for name, value in given.items():
        for one in value if name == "user_property" else [value]:
            setattr(made, _camel(name), one)
    return made


def from_paho(properties: Any) -> dict[str, Any]:
    if properties is None:
        return {}
    found: dict[str, Any] = {}
    for spaced in properties.names:
        name = spaced.replace(" ", "")
        if hasattr(properties, name):
            found[snake_case(name)] = getattr(properties, name)
    return found


def _seen_by_paho(message: paho.MQTTMessage) -> Seen:
    return Seen(
        message.topic,
        message.payload,
        message.qos,
        bool(message.retain),
        from_paho(getattr(message, "properties", None)),
    )


def paho_filters(filters: tuple[Filter, ...], version: int) -> list[tuple[str, Any]]:
    if version < V5:
        return [(one.text, one.qos) for one in filters]
    return [
        (one.text, SubscribeOptions(one.qos, one.no_local, one.retain_as_published, one.retain_handling))
        for one in filters
    ]


class Paho(QueuedPeer):
    name = "paho"
    versions = (V31, V311, V5)

    def connect(
        self,
        target: Target,
        client_id: str,
        version: int = V5,
        *,
        clean: bool = True,
        keep_alive: int = 60,
        username: str | None = None,
        password: str | None = None,
        will: PeerWill | None = None,
        properties: dict[str, Any] | None = None,
    ) -> bool:
        self.version = version
        options: dict[str, Any] = {} if version == V5 else {"clean_session": clean}
        self.client = client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id,
            protocol=paho.MQTTProtocolVersion(version),
            transport="websockets" if target.websocket else "tcp",
            reconnect_on_failure=False,
            **options,
        )
        if target.websocket:
            client.ws_set_options("/mqtt")
        if target.context:
            client.tls_set_context(target.context)
        if username is not None:
            client.username_pw_set(username, password)
        if will:
            client.will_set(
                will.topic,
                will.payload,
                will.qos,
                will.retain,
                paho_properties(PacketTypes.WILLMESSAGE, will.properties),
            )
        self._answers: queue.Queue[Any] = queue.Queue()
        client.on_connect = lambda _c, _u, flags, reason, props: self._answers.put((flags, reason, props))
        client.on_message = lambda _c, _u, message: self.messages.put(_seen_by_paho(message))
        client.on_subscribe = lambda _c, _u, mid, reasons, props: self._answers.put((mid, reasons, props))
        client.on_unsubscribe = lambda _c, _u, mid, reasons, props: self._answers.put((mid, reasons, props))
        client.on_publish = lambda _c, _u, mid, reason, props: (
            self._published.__setitem__(mid, reason) or self._acked.set()
        )
        self._published: dict[int, Any] = {}
        self._acked = threading.Event()
        self._ended = threading.Event()
        client.on_disconnect = lambda _c, _u, flags, reason, props: self._end(reason)
        self.ended_by: Any = None
        if version == V5:
            options = {
                "clean_start": clean,
                "properties": paho_properties(PacketTypes.CONNECT, properties),
            }
        else:
            options = {}
        client.connect_timeout = PATIENCE
        client.connect("127.0.0.1", target.port, keep_alive, **options)
        client.loop_start()
        flags, reason, self.connack = self._answers.get(timeout=PATIENCE)
        if reason.is_failure:
            client.loop_stop()
            raise Refused(str(reason))
        return bool(flags.session_present)

    def _end(self, reason: Any) -> None:
        self.ended_by = reason
        self._ended.set()

    def subscribe(self, *filters: Filter, properties: dict[str, Any] | None = None) -> list[int]:
        self.client.subscribe(
            paho_filters(filters, self.version),
            properties=paho_properties(PacketTypes.SUBSCRIBE, properties),
        )
        _, reasons, _ = self._answers.get(timeout=PATIENCE)
        return [reason.value for reason in reasons]

    def unsubscribe(self, *filters: str) -> None:
        self.client.unsubscribe(list(filters))
        self._answers.get(timeout=PATIENCE)

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: dict[str, Any] | None = None,
    ) -> int:
        props = paho_properties(PacketTypes.PUBLISH, properties)
        return self.acknowledged(self.client.publish(topic, payload, qos, retain, props))

    def acknowledged(self, info: paho.MQTTMessageInfo) -> int:
        """Waits for the broker's reason code of this publication.

        ``info`` itself is no use: it reports "not connected" for good when the connection ended during
        ``publish``, although the client keeps the message and sends it on the next connection.
        """
        deadline = time.monotonic() + PATIENCE
        while info.mid not in self._published:
            assert time.monotonic() < deadline, "paho: the broker did not acknowledge"
            self._acked.wait(0.1)
            self._acked.clear()
        return self._published.pop(info.mid).value

    def disconnect(self, **options: Any) -> None:
        reason = options.pop("reason", None)
        if reason is not None:
            options["reasoncode"] = paho.ReasonCode(PacketTypes.DISCONNECT, identifier=reason)
        if "properties" in options:
            options["properties"] = paho_properties(PacketTypes.DISCONNECT, options["properties"])
        self.client.disconnect(**options)
        self._ended.wait(PATIENCE)
        self.client.loop_stop()

    def kill(self) -> None:
        sock = self.client.socket()
        assert sock is not None
        with contextlib.suppress(OSError):
            sock.shutdown(2)
        self._ended.wait(PATIENCE)
        self.client.loop_stop()

    def again(self) -> bool:
        """Reconnects the same client, with its messages in flight."""
        self._ended.clear()
        self.client.reconnect()
        self.client.loop_start()
        flags, reason, self.connack = self._answers.get(timeout=PATIENCE)
        assert not reason.is_failure, reason
        return bool(flags.session_present)
