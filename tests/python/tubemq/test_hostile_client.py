"""Clients that violate TubeMQ or use it against the embedded master and broker: they are refused or
disconnected, and others are served."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.tubemq import wire
from support.tubemq.harness import EmbeddedTubeMq, group
from support.tubemq.wire import Raw, Response
from support.waiting import eventually

HERE = {"hostName": "127.0.0.1"}
SUBSCRIBED = {"brokerConfigId": -2, "topicMetaInfoId": -2, "reportSubInfo": False}


def noise(seed: int, size: int = 5000) -> bytes:
    return random.Random(seed).randbytes(size)


def resident(pid: int) -> int:
    """Resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def message(topic: str, body: bytes = b"x", **more: Any) -> dict[str, Any]:
    """The fields of an honest ``send``."""
    return {
        "clientId": "hostile",
        "topicName": topic,
        "partitionId": 0,
        "data": body,
        "flag": 0,
        "checkSum": -1,
        "sentAddr": 0x7F000001,
        "authInfo": {"visitAuthorizedToken": -2},
    } | more


def place(topic: str, name: str, **more: Any) -> dict[str, Any]:
    """A group's member at partition 0."""
    return {"clientId": "hostile", "groupName": name, "topicName": topic, "partitionId": 0} | more


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedTubeMq]:
    broker = EmbeddedTubeMq(auto_create=False)
    before = resident(broker.pid)
    yield broker
    grown = resident(broker.pid) - before
    broker.stop()
    assert grown < 150 << 20, f"hostile clients made the broker grow by {grown >> 20} MiB"


def raw(broker: EmbeddedTubeMq) -> Raw:
    return Raw(broker.ports[0])


def visit(peer: Raw, name: str) -> dict[str, Any]:
    """Registers a producer at the master and returns the token that the broker requires."""
    said = peer.call("producer_register", clientId=name, brokerCheckSum=-1, **HERE)
    assert said["success"], said
    return {"authInfo": {"visitAuthorizedToken": said["authorizedInfo"]["visitAuthorizedToken"]}}


def serves(broker: EmbeddedTubeMq) -> None:
    """Asserts that other clients are served."""
    topic, name = broker.topic(), group()
    with raw(broker) as master, raw(broker) as write, raw(broker) as read:
        token = visit(master, "good")
        beat = master.call(
            "producer_heartbeat", clientId="good", brokerCheckSum=-1, topicList=[topic], **HERE
        )
        assert beat["topicInfos"], beat
        said = master.call(
            "balance_register",
            clientId="reader",
            groupName=name,
            sourceCount=-1,
            nodeId=-1,
            topicList=[topic],
            subRepInfo=SUBSCRIBED,
            **HERE,
        )
        assert said["errCode"] == 200, said
        at = place(topic, name, clientId="reader")
        said = read.call("partition_register", opType=wire.REGISTER, readStatus=0, **at, **token)
        assert said["success"], said
        said = write.call("send", **message(topic, b"honest", clientId="good", **token))
        assert said["success"], said
        got = read.call("get", lastPackConsumed=False, manualCommitOffset=False, **at)
        assert [one["payLoadData"] for one in got["messages"]] == [b"honest"], got
        assert read.call("commit", lastPackConsumed=True, **at)["currOffset"] == 28
        assert read.call("partition_register", opType=wire.UNREGISTER, readStatus=0, **at, **token)["success"]
        assert master.call("consumer_close", clientId="reader", groupName=name)["success"]
        assert master.call("producer_close", clientId="good")["success"]


def refused(answer: Response) -> bool:
    if answer.status != wire.SUCCESS:
        return True
    return answer["success"] is False if "success" in answer.fields else answer["errCode"] != 200


# ------------------------------------------------------------------------------ no frames

HELLO = wire.request(1, "producer_register", clientId="hostile", brokerCheckSum=-1, **HERE)


def count(number: int) -> bytes:
    return HELLO[:8] + struct.pack(">I", number) + HELLO[12:]


def parts(*said: bytes, **lies: Any) -> bytes:
    return wire.frame(2, b"".join(said), **lies)


HEAD = wire.delimited(wire.encode("RpcConnHeader", flag=0))
REQUEST = wire.delimited(wire.encode("RequestHeader", serviceType=1, protocolVer=3))

#: After these the boundary of frames is lost: the connection ends.
NO_FRAMES: dict[str, bytes] = {
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise(1, 500),
    "random bytes": noise(2),
    "a token of another protocol": b"\0\0\0\x05\0\0\0\x01" + HELLO[8:],
    "a token with a bit changed": b"\xff\x7f\xf4\xff" + HELLO[4:],
    "no blocks": count(0),
    "a negative number of blocks": count(0xFFFFFFFF),
    "3585 blocks": count(3585),
    "a block of 4 GiB": HELLO[:12] + b"\xff\xff\xff\xff" + HELLO[16:],
    "a block of 2 GiB": HELLO[:12] + b"\x7f\xff\xff\xff" + HELLO[16:],
    "a good frame and then noise": HELLO + noise(3),
}


@pytest.mark.parametrize("name", NO_FRAMES)
def test_who_sends_no_frames_is_put_out(broker: EmbeddedTubeMq, name: str) -> None:
    with raw(broker) as peer:
        with contextlib.suppress(ConnectionError):
            peer.send(NO_FRAMES[name])
        answers = peer.closed()
        assert len(answers) <= 1 + ("good" in name), answers
    serves(broker)


#: Frames with wrong contents: an answer of failure or the end of the connection, never silence.
BAD_FRAMES: dict[str, bytes] = {
    "an empty block": wire.frame(2, b"", count=1) + bytes(4),
    "a header without its flag": parts(wire.delimited(b""), REQUEST, wire.delimited(b"\x08\x01")),
    "a part longer than the frame": parts(HEAD, b"\x7f\x00"),
    "a length that does not end": parts(b"\xff" * 20),
    "a length of 4 GiB": parts(b"\xff\xff\xff\xff\x0f", b"x"),
    "a header alone": parts(HEAD),
    "two headers alone": parts(HEAD, REQUEST),
    "random bytes in a frame": parts(noise(4, 9000)),
    "zeros in a frame": parts(bytes(9000)),
    "an answer instead of a question": wire.response(2, "send", success=True, errCode=200, errMsg=""),
    "no method": parts(HEAD, REQUEST, wire.delimited(wire.encode("RequestBody", timeout=1000))),
    "groups": parts(HEAD, REQUEST, wire.delimited(b"\x0b\x0c\x08\x01\x10\x90\x4e")),
    "method 0": wire.request(2, 0, b"", service=1),
    "method 11, which is reserved": wire.request(2, 11, b"", service=3),
    "method 10000": wire.request(2, 10_000, b"", service=1),
    "a negative method": wire.request(2, -1, b"", service=1),
    "a service that does not exist": wire.request(2, 1, b"", service=9),
    "a method of another service": wire.request(2, "get", service=1, **place("t", "g")),
    "the master's by the broker's service": wire.request(
        2, "producer_register", service=3, clientId="c", brokerCheckSum=-1, **HERE
    ),
    "no body": wire.request(2, "send", b""),
    "a body of noise": wire.request(2, "send", noise(5, 300)),
    "a body with texts for numbers": wire.request(2, "send", b"\x0a\x01c\x12\x01t\x1a\x010"),
    "a body without its client": wire.request(2, "producer_register", brokerCheckSum=-1, **HERE),
    "a text that is no UTF-8": wire.request(2, "producer_register", clientId=b"\xff\xfe", **HERE),
    "a register of a broker": wire.request(2, 7, b"\x0a\x01x", service=1),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_frame_that_is_wrong_inside_is_refused(broker: EmbeddedTubeMq, name: str) -> None:
    with raw(broker) as peer:
        peer.send(BAD_FRAMES[name])
        one = peer.frame()
        if one is not None:
            assert refused(wire.read_response(one)), wire.read_response(one)
            assert one.serial == 2
            # A client that got an answer is still served.
            peer.call("producer_register", clientId="hostile", brokerCheckSum=-1, **HERE)
    serves(broker)


# ------------------------------------------------------------------------------ requests

LONG = "x" * 2000

REQUESTS: dict[str, Callable[[str, str], tuple[str, dict[str, Any]]]] = {
    # as a producer
    "a client without a name": lambda t, g: (
        "producer_register",
        {"clientId": "", "brokerCheckSum": -1} | HERE,
    ),
    "a client with an endless name": lambda t, g: (
        "producer_register",
        {"clientId": LONG, "brokerCheckSum": -1} | HERE,
    ),
    "a heartbeat of nobody": lambda t, g: (
        "producer_heartbeat",
        {"clientId": "nobody", "brokerCheckSum": -1, "topicList": [t]} | HERE,
    ),
    "send to no topic": lambda t, g: ("send", message("")),
    "send to a topic that is not there": lambda t, g: ("send", message("not_there")),
    "send to a topic with a slash": lambda t, g: ("send", message("../../etc/passwd")),
    "send to an endless topic": lambda t, g: ("send", message(LONG)),
    "send to partition 7": lambda t, g: ("send", message(t, partitionId=7)),
    "send to partition -1": lambda t, g: ("send", message(t, partitionId=-1)),
    "send to a store that is not there": lambda t, g: ("send", message(t, partitionId=20_000)),
    "send to the last partition there can be": lambda t, g: ("send", message(t, partitionId=2**31 - 1)),
    "send nothing": lambda t, g: ("send", message(t, b"")),
    "send more than there may be": lambda t, g: ("send", message(t, bytes((1 << 20) + 20_000))),
    "send with a checksum that does not hold": lambda t, g: ("send", message(t, checkSum=5)),
    "close what was never open": lambda t, g: (
        "commit",
        place(t, g, clientId="nobody", lastPackConsumed=True),
    ),
    # as a consumer
    "register without a group": lambda t, g: (
        "consumer_register",
        {"clientId": "c", "groupName": "", "topicList": [t], "sessionTime": 1} | HERE,
    ),
    "register with a group of separators": lambda t, g: (
        "consumer_register",
        {"clientId": "c", "groupName": "a:b#c@d", "topicList": [t], "sessionTime": 1} | HERE,
    ),
    "register a name with separators": lambda t, g: (
        "consumer_register",
        {"clientId": "a@b#c", "groupName": g, "topicList": [t], "sessionTime": 1} | HERE,
    ),
    "register for no topics": lambda t, g: (
        "consumer_register",
        {"clientId": "c", "groupName": g, "topicList": [], "sessionTime": 1} | HERE,
    ),
    "register for a topic that is not there": lambda t, g: (
        "consumer_register",
        {"clientId": "c", "groupName": g, "topicList": ["not_there"], "sessionTime": 1} | HERE,
    ),
    "register for two thousand topics": lambda t, g: (
        "consumer_register",
        {"clientId": "c", "groupName": g, "topicList": [f"t{n}" for n in range(2000)], "sessionTime": 1}
        | HERE,
    ),
    "balance with node 5 of 2": lambda t, g: (
        "balance_register",
        {
            "clientId": "c",
            "groupName": g,
            "topicList": [t],
            "sourceCount": 2,
            "nodeId": 5,
            "subRepInfo": SUBSCRIBED,
        }
        | HERE,
    ),
    "a heartbeat of no member": lambda t, g: (
        "consumer_heartbeat",
        {"clientId": "nobody", "groupName": g, "reportSubscribeInfo": False},
    ),
    "a balance heartbeat of no member": lambda t, g: (
        "balance_heartbeat",
        {"clientId": "nobody", "groupName": g, "subRepInfo": SUBSCRIBED},
    ),
    "metadata for no member": lambda t, g: (
        "balance_meta",
        {"clientId": "nobody", "groupName": g, "brokerConfigId": -2, "topicMetaInfoId": -2},
    ),
    # at the broker
    "get without a register": lambda t, g: ("get", place(t, g, lastPackConsumed=True)),
    "commit without a register": lambda t, g: ("commit", place(t, g, lastPackConsumed=True)),
    "unregister without a register": lambda t, g: (
        "partition_register",
        place(t, g, opType=wire.UNREGISTER, readStatus=0),
    ),
    "register with another verb": lambda t, g: ("partition_register", place(t, g, opType=99, readStatus=0)),
    "register at partition 99": lambda t, g: (
        "partition_register",
        place(t, g, opType=wire.REGISTER, readStatus=0) | {"partitionId": 99},
    ),
    "register at partition -1": lambda t, g: (
        "partition_register",
        place(t, g, opType=wire.REGISTER, readStatus=0) | {"partitionId": -1},
    ),
    "register at no topic": lambda t, g: (
        "partition_register",
        place("not_there", g, opType=wire.REGISTER, readStatus=0),
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_cannot_be_is_refused_by_name(broker: EmbeddedTubeMq, name: str) -> None:
    method, fields = REQUESTS[name](broker.topic(), group())
    with raw(broker) as peer:
        if method in ("send", "partition_register", "get", "commit"):
            fields = fields | (visit(peer, "hostile") if method in ("send", "partition_register") else {})
        serial = peer.ask(method, **fields)
        answer = peer.response()
        assert answer.serial == serial
        assert refused(answer), answer
        assert answer.text or answer.get("errMsg"), "it says why"
    serves(broker)


#: Odd but allowed, or without consequence: they get some answer.
ODD: dict[str, Callable[[str, str], tuple[str, dict[str, Any]]]] = {
    "flags that nobody knows": lambda t, g: ("send", message(t, flag=0x7FFFFFFE)),
    "attributes that overrun": lambda t, g: ("send", message(t, b"\x7f\xff\xff\xffx", flag=1)),
    "attributes of a negative length": lambda t, g: ("send", message(t, b"\xff\xff\xff\xffx", flag=1)),
    "attributes that are cut": lambda t, g: ("send", message(t, b"\0", flag=1)),
    "a type of ten thousand letters": lambda t, g: ("send", message(t, msgType="t" * 10_000)),
    "a time that is none": lambda t, g: ("send", message(t, msgTime="yesterday")),
    "an address that is none": lambda t, g: ("send", message(t, sentAddr=-1)),
    "the largest numbers": lambda t, g: (
        "producer_heartbeat",
        {"clientId": "hostile", "brokerCheckSum": 2**63 - 1, "topicList": [t] * 1000} | HERE,
    ),
    "offsets below zero": lambda t, g: (
        "partition_register",
        place(t, g, opType=wire.REGISTER, readStatus=0, currOffset=-(2**63)),
    ),
    "offsets beyond the end": lambda t, g: (
        "partition_register",
        place(t, g, opType=wire.REGISTER, readStatus=0, currOffset=2**63 - 1),
    ),
    "offsets between two messages": lambda t, g: (
        "partition_register",
        place(t, g, opType=wire.REGISTER, readStatus=0, currOffset=13),
    ),
    "a read status that does not exist": lambda t, g: (
        "partition_register",
        place(t, g, opType=wire.REGISTER, readStatus=77),
    ),
    "a thousand filters": lambda t, g: (
        "partition_register",
        place(t, g, opType=wire.REGISTER, readStatus=0, filterCondStr=[f"f{n}" for n in range(1000)]),
    ),
    "a priority that does not exist": lambda t, g: (
        "partition_register",
        place(t, g, opType=wire.REGISTER, readStatus=0, qryPriorityId=-999_999),
    ),
    "partitions that are none": lambda t, g: (
        "broker_heartbeat",
        {
            "clientId": "c",
            "groupName": g,
            "readStatus": 0,
            "partitionInfo": ["", "#", "1:h:1#t", "x#y:z", "#" * 99],
        },
    ),
    "twenty thousand partitions": lambda t, g: (
        "broker_heartbeat",
        {
            "clientId": "c",
            "groupName": g,
            "readStatus": 0,
            "partitionInfo": [f"1:h:1#{t}:{n}" for n in range(20_000)],
        },
    ),
    "goodbye of nobody": lambda t, g: ("producer_close", {"clientId": "nobody"}),
    "goodbye of no member": lambda t, g: ("consumer_close", {"clientId": "nobody", "groupName": g}),
    "a report of what it never had": lambda t, g: (
        "consumer_heartbeat",
        {
            "clientId": "c",
            "groupName": g,
            "reportSubscribeInfo": True,
            "subscribeInfo": ["x", f"c@{g}#1:h:1#{t}:0", "@#:"],
            "event": {"rebalanceId": 9, "opType": 10, "status": 2, "subscribeInfo": ["x"]},
        },
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_answered(broker: EmbeddedTubeMq, name: str) -> None:
    topic = broker.topic()
    method, fields = ODD[name](topic, group())
    with raw(broker) as peer:
        if method in ("send", "partition_register", "broker_heartbeat"):
            fields = fields | visit(peer, "hostile")
        serial = peer.ask(method, **fields)
        assert peer.response().serial == serial
        # Stored messages are delivered unchanged.
        if method == "send":
            name_ = group()
            at = place(topic, name_)
            token = visit(peer, "hostile")
            assert peer.call("partition_register", opType=wire.REGISTER, readStatus=0, **at, **token)[
                "success"
            ]
            got = peer.call("get", lastPackConsumed=False, manualCommitOffset=False, **at)
            for one in got["messages"]:
                assert (one["payLoadData"], one["flag"]) == (fields["data"], fields["flag"])
                assert one["checkSum"] == wire.checksum(fields["data"])
    serves(broker)


# ------------------------------------------------------------------------------ time, order, amounts


def test_a_conversation_cut_at_every_byte_is_forgotten(broker: EmbeddedTubeMq) -> None:
    topic = broker.topic()
    whole = HELLO + wire.request(2, "send", **message(topic)) + wire.request(3, "get", **place(topic, "g"))
    for cut in range(1, len(whole), 3):
        with socket.create_connection(("127.0.0.1", broker.ports[0]), 5) as peer:
            peer.sendall(whole[:cut])
    serves(broker)


@pytest.mark.parametrize("block", [1, 7, 100_000])
def test_blocks_of_any_size_are_a_frame(broker: EmbeddedTubeMq, block: int) -> None:
    topic = broker.topic()
    body = bytes(1000 if block < 100 else 90_000)
    with raw(broker) as peer:
        token = visit(peer, "hostile")
        peer.send(wire.request(9, "send", lies={"block": block}, **message(topic, body, **token)))
        answer = peer.response()
        assert answer.serial == 9 and answer["success"], answer


def test_a_request_byte_by_byte_is_a_request(broker: EmbeddedTubeMq) -> None:
    with raw(broker) as peer:
        for byte in HELLO:
            peer.send(bytes([byte]))
        assert peer.response()["success"]


def test_answers_have_the_order_and_the_serials_of_the_questions(broker: EmbeddedTubeMq) -> None:
    topic = broker.topic()
    with raw(broker) as peer:
        token = visit(peer, "hostile")
        serials = [7, 7, 0xFFFFFFFF, 0, 3]
        peer.send(*(wire.request(serial, "send", **message(topic, **token)) for serial in serials))
        answers = [peer.response() for _ in serials]
        assert [answer.serial for answer in answers] == serials
        assert [answer["appendOffset"] for answer in answers] == [0, 28, 56, 84, 112]


def test_announced_frames_that_never_come_take_no_memory(broker: EmbeddedTubeMq) -> None:
    before = resident(broker.pid)
    peers = [raw(broker) for _ in range(100)]
    for peer in peers:
        peer.send(struct.pack(">IIII", wire.TOKEN, 1, 3584, 8192) + bytes(100))
    serves(broker)
    assert resident(broker.pid) - before < 64 << 20
    for peer in peers:
        peer.socket.close()


def test_a_client_that_never_reads_is_not_read_either(broker: EmbeddedTubeMq) -> None:
    with raw(broker) as peer:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        before = resident(broker.pid)
        peer.socket.settimeout(2)
        sent = 0
        with contextlib.suppress(TimeoutError, ConnectionError):
            while sent < 1 << 28:
                peer.socket.sendall(HELLO * 1000)
                sent += len(HELLO) * 1000
        assert sent < 1 << 28, "the broker took what it could not answer"
        assert resident(broker.pid) - before < 64 << 20
    serves(broker)


def test_many_connections_that_say_nothing(broker: EmbeddedTubeMq) -> None:
    peers = [socket.create_connection(("127.0.0.1", broker.ports[0]), 5) for _ in range(200)]
    serves(broker)
    for peer in peers:
        peer.close()


def test_a_storm_of_connections(broker: EmbeddedTubeMq) -> None:
    for number in range(300):
        with socket.create_connection(("127.0.0.1", broker.ports[0]), 5) as peer:
            peer.sendall(HELLO if number % 2 else noise(number)[:50])
    serves(broker)


def test_a_flood_of_clients_and_groups_has_an_end(broker: EmbeddedTubeMq) -> None:
    """Names cost memory until they time out; a flood of them does not exhaust it."""
    topic = broker.topic()
    before = resident(broker.pid)
    with raw(broker) as peer:
        for number in range(5000):
            peer.call("producer_register", clientId=f"flood-{number}", brokerCheckSum=-1, **HERE)
        for number in range(2000):
            peer.call(
                "consumer_register",
                clientId=f"c-{number}",
                groupName=f"g-{number}",
                topicList=[topic],
                sessionTime=1,
                requireBound=False,
                **HERE,
            )
    assert resident(broker.pid) - before < 64 << 20
    serves(broker)


def test_what_belongs_to_somebody_else_is_not_touched(broker: EmbeddedTubeMq) -> None:
    topic, name = broker.topic(), group()
    with raw(broker) as owner, raw(broker) as thief:
        token, at = visit(owner, "owner"), place(topic, name, clientId="owner")
        assert owner.call("partition_register", opType=wire.REGISTER, readStatus=0, **at, **token)["success"]
        assert owner.call("send", **message(topic, b"1", **token))["success"]
        got = owner.call("get", lastPackConsumed=False, manualCommitOffset=False, **at)
        assert len(got["messages"]) == 1
        stolen, token = at | {"clientId": "thief"}, visit(thief, "thief")
        said = thief.call("partition_register", opType=wire.REGISTER, readStatus=0, **stolen, **token)
        assert not said["success"] and said["errCode"] == 410
        for method in ("get", "commit"):
            assert refused(thief.call(method, lastPackConsumed=True, **stolen))
        assert refused(
            thief.call("partition_register", opType=wire.UNREGISTER, readStatus=0, **stolen, **token)
        )
        # The owner's batch is still unconfirmed, and only the owner may confirm it.
        assert owner.call("commit", lastPackConsumed=False, **at)["currOffset"] == 0
        again = owner.call("get", lastPackConsumed=False, manualCommitOffset=False, **at)
        assert len(again["messages"]) == 1


def test_a_partition_is_free_again_when_its_holder_is_gone() -> None:
    """The embedded broker waits less long than the real one for a silent member."""
    broker = EmbeddedTubeMq(tubemq_client_timeout=1)
    try:
        topic, name = broker.topic(), group()
        with raw(broker) as one, raw(broker) as two:
            at, token = place(topic, name, clientId="one"), visit(one, "one")
            assert one.call("partition_register", opType=wire.REGISTER, readStatus=0, **at, **token)[
                "success"
            ]
            token = visit(two, "two")
            one.socket.close()

            def free() -> bool:
                said = two.call(
                    "partition_register",
                    opType=wire.REGISTER,
                    readStatus=0,
                    **(at | {"clientId": "two"}),
                    **token,
                )
                return bool(said["success"])

            eventually(free, 15)
    finally:
        broker.stop()
