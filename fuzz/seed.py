"""Fills a folder from the traffic recorded in tests/golden and with scripts. Safe to run again."""

import hashlib
import json
import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
PULSAR = HERE.parent / "tests" / "golden" / "pulsar"
MQTT = HERE.parent / "tests" / "golden" / "mqtt"
TUBEMQ = HERE.parent / "tests" / "golden" / "tubemq"


def seed(target: str, data: bytes) -> None:
    folder = Path(sys.argv[1]) / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)


def entry(data: bytes) -> tuple[bytes, bytes] | None:
    """Metadata and payload of a frame of SEND or MESSAGE."""
    rest = data[8 + int.from_bytes(data[4:8]) :]
    if rest[:2] == b"\x0e\x02":
        rest = rest[6 + int.from_bytes(rest[2:6]) :]
    if rest[:2] == b"\x0e\x01":
        rest = rest[6:]
    if len(rest) < 4:
        return None
    size = int.from_bytes(rest[:4])
    return rest[4 : 4 + size], rest[4 + size :]


def varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def field(number: int, data: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def pulsar() -> None:
    """Streams and frames of either side, and the parts of the messages in them."""
    index = json.loads((PULSAR / "index.json").read_text())
    kinds = {"NONE": 0, "LZ4": 1, "ZLIB": 2, "ZSTD": 3, "SNAPPY": 4}
    for connection in index["connections"]:
        streams = {
            side: bytes.fromhex("".join((PULSAR / name).read_text().split()))
            for side, name in connection["files"].items()
        }
        for stream in streams.values():
            seed("pulsar_frame", b"\x80" + stream[:8192])
        seed("pulsar_connection", streams.get("s2c", b"")[:8192])
        told = streams.get("c2s", b"")[:8192]
        # Without CONNECT, which the target sends itself.
        told = told[4 + int.from_bytes(told[:4]) :]
        parts = [told[at : at + 40] for at in range(0, len(told), 40)]
        seed("pulsar_broker", b"\x01" + b"".join(bytes([(len(part) + 21) << 2]) + part for part in parts))
        for frame in connection["frames"]:
            data = streams[frame["dir"]][frame["offset"] : frame["offset"] + frame["length"]]
            if len(data) > 8192:
                continue
            seed("pulsar_frame", b"\x40" + data)
            seed("pulsar_command", data[8 : 8 + int.from_bytes(data[4:8])])
            if parts := entry(data):
                metadata, payload = parts
                seed("pulsar_metadata", metadata)
                meta = frame.get("meta", {})
                if "compression" in meta:
                    size = meta["uncompressed_size"].to_bytes(3)
                    seed("compression", bytes([kinds[meta["compression"]]]) + size + payload)
                seed("pulsar_batch", len(metadata).to_bytes(4) + metadata + payload)
    # Statistics with a rate that is not a number, and a DAG whose segments lack their required
    # fields.
    statistics = b"\x08\x00\x21" + struct.pack("<d", math.nan)
    update = b"\x08\x00" + field(2, b"\x08\x00" + 4000 * b"\x12\x00")
    for number, body in ((26, statistics), (71, update)):
        command = b"\x08" + varint(number) + field(number, body)
        seed("pulsar_command", command)
        frame = len(command).to_bytes(4) + command
        seed("pulsar_frame", b"\x40" + len(frame).to_bytes(4) + frame)
    for text in ("(1,2,-1,-1)", "(9223372036854775807,9223372036854775807,-1,-1)", "(-1,-1,3,10)"):
        seed("pulsar_message_id", text.encode())
    for data in (b"\x08\x07\x10\x03", b"\x08\x07\x10\x03\x18\x02\x20\x05\x30\x0a"):
        seed("pulsar_message_id", data)


def avro() -> None:
    """Two definitions and data: the lengths of the definitions come first."""
    node = {
        "type": "record",
        "name": "N",
        "fields": [{"name": "next", "type": ["null", "N"], "default": None}],
    }
    letters = {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}
    at = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [
        {"name": "e", "type": letters},
        {"name": "m", "type": {"type": "map", "values": "double"}, "default": {}},
    ]
    wide = {"type": "record", "name": "W", "fields": [{"name": "at", "type": at}, *fields]}
    fixed = {"type": "array", "items": {"type": "fixed", "name": "F", "size": 2}}
    for writer, reader, data in (
        (node, node, b"\x02\x02\x00"),
        (wide, {**wide, "fields": fields}, b"\x02\x02\x02\x02x" + bytes(8) + b"\x00"),
        ({"type": "record", "name": "W", "fields": fields[:1]}, wide, b"\x02"),
        (fixed, fixed, b"\x03\x08abcd\x00"),
        ("int", ["null", "double"], b"\x06"),
    ):
        first, second = json.dumps(writer).encode(), json.dumps(reader).encode()
        seed("avro", len(first).to_bytes(2) + len(second).to_bytes(2) + first + second + data)


def pieces(stream: bytes, peer: int) -> bytes:
    """The script of mqtt_broker in which a connected client sends this stream."""
    script = b""
    while len(stream) >= 4:
        size = len(stream) if len(stream) < 43 else 40
        script += bytes([size << 2 | peer]) + stream[:size] + b"\x04"
        stream = stream[size:]
    return script


def mqtt() -> None:
    """Both sides of each recorded connection; the first bytes choose the version, the side and the cut."""
    for path in MQTT.glob("*.jsonl"):
        streams: dict[tuple[int, str], bytes] = {}
        told: dict[int, bytes] = {}
        versions: dict[int, int] = {}
        for line in path.read_text().splitlines()[1:]:
            packet = json.loads(line)
            if "hex" not in packet:
                continue
            connection, side, data = packet["connection"], packet["from"], bytes.fromhex(packet["hex"])
            streams[connection, side] = streams.get((connection, side), b"") + data
            if packet["said"].get("type") == "CONNECT":
                versions[connection] = packet["said"]["version"] - 3
            elif side == "client":
                told[connection] = told.get(connection, b"") + data
        for (connection, side), stream in streams.items():
            version = versions.get(connection, 2)
            if version not in range(3) or len(stream) > 8192:
                continue
            seed("mqtt_packet", bytes([version if side == "client" else 129 + version, 128]) + stream)
            if side == "client":
                seed("mqtt_broker", b"\x01" + pieces(told.get(connection, b""), version))
            else:
                seed("mqtt_connection", bytes([version, 255]) + stream)
                seed("mqtt_connection", bytes([version, 128]) + stream + stream)


def texts(value: object) -> Iterator[str]:
    """Every text in a message of the index."""
    if isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, str):
        yield value


def tubemq() -> None:
    """Streams and frames of either side, messages as delivered, and the texts about topics."""
    index = json.loads((TUBEMQ / "index.json").read_text())
    for connection in index["connections"]:
        for direction, name in connection["files"].items():
            stream = bytes.fromhex("".join((TUBEMQ / name).read_text().split()))
            side = bytes([1 if direction == "s2c" else 0, 128])
            if direction == "c2s":
                parts = [stream[at : at + 32] for at in range(0, min(len(stream), 8192), 32)]
                seed(
                    "tubemq_broker",
                    b"\x01" + b"".join(bytes([(len(part) + 31) << 2]) + part for part in parts),
                )
            seed("tubemq_frame", side + stream[:8192])
            kinds = set()
            for frame in connection["frames"]:
                if frame["dir"] != direction or frame["type"] in kinds:
                    continue
                kinds.add(frame["type"])
                seed("tubemq_frame", side + stream[frame["offset"] : frame["offset"] + frame["length"]])
        for frame in connection["frames"]:
            for message in frame["message"].get("messages", ()):
                if "..." not in message["payLoadData"]:
                    data = bytes.fromhex(message["payLoadData"])
                    seed("tubemq_message", bytes([message["flag"]]) + data)
            for text in texts(frame["message"]):
                if "#" in text or text.count(":") == 2:
                    seed("tubemq_message", b"\x80" + text.encode())


def scripts() -> None:
    """Inputs that are no recorded traffic: steps, names and files."""
    deliver, take, hear, ack = b"\x31\x05\x03", b"\xf5", b"\x0b", b"\x06\x00"
    seeds = {
        # A producer, a consumer, messages, permits and acknowledgements; and each command many
        # times.
        "pulsar_broker": [
            b"\x01\x10\x00\x14\x20\x20\x40\x18\x08\x1c\x18\x24\x00\x28\x04",
            # Messages that claim to be large batches, and acknowledgements of parts of them.
            *(
                b"\x09\x10\x00\x14\x20\x0c\x03\x18\x06\x04\x20\x80\x0c\x13" + parts
                for parts in (b"\x00\x06\x08\x04", b"\x10\x06\x08\x04")
            ),
            # A long schema, and many topics with long names, asked for again and again.
            b"\x01\x10\x90\x04\x0c\x0c\x00\x0c\x04",
            b"\x01\x0c\x12\xff\x07\x04\x0c\x0d\x00\x0c\x04",
            *(
                bytes([flags, 0x10, 0, 0x14, 0x20, 0x0C, kind, what, 9])
                for kind in range(20)
                for what in (0, 0xF8)
                for flags in (1, 4)
            ),
        ],
        # Filters in every combination and messages below them; each packet many times.
        "mqtt_broker": [bytes([3, 0x0C, 3, levels, 10, 0x0D, 4, levels, 6]) for levels in (3, 11, 16, 100)]
        # The same with more filters, of as many levels as there may be; retained messages for one
        # filter that is in the packet again and again.
        + [
            bytes([0x0B, 0x0E, 3, 198, 11, 0x04, 0x0D, 4, 198, 6]),
            bytes([0x03, 0x0E, 7, 2, 10, 0x04, 0x0E, 0, 2, 12, 0x04]),
        ]
        + [
            bytes([flags, 0x0E, kind, what, 9, 0x04])
            for kind in range(10)
            for what in (1, 20)
            for flags in (1, 2, 4)
        ],
        "tubemq_broker": [
            bytes([flags, 0x7C, kind, what, 9, 0x04])
            for kind in range(12)
            for what in (0, 0xE0)
            for flags in (1, 4)
        ],
        # Each takes some 20 ms, so there are not all of them.
        "store": [bytes([form]) for form in range(6)]
        + [b"\x02\x7a\x01\x02\x7a", b"\x04\x03\x28\x1f\xff"]
        + [
            bytes([form, 1, column, (column + form) % 6, 200, 255]) for form in (1, 3) for column in range(44)
        ],
        "mqtt_outbox": [b"", b"\x00\x01\x04c\x04c\x1a\x1a\x16:\x01\x9a\xfb\x00"]
        + [bytes([1, column, kind, 200, 255]) for column in range(6) for kind in range(6)],
        "cursor": [
            b"\x01\x40" + bytes([0, 7, 0, 9, 0, 8, 0x14, 30]) + 8 * b"\xf0" + bytes([7, 0, 5, 9, 7, 0]),
            b"\x00\x05" + 200 * b"\x01" + b"\x01\x01\x01\x01\x09\x01" + 8 * b"\x0f",
        ],
        "credentials": [
            b"\x00\x05" + b'{"sub":"a","exp":1800000000,"nbf":1}',
            b"\x00\x03" + b'{"sub":"a"}',
            b"\x00\x00eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.AAAA",
            b"\x01\x05alice\x04AAAA\x00# who\nalice:her:word\nbob:x\n",
            b"\x01\x00\x00\x00alice:$7$1000$AAAAAAAAAAAAAAAA$" + 85 * b"A" + b"A==\n",
        ],
        # A column of each type: with its roles, as JSON, and within another type.
        "frame": [
            bytes([roles, form, 5]) + inside + bytes([kind, 40]) + bytes(range(40, 120)) + 40 * b"\x01"
            for kind in range(42)
            for roles, form in ((1, 3), (2, 3), (0x3D, 0x12))
            for inside in (b"", b"\x0a\x01", b"\x0c\x05\x40\x01\x01\x01\x01\x01\x01")
        ],
        "names": [
            b"\x00pulsar+ssl://host:1,[::1]:2/",
            b"\x00wss://h/mqtt?x=1",
            b"\x00mqtt+unix:///run/b.sock",
            b"\x01persistent://a/b/c-partition-3",
            b"\x01a",
            b"\x02demo#a,b",
            b"\x03a/b/c\n+/#\na/b/#\n#\na/+/c\n$share/g/a/+/c\na//c",
            b"\x03$SYS/x\n#\n$SYS/#\n+/x",
        ],
        # Each place with each part behind it, read, changed and deleted, with bodies.
        "http": [
            b"\x01"
            + b"".join(
                bytes([0x0C, place << 3 | method, 1, part, method, 3, 3]) + b"a:1" + bytes([body])
                for method in range(4)
                for part in range(36)
            )
            for place in range(12)
            for body in (1, 2, 3, 4)
        ]
        # Messages are published and looked into, and a group is moved.
        + [
            b"\x01\x0c\x51\x01\x1f\0\3\3a:1\x08"
            b"\x0c\x41\x01\x1f\0\3\3a:1\x04\0"
            b"\x0c\x51\x02\x21\x22\0\3\3a:1\x07"
            b"\x04\x50\x01\x20" + bytes([query]) + b"\x04\0\x01\x23\x08"
            for query in range(9, 13)
        ],
        "websocket": [
            b"\x01\xff" + b"\x82\x82\0\0\0\0\xc0\x00" + b"\x89\x80\0\0\0\0" + b"\x88\x80\0\0\0\0",
            b"\x01\x02" + b"\x02\x81\1\2\3\4\xc0" + b"\x80\xff\0\0\0\0\x7f\xff\xff\xff\1\2\3\4",
            b"\x00\xffGET / HTTP/1.1\r\nHost: h\r\nOrigin: http://h\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Protocol: mqttv3.1, mqtt\r\n\r\n",
        ],
        "pulsar_consumer": [
            bytes([kind]) + deliver + deliver + take + ack + hear + take + hear for kind in range(4)
        ],
        "tubemq_consumer": [
            bytes([start]) + b"\x00\x03\x00\x50\x60" + b"\x00\x03\x00\x03\x81\x00\x82ab\x81c\x50\x10\x10\x60"
            b"\xf6\x08\x00\x08\x01\x09\x02\x00\x03\x00\x50\x60"
            for start in range(4)
        ],
    }
    for target, inputs in seeds.items():
        for data in inputs:
            seed(target, data)


if __name__ == "__main__":
    scripts()
    pulsar()
    avro()
    mqtt()
    tubemq()
