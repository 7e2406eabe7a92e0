"""TubeMQ masters and brokers that lie to the client.

Each operation ends in time: with success, or with a typed error after which a new client works. No message
arrives that was not sent, and the process does not grow by sizes that were only claimed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import errors

from support.scripts import free_port
from support.tubemq import wire
from support.tubemq.harness import group
from support.tubemq.liar import Answer, Liar, Peer, altered, close, instead, made_up, mangled, silent
from support.tubemq.wire import Request
from support.waiting import until

PATIENCE = 90.0
SENT = [b"m%d" % number for number in range(5)]
OPTIONS: dict[str, Any] = {
    "connect_timeout": 3,
    "request_timeout": 1,
    "operation_timeout": 4,
    "heartbeat_interval": 0.2,
    "max_backoff": 0.05,
}


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """Asserts over all tests that the process does not grow."""
    before = resident()
    yield
    assert resident() - before < 96 << 20


async def life(
    url: str,
    *,
    balance: str = "client",
    enough: Callable[[], bool] = lambda: True,
    patience: float = 6.0,
    limit: float = 3.0,
    **options: Any,
) -> list[bytes]:
    """Runs a producer and a consumer until ``enough`` holds; returns the payloads that arrived."""
    limits = OPTIONS | {"connect_timeout": limit, "operation_timeout": limit + 1}
    async with asyncio.timeout(PATIENCE), forebay.connect(url, **limits) as client:
        async with client.producer("demo", send_timeout=limit) as producer:
            for payload in SENT:
                at = await producer.send(payload, message_type="till", properties={"a": "b"})
                assert at.broker_id == 1
            got: list[bytes] = []
            options = {"position": "first", "balance": balance, "poll_interval": 0.02} | options
            async with client.consumer("demo", group(), **options) as consumer:
                deadline = asyncio.get_running_loop().time() + patience
                while not (set(got) >= set(SENT) and enough()):
                    messages = await consumer.receive_many(100, timeout=0.1)
                    got += [bytes(message.data) for message in messages]
                    for message in messages:
                        await consumer.ack(message)
                    if asyncio.get_running_loop().time() > deadline:
                        break
        return got


async def survives(liar: Liar, **options: Any) -> errors.Error | None:
    """The first run may end with an error, the second must succeed."""
    failed: errors.Error | None = None
    async with liar.up() as url:
        try:
            got = await life(url, enough=liar.told, **options)
        except errors.Error as error:
            failed = error
        else:
            if not set(got) <= set(SENT):
                pytest.fail("what came was never sent")
            if set(got) != set(SENT):
                failed = errors.Timeout("not all messages came")
        assert liar.told() or not liar.lies or failed, "no request was lied to"
        liar.lies = {}
        got = await life(url, **(options | {"patience": 60, "limit": 60}))
        if not set(got) <= set(SENT):
            pytest.fail("what came was never sent")
        assert set(SENT) <= set(got), got
    return failed


async def all_of(scripts: dict[str, Callable[[], Awaitable[None]]]) -> None:
    """Runs several scripts at a time, because most of each is waiting, and names those that failed. A script
    fails by itself where the machine stands still: three times in a row it is the client's fault."""
    places = asyncio.Semaphore(12)

    async def one(name: str, script: Callable[[], Awaitable[None]]) -> str | None:
        fault = None
        async with places:
            for _ in range(3):
                try:
                    await script()
                    return None
                except pytest.fail.Exception as error:
                    return f"{name}: {error!r}"
                except Exception as error:
                    fault = f"{name}: {error!r}"
        return fault

    failed = await asyncio.gather(*(one(name, script) for name, script in scripts.items()))
    assert not any(failed), "\n".join(filter(None, failed))


# ------------------------------------------------------------------------------ lies about any answer


def header(**fields: Any) -> bytes:
    return wire.delimited(wire.encode("RpcConnHeader", **fields))


def payload(*parts: bytes) -> Callable[[Request], bytes]:
    return lambda asked: wire.frame(asked.serial, b"".join(parts))


def answer_of(body: bytes, number: int | None = None) -> Callable[[Request], bytes]:
    """An answer of success with this body."""
    return lambda asked: wire.response(asked.serial, asked.number, body, number=number)


OK_HEAD = wire.delimited(wire.encode("ResponseHeader", status=0, protocolVer=3))
NOISE = random.Random(7).randbytes(300)

#: The answer to the first request of a method, and whether the client must go on unaffected.
LIES: dict[str, tuple[Answer, bool]] = {
    "silence": (silent, False),
    "close": (close, False),
    "half an answer, then close": (mangled(lambda raw: raw[: len(raw) // 2], then_close=True), False),
    "half an answer, then silence": (mangled(lambda raw: raw[: len(raw) // 2]), False),
    "an answer, then close": (mangled(lambda raw: raw, then_close=True), False),
    "the answer twice": (mangled(lambda raw: raw * 2), True),
    "an answer to nothing before it": (
        mangled(lambda raw: raw[:4] + bytes([raw[4] ^ 0x55]) + raw[5:] + raw),
        True,
    ),
    "another serial": (
        lambda liar, peer, asked: peer.send(
            wire.response(asked.serial ^ 0x5555, asked.name, **liar.fields(asked))
        ),
        False,
    ),
    "no token": (mangled(lambda raw: b"\0\0\0\0" + raw[4:]), False),
    "HTTP": (instead(lambda _: b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"), False),
    "random bytes": (instead(lambda _: NOISE), False),
    "no blocks": (instead(lambda asked: wire.frame(asked.serial, b"")), False),
    "3585 blocks": (mangled(lambda raw: raw[:8] + struct.pack(">I", 3585) + raw[12:]), False),
    "four thousand million blocks": (mangled(lambda raw: raw[:8] + b"\xff\xff\xff\xff" + raw[12:]), False),
    "one block more than there are": (mangled(lambda raw: raw[:8] + struct.pack(">I", 2) + raw[12:]), False),
    "a block of 4 GiB": (mangled(lambda raw: raw[:12] + b"\xff\xff\xff\xff" + raw[16:]), False),
    "3584 blocks of 28 MiB": (mangled(lambda raw: raw[:8] + b"\0\0\x0e\0\x01\xc0\0\0" + raw[16:]), False),
    "a block of nothing": (instead(lambda asked: wire.frame(asked.serial, b"", count=1) + bytes(4)), False),
    "blocks of a byte": (
        mangled(lambda raw: wire.frame(struct.unpack(">I", raw[4:8])[0], raw[16:], block=1)),
        True,
    ),
    "bytes behind the third part": (
        mangled(lambda raw: wire.frame(struct.unpack(">I", raw[4:8])[0], raw[16:] + b"\xff" * 9)),
        True,
    ),
    "only a header": (instead(payload(header(flag=1))), False),
    "a part that is longer than the frame": (instead(payload(header(flag=1), b"\x7f\0")), False),
    "a length that does not end": (instead(payload(b"\xff" * 11)), False),
    "a length of 2 GiB": (instead(payload(b"\xff\xff\xff\xff\x07")), False),
    "no flag": (instead(payload(header(), OK_HEAD, b"\0")), False),
    "the flag of a request": (
        lambda liar, peer, asked: peer.send(
            wire.response(asked.serial, asked.name, rpc_flag=0, **liar.fields(asked))
        ),
        False,
    ),
    "a request": (instead(lambda asked: wire.request(asked.serial, asked.name, asked.body)), False),
    "no status": (instead(payload(header(flag=1), wire.delimited(b""), b"\0")), False),
    "a status that does not exist": (
        instead(payload(header(flag=1), wire.delimited(wire.encode("ResponseHeader", status=9)), b"\0")),
        False,
    ),
    "a response header that is no protobuf": (
        instead(payload(header(flag=1), b"\x03\xff\xff\xff", b"\0")),
        False,
    ),
    "a body that is no protobuf": (instead(answer_of(NOISE)), False),
    "a body with groups": (instead(answer_of(b"\x0b\x08\x01\x0c")), False),
    "a body with field 0": (instead(answer_of(b"\0\0")), False),
    "a body whose numbers are texts": (instead(answer_of(b"\x0a\x01x\x12\x01x\x18\x01")), False),
    "a number of eleven bytes": (instead(answer_of(b"\x08" + b"\xff" * 10 + b"\x01")), False),
    "an empty body": (instead(answer_of(b"")), False),
    "the answer of another method": (
        lambda liar, peer, asked: peer.send(
            wire.response(asked.serial, asked.name, number=999, **liar.fields(asked))
        ),
        False,
    ),
    "success without success": (altered(errCode=500, errMsg="no"), False),
    "failure with the code of success": (altered(success=False, errCode=200, errMsg="no"), False),
    "a code that does not exist": (altered(success=False, errCode=-77, errMsg=""), False),
    "500": (altered(success=False, errCode=500, errMsg="Internal\x1b[2J error"), False),
    "a megabyte of words": (altered(success=False, errCode=500, errMsg="é" * 500_000), False),
    "ERROR of no class": (instead(lambda asked: wire.failure(asked.serial, "")), False),
    "ERROR without anything": (
        instead(payload(header(flag=1), wire.delimited(wire.encode("ResponseHeader", status=1)), b"\0")),
        False,
    ),
    "FATAL": (
        instead(lambda asked: wire.failure(asked.serial, "java.lang.Error", "boom", status=wire.FATAL)),
        False,
    ),
    "standby": (
        instead(
            lambda asked: wire.failure(
                asked.serial, "org.apache.inlong.tubemq.corerpc.exception.StandbyException", "not master now"
            )
        ),
        False,
    ),
    "words that are no UTF-8": (
        instead(
            payload(
                header(flag=1),
                wire.delimited(wire.encode("ResponseHeader", status=1)),
                wire.delimited(
                    wire.encode("RspExceptionBody", exceptionName=b"\xff\xfe", stackTrace=b"\xc0")
                ),
            )
        ),
        False,
    ),
}

#: Methods with false answers, and the balance of the consumer that uses them.
METHODS = {
    "producer_register": "client",
    "producer_heartbeat": "client",
    "send": "client",
    "balance_register": "client",
    "balance_meta": "client",
    "balance_heartbeat": "client",
    "consumer_register": "server",
    "consumer_heartbeat": "server",
    "partition_register": "client",
    "broker_heartbeat": "client",
    "get": "client",
    "consumer_close": "client",
    "producer_close": "client",
}
#: Methods that are repeated, at once or on the next connection: one lie that is no refusal does not end them.
RECOVERS = {
    "send",
    "partition_register",
    "get",
    "producer_heartbeat",
    "balance_heartbeat",
    "consumer_heartbeat",
    "broker_heartbeat",
}
REFUSALS = {
    "an empty body",
    "success without success",
    "failure with the code of success",
    "a code that does not exist",
    "500",
    "a megabyte of words",
    "ERROR of no class",
    "ERROR without anything",
    "FATAL",
    "standby",
}
NO_SUCCESS_FIELD = {"balance_register", "balance_meta", "balance_heartbeat"}


def lie_about(method: str, name: str) -> Callable[[], Awaitable[None]]:
    answer, harmless = LIES[name]
    if method in NO_SUCCESS_FIELD:
        codes = {"failure with the code of success": 0, "a code that does not exist": -77, "500": 500}
        if name in codes or name == "a megabyte of words":
            answer = altered(errCode=codes.get(name, 500), errMsg="\x1b[2J" + "é" * 500_000)

    async def script() -> None:
        failed = await survives(Liar(lies={method: answer}), balance=METHODS[method])
        if failed is not None:
            assert not harmless, failed
            assert name in REFUSALS or method not in RECOVERS, failed
            assert len(str(failed)) < 4000, "the words of a peer have an end"
            assert "\x1b" not in str(failed)

    return script


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
async def test_answers_that_lie(method: str):
    await all_of({name: lie_about(method, name) for name in LIES})


# ------------------------------------------------------------------------------ lies about who has what


def told(method: str, **fields: Any) -> Callable[[], Liar]:
    """The honest answer with these fields replaced, the first three times."""
    return lambda: Liar(lies={method: altered(**fields)}, times=3)


MANY = [f"{number}:127.0.0.1:{number % 60_000 + 1}" for number in range(1, 50_001)]
#: Flow control rules of a group, without their text.
RULES: dict[str, Any] = {"groupFlowCheckId": 7, "defFlowCheckId": -2, "qryPriorityId": 301}
BROKEN_RULES = ["", " ", "{", "\0", "[" * 100_000, "[1]", '[{"type":9}]', '[{"type":3,"rule":[{},{}]}]']
METADATA: dict[str, Callable[[], Liar]] = {
    f"{method}: {field} = {shown}": told(method, **{field: value})
    for method, field, values in [
        (
            "producer_register",
            "brokerInfos",
            [
                [],
                [""],
                ["1"],
                ["1:"],
                ["1:127.0.0.1"],
                ["x:127.0.0.1:80"],
                ["1::80"],
                ["1:127.0.0.1:99999"],
                ["1:127.0.0.1:-1"],
                ["-1:127.0.0.1:80"],
                ["99999999999999999999:127.0.0.1:80"],
                ["1:127.0.0.1:1"],
                ["1:nowhere.invalid:80"],
                ["1:" + "h" * 100_000 + ":80"],
                ["1:127.0.0.1:1", "1:127.0.0.1:2"],
                ["1:\n127.0.0.1\x00:80"],
                MANY,
            ],
        ),
        (
            "producer_heartbeat",
            "topicInfos",
            [
                [""],
                ["demo"],
                ["demo#"],
                ["#1:1:1#"],
                ["demo#1"],
                ["demo#1:1"],
                ["demo#1:0:0#"],
                ["demo#1:-1:1#"],
                ["demo#x:1:1#"],
                ["demo#9:1:1#"],
                ["demo#1:1000000000:1000000000#"],
                ["demo#1:2147483647:2147483647#"],
                ["other#1:1:1#"],
                ["demo#1:1:1#-5"],
                ["demo#1:1:1#99999999999999999999"],
                ["demo#1:1:1#x"],
                ["demo#" + ",".join(["1:1:1"] * 50_000) + "#"],
            ],
        ),
        (
            "balance_meta",
            "topicMetaInfoList",
            [
                [],
                [""],
                ["demo"],
                ["demo#1:1"],
                ["demo#1:1:1"],
                ["demo#1:1:1:0"],
                ["demo#1:1:1:x"],
                ["demo#1:0:0:1"],
                ["demo#1:1000000000:1000000000:1"],
                ["demo#9:1:1:1"],
                ["other#1:1:1:1"],
                ["demo#1:1:-1:1"],
                ["demo#" + ",".join(["1:1:1:1"] * 50_000)],
            ],
        ),
        ("balance_register", "brokerConfigList", [[], [""], ["1"], ["1:127.0.0.1:1"], MANY]),
        ("balance_heartbeat", "brokerConfigList", [["1"], ["1:127.0.0.1:1"], ["x"]]),
        ("balance_heartbeat", "topicMetaInfoList", [["demo"], ["demo#1:1000000000:1000000000:1"]]),
        ("producer_register", "authorizedInfo", [{}, {"visitAuthorizedToken": -(2**63)}]),
        ("producer_register", "appdConfig", [{}, {"configId": 1, "maxMsgSize": -1}]),
        ("producer_heartbeat", "requireAuth", [True]),
        ("balance_register", "opsTaskInfo", [{"qryPriorityId": 999_999}, {"csmFrmMaxOffsetCtrlId": 2**62}]),
        ("broker_heartbeat", "failureInfo", [["x"], ["411:1"], ["411:1:h:1#demo:0"], ["411:1:h:1#other:77"]]),
        (
            "consumer_register",
            "defFlowControlInfo",
            ["{", "[" * 100_000, "[1]", '[{"type":0,"rule":[{}]}]', '[{"type":1,"rule":[{"zeroCnt":-1}]}]'],
        ),
        (
            "balance_register",
            "opsTaskInfo",
            [RULES | {"groupFlowControlInfo": text} for text in BROKEN_RULES],
        ),
        (
            "balance_heartbeat",
            "opsTaskInfo",
            [RULES | {"groupFlowControlInfo": text} for text in BROKEN_RULES],
        ),
    ]
    for value in values
    for shown in [json.dumps(value)[:60]]
}


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted({name.split(":")[0] for name in METADATA}))
async def test_who_has_what_is_a_lie(method: str):
    def script(make: Callable[[], Liar]) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            await survives(make(), balance=METHODS[method])

        return run

    await all_of({name: script(make) for name, make in METADATA.items() if name.startswith(f"{method}:")})


def event(**fields: Any) -> Answer:
    """An event that no honest master sends, in the heartbeat's answer."""

    def answer(liar: Liar, peer: Peer, asked: Request) -> None:
        said = liar.fields(asked)
        here = f"{asked.fields['clientId']}@{asked.fields['groupName']}#1:{liar.address}#demo:0"
        made = {name: value(here) if callable(value) else value for name, value in fields.items()}
        peer.send(wire.response(asked.serial, asked.name, **(said | {"event": made})))

    return answer


EVENTS: dict[str, Answer] = {
    "an unknown kind": event(rebalanceId=7, opType=77, subscribeInfo=lambda here: [here]),
    "without a kind": event(rebalanceId=7, subscribeInfo=lambda here: [here]),
    "without a number": event(opType=10, subscribeInfo=lambda here: [here]),
    "number 0": event(rebalanceId=0, opType=10, subscribeInfo=lambda here: [here]),
    "a negative number": event(rebalanceId=-9, opType=10, subscribeInfo=lambda here: [here]),
    "nothing to connect": event(rebalanceId=7, opType=10, subscribeInfo=[]),
    "nonsense to connect": event(
        rebalanceId=7, opType=10, subscribeInfo=["x", "", "@#:", "a@b#c#d", "#" * 99]
    ),
    "a partition of somebody else": event(
        rebalanceId=7, opType=10, subscribeInfo=lambda here: ["other@" + here.split("@", 1)[1]]
    ),
    "a topic that was not asked for": event(
        rebalanceId=7, opType=10, subscribeInfo=lambda here: [here.replace("#demo:", "#other:")]
    ),
    "a partition that is not there": event(
        rebalanceId=7, opType=10, subscribeInfo=lambda here: [here.replace("demo:0", "demo:999")]
    ),
    "a partition of a broker that is not there": event(
        rebalanceId=7, opType=10, subscribeInfo=lambda here: [here.split("#")[0] + "#9:127.0.0.1:1#demo:0"]
    ),
    "twenty thousand partitions": event(
        rebalanceId=7,
        opType=10,
        subscribeInfo=lambda here: [here.replace("demo:0", f"demo:{n}") for n in range(20_000)],
    ),
    "disconnect what it never had": event(rebalanceId=7, opType=20, subscribeInfo=lambda here: [here]),
    "refresh": event(rebalanceId=7, opType=4, subscribeInfo=[]),
    "report": event(rebalanceId=7, opType=3, subscribeInfo=[]),
    "stop": event(rebalanceId=7, opType=5, subscribeInfo=[]),
    "one that is done already": event(rebalanceId=7, opType=10, status=2, subscribeInfo=lambda here: [here]),
}


async def test_events_that_lie():
    def script(answer: Answer) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            await survives(Liar(lies={"consumer_heartbeat": answer}, times=2), balance="server")

        return run

    await all_of({name: script(answer) for name, answer in EVENTS.items()})


# ------------------------------------------------------------------------------ lies about messages


def good(body: bytes = SENT[0], **lies: Any) -> dict[str, Any]:
    return wire.transfered(body, "$msgType$=till,$msgTime$=202611211200,a=b", **lies)


PACKS: dict[str, Answer] = {
    "a checksum that does not hold": made_up(good(b"lie", checkSum=1)),
    "a negative checksum": made_up(good(b"lie", checkSum=-1)),
    "a message without its payload": made_up({"messageId": 1, "checkSum": 5}),
    "a message that is no protobuf": made_up(NOISE),
    "no messages": made_up(),
    "a negative offset": altered(currOffset=-28),
    "the largest offset": altered(currOffset=2**63 - 1, maxOffset=2**63 - 1),
    "an end before the start": altered(currOffset=2800, maxOffset=28),
    "an offset between two messages": altered(currOffset=13),
    "more than is left": altered(currDataDlt=-(2**63)),
    "success with 404": altered(errCode=404, errMsg="no", messages=[]),
    "403": altered(success=False, errCode=403, errMsg="closed", messages=[]),
    "410": altered(success=False, errCode=410, errMsg="occupied", messages=[]),
    "411": altered(success=False, errCode=411, errMsg="not registered", messages=[]),
    "412": altered(success=False, errCode=412, errMsg="twice", messages=[]),
    "415": altered(success=False, errCode=415, errMsg="who are you", messages=[]),
    "301": altered(success=False, errCode=301, errMsg="moved", messages=[]),
    "503": altered(success=False, errCode=503, errMsg="later", messages=[]),
    "452 without an end": altered(
        success=False, errCode=452, errMsg="slower", minLimitTime=2**31 - 1, messages=[]
    ),
    "452 in the past": altered(success=False, errCode=452, errMsg="slower", minLimitTime=-5, messages=[]),
    "404 with messages": altered(success=False, errCode=404, errMsg="none", messages=[good(b"lie")]),
    "404 that is not the end": altered(
        success=False, errCode=404, errMsg="Can't found Message by index!", messages=[]
    ),
}


async def test_packs_that_lie():
    endless = {"452 without an end", "a negative offset", "the largest offset"}

    def script(name: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            failed = await survives(Liar(lies={"get": PACKS[name]}))
            assert failed is None or name in endless or isinstance(failed, errors.AuthenticationError), failed

        return run

    await all_of({name: script(name) for name in PACKS})


@pytest.mark.parametrize("data", [b"a body without attributes", b"\0\0\xff\xffx", b"\xff" * 9, b"\0\0"])
async def test_a_message_that_only_claims_attributes_is_delivered_as_it_is(data: bytes):
    """As the Java client sends it for an empty attribute."""
    claims = {"messageId": 1, "payLoadData": data, "checkSum": wire.checksum(data), "flag": 1}
    liar = Liar(lies={"get": made_up(claims)})
    async with liar.up() as url, forebay.connect(url) as client:
        async with client.consumer("demo", group(), position="first") as consumer:
            message = await consumer.receive(timeout=PATIENCE)
            assert (message.data, message.properties) == (data, {})
        assert client.stats()["damaged_messages"] == 0


async def test_a_damaged_message_is_counted(caplog: pytest.LogCaptureFixture):
    liar = Liar(lies={"get": made_up(good(b"lie", checkSum=1), good(b"fine"))})
    async with liar.up() as url, forebay.connect(url) as client:
        async with client.consumer("demo", group(), position="first") as consumer:
            assert (await consumer.receive(timeout=PATIENCE)).data == b"fine"
        assert client.stats()["damaged_messages"] == 1
        await until(lambda: any("is damaged" in record.message for record in caplog.records))


async def test_attributes_that_are_odd_do_no_harm():
    odd = ["", ",", "=", "a", "a=b=c", "=v", "$msgType$", "k=" + "v" * 10_000, ",".join(["k=v"] * 1000)]
    packs = [wire.transfered(b"m%d" % (n % 5), text) for n, text in enumerate(odd)]
    packs.append(wire.transfered(SENT[0], None, flag=0x7FFFFFFE))
    data = struct.pack(">I", 2) + b"\xff\xfe" + SENT[0]
    packs.append(wire.transfered(b"", None, payLoadData=data, checkSum=wire.checksum(data), flag=1))
    liar = Liar(lies={"get": made_up(*packs)})
    assert await survives(liar, patience=60, limit=60) is None


async def test_filters_hold_even_when_the_broker_does_not_keep_them():
    # The broker compares hashes, and "BB" has that of "Aa".
    lie = made_up(wire.transfered(b"lie", "$msgType$=BB"), good(b"lie"), wire.transfered(b"lie"))
    liar = Liar(lies={"get": lie})
    liar.stores["demo"].entries.append((0, *wire.pack(SENT[1], "$msgType$=Aa"), "Aa"))
    async with liar.up() as url, forebay.connect(url, **OPTIONS) as client:
        options: dict[str, Any] = {"filters": ["Aa"], "position": "first", "poll_interval": 0.02}
        async with client.consumer("demo", group(), **options) as consumer:
            message = await consumer.receive(timeout=PATIENCE)
            assert bytes(message.data) == SENT[1]


# ------------------------------------------------------------------------------ order and time


async def test_answers_in_another_order_go_to_whom_they_belong():
    """Answers are matched by their serial."""
    waiting: list[tuple[Peer, bytes]] = []

    def late(liar: Liar, peer: Peer, asked: Request) -> None:
        waiting.append((peer, liar.honest(asked)))
        if len(waiting) == 5:
            for to, frame in reversed(waiting):
                to.send(frame)

    liar = Liar(lies={"send": late}, times=5)
    async with liar.up() as url, forebay.connect(url, **OPTIONS) as client:
        async with client.producer("demo") as producer:
            places = await asyncio.wait_for(
                asyncio.gather(*(producer.send(payload) for payload in SENT)), PATIENCE
            )
        offsets = {bytes(sent): at.offset for sent, at in zip(SENT, places, strict=True)}
        assert offsets == {body: at * 28 for at, body in enumerate(liar.sent()[:5])}


@pytest.mark.parametrize("code", [419, 503, 403, 500])
async def test_a_send_that_is_refused_once_gets_through_or_says_why(code: int):
    refuse = altered(success=False, errCode=code, errMsg="not now", messageId=None, appendOffset=None)
    liar = Liar(lies={"send": refuse})
    async with liar.up() as url, forebay.connect(url, **OPTIONS) as client:
        async with client.producer("demo", send_timeout=5) as producer:
            try:
                at = await asyncio.wait_for(producer.send(b"x"), PATIENCE)
                assert at.offset >= 0
                assert liar.asked["send"] >= 2
            except errors.Error as error:
                assert "not now" in str(error) or isinstance(error, errors.Timeout)


async def test_a_send_that_is_never_answered_times_out_and_the_next_one_works():
    liar = Liar(lies={"send": silent}, times=10**6)
    async with liar.up() as url, forebay.connect(url, **OPTIONS) as client:
        async with client.producer("demo", send_timeout=5) as producer:
            with pytest.raises(errors.Timeout):
                await asyncio.wait_for(producer.send(b"x"), PATIENCE)
            liar.lies = {}
            at = await asyncio.wait_for(producer.send(b"y"), PATIENCE)
            assert at.partition == 0


async def test_success_without_a_place_is_no_success():
    liar = Liar(lies={"send": altered(success=True, errCode=200, messageId=None, appendOffset=None)})
    with contextlib.suppress(errors.Error):
        await survives(liar)


async def test_a_master_that_answers_nobody_lets_connect_fail_in_time():
    liar = Liar(lies=dict.fromkeys(METHODS, silent), times=10**6)
    async with liar.up() as url:
        started = asyncio.get_running_loop().time()
        with pytest.raises(errors.Error):
            async with forebay.connect(url, **(OPTIONS | {"connect_timeout": 1})):
                pass
        assert asyncio.get_running_loop().time() - started < 30


async def test_a_group_that_is_to_wait_for_ever_waits_a_while():
    """Invalid rules of a cluster do not end the operation."""
    for_ever = [
        {
            "type": 0,
            "rule": [{"start": "0:0", "end": "24:00", "dltInM": 21, "limitInM": 0, "freqInMs": 2**31 - 1}],
        },
        {"type": 1, "rule": [{"zeroCnt": 1, "freqInMs": 2**31 - 1}]},
    ]
    liar = Liar(
        lies={"balance_register": altered(opsTaskInfo=RULES | {"groupFlowControlInfo": json.dumps(for_ever)})}
    )
    async with liar.up() as url, forebay.connect(url, **OPTIONS) as client:
        async with client.producer("demo") as producer, client.consumer("demo", group()) as consumer:
            await producer.send(b"x")
            with pytest.raises(errors.Timeout):
                await consumer.receive(timeout=0.5)
            # The number is known: only changes are reported.
            await until(
                lambda: any(
                    asked.fields.get("opsTaskInfo", {}).get("groupFlowCheckId") == 7
                    for asked in liar.requests
                    if asked.name == "balance_heartbeat"
                )
            )
            assert liar.asked["get"] < 5
            # A leaving member does not wait.
            async with asyncio.timeout(PATIENCE):
                await consumer.close()


async def test_connect_asks_again_what_may_pass():
    for code in (500, 503, 301, 777):
        later = altered(success=False, errCode=code, errMsg="later")
        liar = Liar(lies={"producer_register": later}, times=2)
        async with liar.up() as url, forebay.connect(url, **OPTIONS) as client:
            assert liar.asked["producer_register"] == 3
            assert await client.partitions("demo") == 1
    refused = altered(success=False, errCode=415, errMsg="who are you")
    liar = Liar(lies={"producer_register": refused}, times=10**6)
    async with liar.up() as url:
        with pytest.raises(errors.AuthenticationError, match="who are you"):
            await forebay.connect(url, **OPTIONS)
    assert liar.asked["producer_register"] == 1, "that does not pass"
    liar.lies = {"producer_register": altered(success=False, errCode=503, errMsg="never")}
    async with liar.up() as url:
        began = asyncio.get_running_loop().time()
        with pytest.raises(errors.ServiceNotReady, match="never"):
            await forebay.connect(url, **(OPTIONS | {"connect_timeout": 1}))
        assert asyncio.get_running_loop().time() - began < 30


async def test_connect_tries_every_master_before_it_gives_up():
    def gone() -> str:
        return f"127.0.0.1:{free_port()}"

    liar = Liar()
    async with liar.up() as url:
        for masters in (f"tubemq://{gone()},{gone()},{liar.address}", f"{url},{gone()}"):
            async with forebay.connect(masters, **OPTIONS) as client:
                assert await client.partitions("demo") == 1
    one, two = gone(), gone()
    began = asyncio.get_running_loop().time()
    with pytest.raises(errors.ConnectFailed) as caught:
        await forebay.connect(f"tubemq://{one},{two}", **(OPTIONS | {"connect_timeout": 120}))
    assert one in str(caught.value) and two in str(caught.value)
    assert asyncio.get_running_loop().time() - began < 60, "there is no member to wait for"


async def test_connect_waits_for_the_standby_whose_active_master_is_gone():
    standby = instead(lambda asked: wire.failure(asked.serial, "org.apache.inlong.StandbyException", "no"))
    liar = Liar(lies={"producer_register": standby}, times=3)
    async with liar.up():
        url = f"tubemq://127.0.0.1:{free_port()},{liar.address}"
        async with forebay.connect(url, **OPTIONS) as client:
            assert await client.partitions("demo") == 1
    assert liar.asked["producer_register"] == 4


async def test_only_standby_masters():
    standby = instead(
        lambda asked: wire.failure(
            asked.serial, "com.tencent.tubemq.corerpc.exception.StandbyException", "no"
        )
    )
    one = Liar(lies=dict.fromkeys(METHODS, standby), times=10**6)
    two = Liar(lies=dict.fromkeys(METHODS, standby), times=10**6)
    async with one.up() as url, two.up():
        with pytest.raises(errors.Error):
            async with forebay.connect(f"{url},{two.address}", **(OPTIONS | {"connect_timeout": 1})):
                pass
        assert one.connections and two.connections, "both were asked"
        two.lies = {}
        async with forebay.connect(f"{url},{two.address}", **OPTIONS) as client:
            async with client.producer("demo") as producer:
                assert (await producer.send(b"x")).offset == 0
    assert two.sent() == [b"x"]


async def test_a_master_that_forgets_its_clients_is_told_again():
    forget = altered(success=False, errCode=411, errMsg="nobody of that name", topicInfos=[])
    liar = Liar()
    async with liar.up() as url, forebay.connect(url, **OPTIONS) as client:
        async with client.producer("demo") as producer:
            await producer.send(b"x")
            registered = liar.asked["producer_register"]
            liar.asked["producer_heartbeat"] = 0
            liar.lies, liar.times = {"producer_heartbeat": forget}, 1
            async with asyncio.timeout(PATIENCE):
                while liar.asked["producer_register"] == registered:
                    await asyncio.sleep(0.01)
            await producer.send(b"y")


async def test_a_partition_that_somebody_else_has_is_taken_when_it_is_free():
    occupied = altered(success=False, errCode=410, errMsg="occupied", currOffset=None, maxOffset=None)
    liar = Liar(lies={"partition_register": occupied}, times=2)
    assert await survives(liar, patience=60, limit=60) is None


@pytest.mark.parametrize("balance", ["client", "server"])
async def test_answers_byte_by_byte_are_no_lie(balance: str):
    assert await survives(Liar(slowly=True), balance=balance, patience=60, limit=60) is None


async def test_each_request_says_how_long_it_waits():
    """Without this field the real server never answers."""
    liar = Liar()
    async with liar.up() as url:
        await life(url, patience=60, limit=60)
    assert all(asked.timeout and asked.timeout > 0 for asked in liar.requests)
    assert all(asked.service == wire.METHODS[asked.name][1] for asked in liar.requests)
