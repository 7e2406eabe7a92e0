"""MQTT clients that we did not write, behind one set of verbs: paho-mqtt, aiomqtt, gmqtt, the npm client and
mosquitto_pub with mosquitto_sub. Names of properties are those of ``mqtt_wire``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import ssl
import subprocess
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiomqtt
import gmqtt
from gmqtt.mqtt.constants import MQTTv50, MQTTv311
from paho.mqtt import client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from harness import HERE
from mqtt_harness import Mosquitto
from mqtt_wire import V5, V31, V311

TIMEOUT = 10.0


class Refused(Exception):
    """The broker said no, in the words of the client."""


@dataclass
class Seen:
    """A message as a peer received it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: dict[str, Any] = field(default_factory=dict)


@dataclass
class Filter:
    """A topic filter with its options."""

    text: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass
class Target:
    """Where a peer connects to: a port, and how."""

    port: int
    websocket: bool = False
    context: ssl.SSLContext | None = None
    ca: Path | None = None


@dataclass
class PeerWill:
    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: dict[str, Any] = field(default_factory=dict)


class Peer:
    """One client. Each verb returns when the broker has answered, and raises when it has not."""

    name: str
    versions: tuple[int, ...] = (V311, V5)
    #: Whether it can be told to keep a session and to come back to it.
    resumes = True

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
        """Whether the broker had the session."""
        raise NotImplementedError

    def subscribe(self, *filters: Filter, properties: dict[str, Any] | None = None) -> list[int]:
        """What was granted."""
        raise NotImplementedError

    def unsubscribe(self, *filters: str) -> None:
        raise NotImplementedError

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: dict[str, Any] | None = None,
    ) -> int:
        """The reason code, where the client tells it."""
        raise NotImplementedError

    def receive(self, count: int, timeout: float = TIMEOUT) -> list[Seen]:
        """That many messages."""
        messages: list[Seen] = []
        deadline = time.monotonic() + timeout
        while len(messages) < count:
            messages += self._receive(count - len(messages), max(deadline - time.monotonic(), 0.01))
            if len(messages) < count and time.monotonic() > deadline:
                raise AssertionError(f"{self.name}: {len(messages)} of {count} messages: {messages}")
        return messages

    def _receive(self, count: int, timeout: float) -> list[Seen]:
        raise NotImplementedError

    def nothing(self, wait: float = 0.3) -> None:
        got = self._receive(1, wait)
        assert not got, got

    def disconnect(self, **options: Any) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        """Ends the connection without a DISCONNECT."""
        raise NotImplementedError

    def close(self) -> None:
        """Lets go of everything, whatever state it is in."""
        with contextlib.suppress(Exception):
            self.disconnect()


class _Queued(Peer):
    def __init__(self) -> None:
        self.messages: queue.Queue[Seen] = queue.Queue()

    def _receive(self, count: int, timeout: float) -> list[Seen]:
        got: list[Seen] = []
        deadline = time.monotonic() + timeout
        while len(got) < count:
            try:
                got.append(self.messages.get(timeout=max(deadline - time.monotonic(), 0.001)))
            except queue.Empty:
                break
        return got


# ------------------------------------------------------------------------------ paho-mqtt


def _camel(name: str) -> str:
    """``WillDelayInterval`` for ``will_delay_interval``."""
    return "".join(part.capitalize() for part in name.split("_")).replace("Qos", "QoS")


def _snake(name: str) -> str:
    out = ""
    for letter in name.replace("QoS", "Qos"):
        out += f"_{letter.lower()}" if letter.isupper() and out else letter.lower()
    return out


def paho_properties(kind: int, given: dict[str, Any] | None) -> Properties | None:
    if not given:
        return None
    made = Properties(kind)
    for name, value in given.items():
        for one in value if name == "user_property" else [value]:
            setattr(made, _camel(name), one)
    return made


def _from_paho(properties: Any) -> dict[str, Any]:
    if properties is None:
        return {}
    found: dict[str, Any] = {}
    for spaced in properties.names:
        name = spaced.replace(" ", "")
        if hasattr(properties, name):
            found[_snake(name)] = getattr(properties, name)
    return found


def _seen_by_paho(message: paho.MQTTMessage) -> Seen:
    return Seen(
        message.topic,
        message.payload,
        message.qos,
        bool(message.retain),
        _from_paho(getattr(message, "properties", None)),
    )


def _paho_filters(filters: tuple[Filter, ...], version: int) -> list[tuple[str, Any]]:
    if version < V5:
        return [(one.text, one.qos) for one in filters]
    return [
        (one.text, SubscribeOptions(one.qos, one.no_local, one.retain_as_published, one.retain_handling))
        for one in filters
    ]


class Paho(_Queued):
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
        client.connect("127.0.0.1", target.port, keep_alive, **options)
        client.loop_start()
        flags, reason, self.connack = self._answers.get(timeout=TIMEOUT)
        if reason.is_failure:
            client.loop_stop()
            raise Refused(str(reason))
        return bool(flags.session_present)

    def _end(self, reason: Any) -> None:
        self.ended_by = reason
        self._ended.set()

    def subscribe(self, *filters: Filter, properties: dict[str, Any] | None = None) -> list[int]:
        self.client.subscribe(
            _paho_filters(filters, self.version),
            properties=paho_properties(PacketTypes.SUBSCRIBE, properties),
        )
        _, reasons, _ = self._answers.get(timeout=TIMEOUT)
        return [reason.value for reason in reasons]

    def unsubscribe(self, *filters: str) -> None:
        self.client.unsubscribe(list(filters))
        self._answers.get(timeout=TIMEOUT)

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
        """The broker's reason code for this publication, once it has come. Not from ``info`` itself: it says
        "not connected" for good when the connection ended while ``publish`` was still under way, although
        the client keeps the message and sends it on the next one."""
        deadline = time.monotonic() + TIMEOUT
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
        self._ended.wait(TIMEOUT)
        self.client.loop_stop()

    def kill(self) -> None:
        sock = self.client.socket()
        assert sock is not None
        with contextlib.suppress(OSError):
            sock.shutdown(2)
        self._ended.wait(TIMEOUT)
        self.client.loop_stop()

    def again(self) -> bool:
        """Connects the same client once more, with what it has in flight."""
        self._ended.clear()
        self.client.reconnect()
        self.client.loop_start()
        flags, reason, self.connack = self._answers.get(timeout=TIMEOUT)
        assert not reason.is_failure, reason
        return bool(flags.session_present)


# ------------------------------------------------------------------------------ asyncio clients


class _Looped(_Queued):
    """A client of asyncio, on a loop in a thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT + 5)

    def close(self) -> None:
        super().close()

        async def finish() -> None:
            rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)

        with contextlib.suppress(Exception):
            self._run(finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()


class Aiomqtt(_Looped):
    name = "aiomqtt"
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

        async def start() -> bool:
            options: dict[str, Any] = {"clean_start": clean} if version == V5 else {"clean_session": clean}
            self.client = aiomqtt.Client(
                "127.0.0.1",
                target.port,
                identifier=client_id,
                protocol=aiomqtt.ProtocolVersion(version),
                keepalive=keep_alive,
                username=username,
                password=password,
                transport="websockets" if target.websocket else "tcp",
                websocket_path="/mqtt" if target.websocket else None,
                tls_context=target.context,
                will=will
                and aiomqtt.Will(
                    will.topic,
                    will.payload,
                    will.qos,
                    will.retain,
                    paho_properties(PacketTypes.WILLMESSAGE, will.properties),
                ),
                properties=paho_properties(PacketTypes.CONNECT, properties),
                **options,
            )
            # The client does not say whether there was a session; the one below it does.
            present = False
            inner = self.client._client
            theirs = inner.on_connect

            def on_connect(one: Any, data: Any, flags: Any, reason: Any, props: Any) -> None:
                nonlocal present
                present = bool(flags.session_present)
                theirs(one, data, flags, reason, props)

            inner.on_connect = on_connect
            try:
                await self.client.__aenter__()
            except aiomqtt.MqttError as error:
                raise Refused(str(error)) from None
            self._reader = asyncio.ensure_future(self._read())
            return present

        return self._run(start())

    async def _read(self) -> None:
        with contextlib.suppress(aiomqtt.MqttError):
            async for message in self.client.messages:
                self.messages.put(
                    Seen(
                        message.topic.value,
                        bytes(message.payload),
                        message.qos,
                        bool(message.retain),
                        _from_paho(message.properties),
                    )
                )

    def subscribe(self, *filters: Filter, properties: dict[str, Any] | None = None) -> list[int]:
        granted = self._run(
            self.client.subscribe(
                _paho_filters(filters, self.version),
                properties=paho_properties(PacketTypes.SUBSCRIBE, properties),
            )
        )
        return [getattr(one, "value", one) for one in granted]

    def unsubscribe(self, *filters: str) -> None:
        self._run(self.client.unsubscribe(list(filters)))

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
        try:
            self._run(self.client.publish(topic, payload, qos, retain, props))
        except aiomqtt.MqttError as error:
            raise Refused(str(error)) from None
        return 0

    def disconnect(self, **options: Any) -> None:
        self._run(self.client.__aexit__(None, None, None))

    def kill(self) -> None:
        async def abort() -> None:
            sock = self.client._client.socket()
            assert sock is not None
            sock.shutdown(2)
            with contextlib.suppress(aiomqtt.MqttError):
                await self.client._disconnected
            with contextlib.suppress(aiomqtt.MqttError):
                await self.client.__aexit__(None, None, None)

        self._run(abort())


class Gmqtt(_Looped):
    name = "gmqtt"

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

        async def start() -> bool:
            self.client = gmqtt.Client(
                client_id,
                clean_session=clean,
                will_message=will
                and gmqtt.Message(will.topic, will.payload, will.qos, will.retain, **will.properties),
                **(properties or {}),
            )
            self.client.set_config({"reconnect_retries": 0})
            if username is not None:
                self.client.set_auth_credentials(username, password)
            present: asyncio.Future[bool] = self._loop.create_future()
            self._subscribed: dict[int, asyncio.Future[Any]] = {}
            self.client.on_connect = lambda _c, flags, _r, _p: (
                present.done() or present.set_result(bool(flags))
            )
            self.client.on_message = self._message
            self.client.on_subscribe = lambda _c, mid, qos, _p: self._answer(mid, qos)
            self.client.on_unsubscribe = lambda _c, mid, *_: self._answer(mid, None)
            self.client.on_disconnect = lambda _c, _packet, _exc=None: None
            try:
                await self.client.connect(
                    "127.0.0.1",
                    target.port,
                    ssl=target.context or False,
                    keepalive=keep_alive,
                    version=MQTTv50 if version == V5 else MQTTv311,
                )
            except gmqtt.mqtt.handler.MQTTConnectError as error:
                raise Refused(str(error)) from None
            return await asyncio.wait_for(present, TIMEOUT)

        return self._run(start())

    def _answer(self, mid: int, value: Any) -> None:
        self._subscribed.setdefault(mid, self._loop.create_future()).set_result(value)

    async def _answered(self, mid: int) -> Any:
        future = self._subscribed.setdefault(mid, self._loop.create_future())
        return await asyncio.wait_for(future, TIMEOUT)

    def _message(self, _client: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]) -> int:
        retain = bool(properties.pop("retain", 0))
        properties.pop("dup", None)
        # Everything comes as a list; only these are lists.
        properties = {
            name: value
            if name in {"user_property", "subscription_identifier"} or not isinstance(value, list)
            else value[0]
            for name, value in properties.items()
        }
        self.messages.put(Seen(topic, bytes(payload), qos, retain, properties))
        return 0

    def subscribe(self, *filters: Filter, properties: dict[str, Any] | None = None) -> list[int]:
        wanted = [
            gmqtt.Subscription(
                one.text,
                one.qos,
                no_local=one.no_local,
                retain_as_published=one.retain_as_published,
                retain_handling_options=one.retain_handling,
            )
            for one in filters
        ]

        async def go() -> Any:
            return await self._answered(self.client.subscribe(wanted, **(properties or {})))

        return list(self._run(go()))

    def unsubscribe(self, *filters: str) -> None:
        async def go() -> None:
            await self._answered(self.client.unsubscribe(list(filters)))

        self._run(go())

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: dict[str, Any] | None = None,
    ) -> int:
        async def go() -> None:
            self.client.publish(topic, payload, qos, retain, **(properties or {}))
            if qos:
                await asyncio.wait_for(self.client._persistent_storage.wait_empty(), TIMEOUT)

        self._run(go())
        return 0

    def disconnect(self, **options: Any) -> None:
        self._run(self.client.disconnect(**options))

    def kill(self) -> None:
        async def abort() -> None:
            self.client._is_active = False
            self.client._connection._transport.abort()
            await asyncio.sleep(0)

        self._run(abort())


# ------------------------------------------------------------------------------ the npm client


def _lower_camel(name: str) -> str:
    camel = "".join(part.capitalize() for part in name.split("_"))
    return {"userProperty": "userProperties"}.get(result := camel[0].lower() + camel[1:], result)


def js_properties(given: dict[str, Any] | None) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in (given or {}).items():
        if name == "user_property":
            pairs: dict[str, Any] = {}
            for key, one in value:
                pairs.setdefault(key, []).append(one)
            made["userProperties"] = {key: ones[0] if len(ones) == 1 else ones for key, ones in pairs.items()}
        elif isinstance(value, bytes):
            made[_lower_camel(name)] = value.hex()
        elif name.startswith("request_") or name == "payload_format_indicator":
            made[_lower_camel(name)] = bool(value)
        else:
            made[_lower_camel(name)] = value
    return made


def _from_js(given: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in given.items():
        snake = _snake(name)
        if snake == "user_properties":
            found["user_property"] = [
                (key, one)
                for key, many in value.items()
                for one in (many if isinstance(many, list) else [many])
            ]
        elif snake in {"correlation_data", "authentication_data"}:
            found[snake] = bytes.fromhex(value)
        elif snake == "subscription_identifier":
            found[snake] = value if isinstance(value, list) else [value]
        elif isinstance(value, bool):
            found[snake] = int(value)
        else:
            found[snake] = value
    return found


class MqttJs(Peer):
    name = "mqtt.js"
    versions = (V31, V311, V5)

    def __init__(self) -> None:
        folder = HERE / "brokers" / "mqtt-js"
        done = subprocess.run(
            [str(folder / "ensure-mqtt-js")],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        modules = done.stdout.strip()
        self._process = subprocess.Popen(
            ["node", str(folder / "peer.js")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={"NODE_PATH": modules, "PATH": os.environ["PATH"]},
        )

    def call(self, *words: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        line = self._process.stdout.readline()
        assert line, "the npm client ended"
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["ok"]

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
        challenge: str | None = None,
        **more: Any,
    ) -> bool:
        self.version = version
        options: dict[str, Any] = {
            "clientId": client_id,
            "protocolVersion": version,
            "clean": clean,
            "keepalive": keep_alive,
            "connectTimeout": 10_000,
            **more,
        }
        if version == V31:
            options["protocolId"] = "MQIsdp"
        if username is not None:
            options |= {"username": username, "password": password}
        if properties:
            options["properties"] = js_properties(properties)
        if will:
            options["will"] = {
                "topic": will.topic,
                "payload": will.payload.hex(),
                "qos": will.qos,
                "retain": will.retain,
            }
            if will.properties:
                options["will"]["properties"] = js_properties(will.properties)
        scheme = ("wss" if target.ca else "ws") if target.websocket else ("mqtts" if target.ca else "mqtt")
        if target.ca:
            options["ca"] = target.ca.read_text()
        path = "/mqtt" if target.websocket else ""
        self.connack = self.call("connect", f"{scheme}://127.0.0.1:{target.port}{path}", options, challenge)
        return bool(self.connack["session_present"])

    def subscribe(self, *filters: Filter, properties: dict[str, Any] | None = None) -> list[int]:
        wanted = {
            one.text: {"qos": one.qos}
            | (
                {"nl": one.no_local, "rap": one.retain_as_published, "rh": one.retain_handling}
                if self.version == V5
                else {}
            )
            for one in filters
        }
        options = {"properties": js_properties(properties)} if properties else {}
        return self.call("subscribe", wanted, options)

    def unsubscribe(self, *filters: str) -> None:
        self.call("unsubscribe", list(filters))

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: dict[str, Any] | None = None,
    ) -> int:
        options: dict[str, Any] = {"qos": qos, "retain": retain}
        if properties:
            options["properties"] = js_properties(properties)
        return self.call("publish", topic, payload.hex(), options)

    def _receive(self, count: int, timeout: float) -> list[Seen]:
        return [
            Seen(
                one["topic"],
                bytes.fromhex(one["payload"]),
                one["qos"],
                one["retain"],
                _from_js(one["properties"]),
            )
            for one in self.call("receive", count, int(timeout * 1000))
        ]

    def disconnect(self, **options: Any) -> None:
        if "properties" in options:
            options["properties"] = js_properties(options["properties"])
        if "reason" in options:
            options["reasonCode"] = options.pop("reason")
        self.call("end", options)

    def kill(self) -> None:
        self.call("kill")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


# ------------------------------------------------------------------- mosquitto_pub and mosquitto_sub


class MosquittoPrograms(_Queued):
    """``subscribe`` starts a mosquitto_sub, ``publish`` runs a mosquitto_pub."""

    name = "mosquitto"
    versions = (V31, V311, V5)
    # What it receives: parts between unit separators, payload as hex.
    _PARTS = ("%t", "%q", "%r", "%x", "%C", "%D", "%E", "%F", "%R", "%S", "%P")
    _NAMES = (
        "content_type",
        "correlation_data",
        "message_expiry_interval",
        "payload_format_indicator",
        "response_topic",
        "subscription_identifier",
        "user_property",
    )

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
        self.version, self._client_id = version, client_id
        self._base = ["-p", str(target.port), "-h", "127.0.0.1", "-k", str(keep_alive)]
        self._base += ["-V", {V31: "mqttv31", V311: "mqttv311", V5: "mqttv5"}[version]]
        if target.ca:
            self._base += ["--cafile", str(target.ca)]
        if username is not None:
            self._base += ["-u", username, "-P", password or ""]
        self._sub = [] if clean else ["-c"]
        if will:
            self._sub += ["--will-topic", will.topic, "--will-payload", will.payload.decode()]
            self._sub += ["--will-qos", str(will.qos)] + ["--will-retain"] * will.retain
            self._sub += self._flags("will", will.properties)
        self._sub += self._flags("connect", properties or {})
        self._process: subprocess.Popen[str] | None = None
        return False

    def _flags(self, command: str, properties: dict[str, Any]) -> list[str]:
        flags: list[str] = []
        for name, value in properties.items():
            for one in value if name == "user_property" else [value]:
                words = list(one) if isinstance(one, tuple) else [one]
                flags += ["-D", command, name.replace("_", "-").replace("qos", "qo-s")]
                flags += [word.decode() if isinstance(word, bytes) else str(word) for word in words]
        return flags

    def subscribe(self, *filters: Filter, properties: dict[str, Any] | None = None) -> list[int]:
        assert self._process is None, "mosquitto_sub subscribes once"
        # One QoS for all of them: that is what the program offers.
        # Line by line, though it writes into a pipe.
        words = [
            "stdbuf",
            "-oL",
            Mosquitto.program("mosquitto_sub"),
            *self._base,
            "-i",
            self._client_id,
            *self._sub,
            "-d",
        ]
        for one in filters:
            words += ["-t", one.text]
        words += ["-q", str(filters[0].qos), "-F", "\x1e" + "\x1f".join(self._PARTS)]
        words += self._flags("subscribe", properties or {})
        if filters[0].retain_as_published:
            words.append("--retain-as-published")
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        self._ready: queue.Queue[list[int] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        granted = self._ready.get(timeout=TIMEOUT)
        if granted is None:
            raise Refused("mosquitto_sub ended")
        return granted

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("\x1e"):
                topic, qos, retain, payload, *rest = line[1:].rstrip("\n").split("\x1f")
                properties: dict[str, Any] = {
                    name: value for name, value in zip(self._NAMES, rest, strict=True) if value
                }
                self.messages.put(Seen(topic, bytes.fromhex(payload), int(qos), retain == "1", properties))
            elif line.startswith("Subscribed (mid:"):
                self._ready.put([int(word) for word in line.split("):")[1].split(",")])
        self._ready.put(None)

    def unsubscribe(self, *filters: str) -> None:
        raise AssertionError("mosquitto_sub unsubscribes only before it subscribes")

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: dict[str, Any] | None = None,
    ) -> int:
        words = [Mosquitto.program("mosquitto_pub"), *self._base, "-t", topic, "-q", str(qos)]
        words.append("-s" if payload else "-n")
        words += ["-r"] * retain + self._flags("publish", properties or {})
        done = subprocess.run(words, input=payload, capture_output=True, timeout=TIMEOUT, check=False)
        if done.returncode != 0:
            raise Refused(done.stderr.decode().strip())
        return 0

    def disconnect(self, **options: Any) -> None:
        # On SIGTERM too it says DISCONNECT.
        self._end("terminate")

    def kill(self) -> None:
        self._end("kill")

    def _end(self, how: str) -> None:
        if self._process is not None:
            getattr(self._process, how)()
            self._process.wait(10)
            self._reader.join(10)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Paho, Aiomqtt, Gmqtt, MqttJs, MosquittoPrograms)}
