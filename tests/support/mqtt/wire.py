"""MQTT's packets of all three versions by hand.

Tests send with it what no client and no broker would send, and read the answers without the code under test.
"""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import ssl
import struct
import time
from dataclasses import dataclass, field
from typing import Any, Self

from support.waiting import PATIENCE

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = range(1, 8)
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(8, 16)
NAMES = (  # noqa: SIM905
    "RESERVED CONNECT CONNACK PUBLISH PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE UNSUBACK "
    "PINGREQ PINGRESP DISCONNECT AUTH"
).split()
# The lower half of the fixed header, where it is a constant.
FLAGS = {PUBREL: 2, SUBSCRIBE: 2, UNSUBSCRIBE: 2}

V31, V311, V5 = 3, 4, 5

# Identifier, name and kind of each MQTT 5.0 property.
_PROPERTIES: list[tuple[int, str, str]] = [
    (0x01, "payload_format_indicator", "byte"),
    (0x02, "message_expiry_interval", "u32"),
    (0x03, "content_type", "string"),
    (0x08, "response_topic", "string"),
    (0x09, "correlation_data", "binary"),
    (0x0B, "subscription_identifier", "varint"),
    (0x11, "session_expiry_interval", "u32"),
    (0x12, "assigned_client_identifier", "string"),
    (0x13, "server_keep_alive", "u16"),
    (0x15, "authentication_method", "string"),
    (0x16, "authentication_data", "binary"),
    (0x17, "request_problem_information", "byte"),
    (0x18, "will_delay_interval", "u32"),
    (0x19, "request_response_information", "byte"),
    (0x1A, "response_information", "string"),
    (0x1C, "server_reference", "string"),
    (0x1F, "reason_string", "string"),
    (0x21, "receive_maximum", "u16"),
    (0x22, "topic_alias_maximum", "u16"),
    (0x23, "topic_alias", "u16"),
    (0x24, "maximum_qos", "byte"),
    (0x25, "retain_available", "byte"),
    (0x26, "user_property", "pair"),
    (0x27, "maximum_packet_size", "u32"),
    (0x28, "wildcard_subscription_available", "byte"),
    (0x29, "subscription_identifier_available", "byte"),
    (0x2A, "shared_subscription_available", "byte"),
]
BY_NAME = {name: (number, kind) for number, name, kind in _PROPERTIES}
BY_NUMBER = {number: (name, kind) for number, name, kind in _PROPERTIES}

Properties = list[tuple[str, Any]]


# ------------------------------------------------------------------------------ writing


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def binary(value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(data)) + data


def _value(kind: str, value: Any) -> bytes:
    if kind == "pair":
        return binary(value[0]) + binary(value[1])
    if kind == "varint":
        return varint(value)
    if kind in {"string", "binary"}:
        return binary(value)
    return struct.pack({"byte": ">B", "u16": ">H", "u32": ">I"}[kind], value)


def properties(version: int, pairs: Properties | dict[str, Any] | None = None) -> bytes:
    """The block of properties with its length, in the given order; empty before MQTT 5.0."""
    if version < V5:
        assert not pairs, "there are no properties before MQTT 5.0"
        return b""
    items = pairs.items() if isinstance(pairs, dict) else pairs or []
    body = b"".join(varint(BY_NAME[name][0]) + _value(BY_NAME[name][1], value) for name, value in items)
    return varint(len(body)) + body


def packet(kind: int, body: bytes = b"", flags: int | None = None) -> bytes:
    return bytes([kind << 4 | (FLAGS.get(kind, 0) if flags is None else flags)]) + varint(len(body)) + body


@dataclass
class Will:
    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = field(default_factory=list)


def connect(
    client_id: str = "",
    version: int = V5,
    *,
    clean: bool = True,
    keep_alive: int = 0,
    username: str | None = None,
    password: bytes | str | None = None,
    will: Will | None = None,
    props: Properties | dict[str, Any] | None = None,
    name: str | None = None,
    flags: int = 0,
) -> bytes:
    """``flags`` are added to those of the arguments."""
    bits = flags | 2 * clean | 0x80 * (username is not None) | 0x40 * (password is not None)
    payload = binary(client_id)
    if will:
        bits |= 4 | will.qos << 3 | 0x20 * will.retain
        payload += properties(version, will.properties) + binary(will.topic) + binary(will.payload)
    for text in (username, password):
        if text is not None:
            payload += binary(text)
    head = binary(name or ("MQIsdp" if version == V31 else "MQTT"))
    head += struct.pack(">BBH", version, bits, keep_alive)
    return packet(CONNECT, head + properties(version, props) + payload)


def publish(
    topic: str | bytes,
    payload: bytes = b"",
    qos: int = 0,
    packet_id: int | None = None,
    version: int = V5,
    *,
    retain: bool = False,
    dup: bool = False,
    props: Properties | dict[str, Any] | None = None,
) -> bytes:
    body = binary(topic)
    if qos:
        body += struct.pack(">H", 1 if packet_id is None else packet_id)
    return packet(PUBLISH, body + properties(version, props) + payload, 8 * dup | qos << 1 | retain)


def ack(
    kind: int, packet_id: int, reason: int | None = None, props: Properties | None = None, version: int = V5
) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP; as short as the arguments allow."""
    body = struct.pack(">H", packet_id)
    if reason is not None:
        body += bytes([reason])
        if props is not None:
            body += properties(version, props)
    return packet(kind, body)


def subscribe(
    filters: list[tuple[str, int]] | str,
    packet_id: int = 1,
    version: int = V5,
    props: Properties | dict[str, Any] | None = None,
) -> bytes:
    """Filters, each with its options byte: the QoS, and since MQTT 5.0 the other options."""
    pairs = [(filters, 0)] if isinstance(filters, str) else filters
    body = struct.pack(">H", packet_id) + properties(version, props)
    return packet(SUBSCRIBE, body + b"".join(binary(text) + bytes([options]) for text, options in pairs))


def unsubscribe(filters: list[str] | str, packet_id: int = 1, version: int = V5) -> bytes:
    texts = [filters] if isinstance(filters, str) else filters
    body = struct.pack(">H", packet_id) + properties(version)
    return packet(UNSUBSCRIBE, body + b"".join(binary(text) for text in texts))


def disconnect(reason: int | None = None, props: Properties | None = None) -> bytes:
    """Before MQTT 5.0 only the form without a reason exists."""
    body = b"" if reason is None else bytes([reason])
    if props is not None:
        body += properties(V5, props)
    return packet(DISCONNECT, body)


def auth(reason: int | None = None, props: Properties | None = None) -> bytes:
    return disconnect(reason, props).replace(b"\xe0", b"\xf0", 1)


# ------------------------------------------------------------------------------ reading


class Malformed(Exception):
    """The bytes are not MQTT."""


@dataclass
class Packet:
    kind: int
    flags: int
    body: bytes
    #: The whole packet, fixed header included.
    raw: bytes

    @property
    def name(self) -> str:
        return NAMES[self.kind]

    def __repr__(self) -> str:
        return f"{self.name}({self.flags:04b}, {self.body.hex()})"


def take(buffer: bytearray) -> Packet | None:
    """Removes the first packet from the buffer; None if it is incomplete."""
    length = shift = 0
    at = 1
    while True:
        if at >= len(buffer):
            return None
        byte = buffer[at]
        length |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if byte < 0x80:
            break
        if at == 5:
            raise Malformed(f"a remaining length of more than four bytes: {buffer[:5].hex()}")
    if len(buffer) < at + length:
        return None
    raw = bytes(buffer[: at + length])
    del buffer[: at + length]
    return Packet(raw[0] >> 4, raw[0] & 15, raw[at:], raw)


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise Malformed(f"{count} bytes at {self.at} of {self.data.hex()}")
        self.at += count
        return self.data[self.at - count : self.at]

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def binary(self) -> bytes:
        return self.take(self.u16())

    def string(self) -> str:
        return self.binary().decode()

    def varint(self) -> int:
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Malformed("a variable byte integer of five bytes")

    def left(self) -> int:
        return len(self.data) - self.at

    def properties(self) -> Properties:
        end = self.varint() + self.at
        found: Properties = []
        while self.at < end:
            name, kind = BY_NUMBER[self.varint()]
            found.append(
                (
                    name,
                    {
                        "byte": self.u8,
                        "u16": self.u16,
                        "u32": lambda: int.from_bytes(self.take(4), "big"),
                        "string": self.string,
                        "binary": self.binary,
                        "varint": self.varint,
                        "pair": lambda: (self.string(), self.string()),
                    }[kind](),
                )
            )
        if self.at != end:
            raise Malformed("a property reaches beyond the block")
        return found


def parse(one: Packet, version: int) -> dict[str, Any]:
    """The fields of a packet. ``reason`` is filled in for the short forms; ``version`` is the connection's,
    except for CONNECT, which carries it."""
    reader = Reader(one.body)
    said: dict[str, Any] = {"type": one.name}
    if one.kind == CONNECT:
        said["protocol"] = reader.string()
        said["version"] = version = reader.u8()
        bits = reader.u8()
        said["clean"], said["keep_alive"] = bool(bits & 2), reader.u16()
        if version >= V5:
            said["properties"] = reader.properties()
        said["client_id"] = reader.string()
        if bits & 4:
            will: dict[str, Any] = {"qos": bits >> 3 & 3, "retain": bool(bits & 0x20)}
            if version >= V5:
                will["properties"] = reader.properties()
            will["topic"], will["payload"] = reader.string(), reader.binary()
            said["will"] = will
        if bits & 0x80:
            said["username"] = reader.string()
        if bits & 0x40:
            said["password"] = reader.binary()
    elif one.kind == CONNACK:
        said["session_present"], said["reason"] = bool(reader.u8()), reader.u8()
        if version >= V5 and reader.left():
            said["properties"] = reader.properties()
    elif one.kind == PUBLISH:
        said["dup"], said["qos"], said["retain"] = (
            bool(one.flags & 8),
            one.flags >> 1 & 3,
            bool(one.flags & 1),
        )
        said["topic"] = reader.string()
        if said["qos"]:
            said["packet_id"] = reader.u16()
        if version >= V5:
            said["properties"] = reader.properties()
        said["payload"] = reader.take(reader.left())
    elif one.kind in {PUBACK, PUBREC, PUBREL, PUBCOMP}:
        said["packet_id"] = reader.u16()
        said["reason"] = reader.u8() if reader.left() else 0
        if reader.left():
            said["properties"] = reader.properties()
    elif one.kind == SUBSCRIBE:
        said["packet_id"] = reader.u16()
        if version >= V5:
            said["properties"] = reader.properties()
        said["filters"] = []
        while reader.left():
            said["filters"].append((reader.string(), reader.u8()))
    elif one.kind in {SUBACK, UNSUBACK}:
        said["packet_id"] = reader.u16()
        if version >= V5:
            said["properties"] = reader.properties()
        said["reasons"] = list(reader.take(reader.left()))
    elif one.kind == UNSUBSCRIBE:
        said["packet_id"] = reader.u16()
        if version >= V5:
            said["properties"] = reader.properties()
        said["filters"] = []
        while reader.left():
            said["filters"].append(reader.string())
    elif one.kind in {DISCONNECT, AUTH}:
        said["reason"] = reader.u8() if reader.left() else 0
        if reader.left():
            said["properties"] = reader.properties()
    if reader.left():
        raise Malformed(f"{reader.left()} bytes too many in {one!r}")
    return said


class Raw:
    """A connection to a broker that sends exactly the given bytes."""

    #: Seconds to wait for an expected packet or for the end of the connection.
    timeout = PATIENCE

    def __init__(self, port: int, version: int = V5, *, context: ssl.SSLContext | None = None) -> None:
        self.version = version
        self.socket: socket.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context:
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self._buffer = bytearray()
        # Messages that arrived while an answer was awaited.
        self._messages: list[Packet] = []
        #: The fields of CONNACK.
        self.connack: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *packets: bytes) -> None:
        self.socket.sendall(b"".join(packets))

    def _recv(self) -> bytes:
        return self.socket.recv(65536)

    def packet(self, timeout: float | None = None) -> Packet | None:
        """The next packet; None when the broker has closed the connection. Raises ``TimeoutError``."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while (one := take(self._buffer)) is None:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                data = self._recv()
            except (ConnectionResetError, BrokenPipeError):
                return None
            except (TimeoutError, ssl.SSLWantReadError):
                raise TimeoutError("no packet arrived") from None
            if not data:
                return None
            self._buffer += data
        return one

    def expect(self, kind: int, timeout: float | None = None) -> dict[str, Any]:
        """The next packet, which must be of this kind; messages before it are kept for later."""
        if kind == PUBLISH and self._messages:
            return parse(self._messages.pop(0), self.version)
        one = self.packet(timeout)
        while one is not None and one.kind == PUBLISH != kind:
            self._messages.append(one)
            one = self.packet(timeout)
        assert one is not None, f"the broker closed the connection instead of {NAMES[kind]}"
        assert one.kind == kind, f"{one!r} instead of {NAMES[kind]}"
        return parse(one, self.version)

    def connect(self, client_id: str = "", **options: Any) -> dict[str, Any]:
        """Sends CONNECT and returns the fields of CONNACK."""
        self.send(connect(client_id, self.version, **options))
        self.connack = self.expect(CONNACK)
        return self.connack

    def property(self, name: str, otherwise: Any = None) -> Any:
        """A property of CONNACK."""
        return dict(self.connack.get("properties", [])).get(name, otherwise)

    def subscribe(
        self, filters: list[tuple[str, int]] | str, packet_id: int = 1, **options: Any
    ) -> list[int]:
        """Sends SUBSCRIBE and returns the codes of SUBACK."""
        self.send(subscribe(filters, packet_id, self.version, **options))
        return self.expect(SUBACK)["reasons"]

    def publish(
        self, topic: str, payload: bytes = b"", qos: int = 0, packet_id: int = 1, **options: Any
    ) -> int:
        """Sends PUBLISH, completes the handshake and returns the reason of its last packet."""
        self.send(publish(topic, payload, qos, packet_id, self.version, **options))
        if qos == 0:
            return 0
        answer = self.expect(PUBACK if qos == 1 else PUBREC)
        assert answer["packet_id"] == packet_id
        if qos == 2 and answer["reason"] < 0x80:
            self.send(ack(PUBREL, packet_id))
            answer = self.expect(PUBCOMP)
            assert answer["packet_id"] == packet_id
        return answer["reason"]

    def message(self, timeout: float | None = None) -> dict[str, Any]:
        """The next PUBLISH, with its acknowledgement completed."""
        said = self.expect(PUBLISH, timeout)
        if said["qos"] == 1:
            self.send(ack(PUBACK, said["packet_id"]))
        elif said["qos"] == 2:
            self.send(ack(PUBREC, said["packet_id"]))
            assert self.expect(PUBREL)["packet_id"] == said["packet_id"]
            self.send(ack(PUBCOMP, said["packet_id"]))
        return said

    def sync(self) -> None:
        """Sends PINGREQ and reads up to PINGRESP, so that all earlier packets have been processed."""
        self.send(packet(PINGREQ))
        self.expect(PINGRESP)

    def quiet(self, timeout: float = 0.3) -> None:
        """Asserts that the only packet is the answer to a ping."""
        self.send(packet(PINGREQ))
        self.expect(PINGRESP)
        assert not self._messages, self._messages
        with contextlib.suppress(TimeoutError):
            one = self.packet(timeout)
            raise AssertionError(f"{one!r} arrived" if one else "the broker closed the connection")

    def closed(self, timeout: float | None = None) -> list[dict[str, Any]]:
        """Waits until the broker closes the connection; returns the packets before that, without messages."""
        said = []
        while (one := self.packet(timeout)) is not None:
            if one.kind != PUBLISH:
                said.append(parse(one, self.version))
        return said

    def drop(self) -> None:
        """Cuts the connection without DISCONNECT, and waits until the broker has noticed."""
        self.socket.shutdown(socket.SHUT_WR)
        self.closed()
        self.socket.close()


# ------------------------------------------------------------------------------ over WebSocket

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


class WebSocket(Raw):
    """A `Raw` over WebSocket (RFC 6455), each ``send`` in one binary frame."""

    #: The subprotocol that the server chose.
    chosen: str | None

    def __init__(self, port: int, version: int = V5, *, offers: str | None = "mqtt") -> None:
        super().__init__(port, version)
        key = base64.b64encode(os.urandom(16)).decode()
        request = (
            f"GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        )
        if offers is not None:
            request += f"Sec-WebSocket-Protocol: {offers}\r\n"
        self.socket.sendall(f"{request}\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = self.socket.recv(1)
            assert byte, f"the server closed the connection after {head!r}"
            head += byte
        status, *lines = head.decode().split("\r\n")
        assert " 101 " in status, head
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.chosen = headers.get("sec-websocket-protocol")
        self._frames = bytearray()

    def frame(self, data: bytes, kind: int = BINARY, *, last: bool = True) -> None:
        mask = os.urandom(4)
        size = len(data)
        if size < 126:
            length = bytes([0x80 | size])
        elif size < 65_536:
            length = b"\xfe" + struct.pack(">H", size)
        else:
            length = b"\xff" + struct.pack(">Q", size)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        self.socket.sendall(bytes([0x80 * last | kind]) + length + mask + masked)

    def send(self, *packets: bytes) -> None:
        self.frame(b"".join(packets))

    def _recv(self) -> bytes:
        """The data of the next data frame; empty when the server closes."""
        while True:
            while (whole := self._take_frame()) is not None:
                kind, data = whole
                if kind == CLOSE:
                    return b""
                if kind in {BINARY, CONTINUATION} and data:
                    return data
                assert kind in {BINARY, CONTINUATION, PING, PONG}, f"a WebSocket frame of kind {kind}"
            data = self.socket.recv(65536)
            if not data:
                return b""
            self._frames += data

    def _take_frame(self) -> tuple[int, bytes] | None:
        buffer = self._frames
        if len(buffer) < 2:
            return None
        size, start = buffer[1] & 0x7F, 2
        if size >= 126:
            form, start = (">H", 4) if size == 126 else (">Q", 10)
            if len(buffer) < start:
                return None
            (size,) = struct.unpack_from(form, buffer, 2)
        if len(buffer) < start + size:
            return None
        whole = buffer[0] & 15, bytes(buffer[start : start + size])
        del buffer[: start + size]
        return whole
