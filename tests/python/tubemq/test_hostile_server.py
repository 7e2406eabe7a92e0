"""TubeMQ masters and brokers that lie to the client: each operation ends in time, with success or with a
typed error after which a new client works.

Each lie by itself is a test in Rust, in `src/tubemq`, and of the fuzz targets.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import forebay
from forebay import errors

from support.scripts import free_port
from support.tubemq import wire
from support.tubemq.harness import group
from support.tubemq.liar import Answer, Liar, altered, instead, made_up, silent
from support.waiting import until

PATIENCE = 90.0
SENT = [b"m%d" % number for number in range(5)]
OPTIONS: dict[str, Any] = {
    "connect_timeout": 3,
    "request_timeout": 1,
    "operation_timeout": 4,
    "heartbeat_interval": 0.2,
    "max_backoff": 0.1,
}


async def life(url: str, limit: float = 3.0) -> list[bytes]:
    """Runs a producer and a consumer until everything has arrived; returns the payloads that did."""
    limits = OPTIONS | {"connect_timeout": limit, "operation_timeout": limit + 1}
    async with asyncio.timeout(PATIENCE), forebay.connect(url, **limits) as client:
        async with client.producer("demo", send_timeout=limit) as producer:
            for payload in SENT:
                at = await producer.send(payload, message_type="till", properties={"a": "b"})
                assert at.broker_id == 1
            got: list[bytes] = []
            async with client.consumer("demo", group(), position="first", poll_interval=0.02) as consumer:
                while not set(got) >= set(SENT):
                    for message in await consumer.receive_many(100, timeout=PATIENCE):
                        got.append(bytes(message.data))
                        await consumer.ack(message)
        return got


#: A method, the answer to its first request, and the error that it ends with; ``None`` where the
#: client repeats the request, at once or on the next connection. More are in
#: `src/tubemq/*/tests.rs`.
LIES: dict[str, tuple[str, Answer, type[errors.Error] | tuple[type[errors.Error], ...] | None]] = {
    # Of the request, or of the whole connect: whichever ends first.
    "silence": ("producer_register", silent, (errors.Disconnected, errors.Timeout)),
    "a megabyte of words": (
        "producer_register",
        altered(success=False, errCode=415, errMsg="\x1b[2J" + "é" * 500_000),
        errors.AuthenticationError,
    ),
    "a pack that is no protobuf": ("get", made_up(b"\xff" * 300), None),
}


@pytest.mark.parametrize("name", LIES)
async def test_an_answer_that_lies(name: str) -> None:
    method, answer, kind = LIES[name]
    liar = Liar(lies={method: answer}, times=1 if kind is None else 10**6)
    async with liar.up() as url:
        if kind is None:
            assert set(await life(url, limit=60)) == set(SENT)
            assert liar.asked[method], "no request was lied to"
            return
        with pytest.raises(kind) as caught:
            await life(url)
        assert len(str(caught.value)) < 4000, "the words of a peer have an end"
        assert "\x1b" not in str(caught.value)
        liar.lies = {}
        assert set(await life(url, limit=60)) == set(SENT)


def good(body: bytes = SENT[0], **lies: Any) -> dict[str, Any]:
    return wire.transfered(body, "$msgType$=till,$msgTime$=202611211200,a=b", **lies)


async def test_a_damaged_message_is_counted(caplog: pytest.LogCaptureFixture):
    liar = Liar(lies={"get": made_up(good(b"lie", checkSum=1), good(b"fine"))})
    async with liar.up() as url, forebay.connect(url) as client:
        async with client.consumer("demo", group(), position="first") as consumer:
            assert (await consumer.receive(timeout=PATIENCE)).data == b"fine"
        assert client.stats()["damaged_messages"] == 1
        await until(lambda: any("is damaged" in record.message for record in caplog.records))


async def test_a_send_that_is_never_answered_times_out_and_the_next_one_works():
    liar = Liar(lies={"send": silent}, times=10**6)
    async with liar.up() as url, forebay.connect(url, **OPTIONS) as client:
        async with client.producer("demo", send_timeout=5) as producer:
            with pytest.raises(errors.Timeout):
                await asyncio.wait_for(producer.send(b"x"), PATIENCE)
            liar.lies = {}
            at = await asyncio.wait_for(producer.send(b"y"), PATIENCE)
            assert at.partition == 0


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


async def test_connect_has_one_limit_whatever_the_requests_have():
    liar = Liar(lies={"producer_register": silent}, times=10**6)
    slow = OPTIONS | {"request_timeout": 300, "connect_timeout": 0.5}
    async with liar.up() as url, asyncio.timeout(PATIENCE):
        with pytest.raises(errors.Timeout, match="within 500ms"):
            await forebay.connect(url, **slow)


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
    one = Liar(lies=dict.fromkeys(wire.METHODS, standby), times=10**6)
    two = Liar(lies=dict.fromkeys(wire.METHODS, standby), times=10**6)
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


async def test_a_consumer_closes_in_one_limit() -> None:
    """Its partitions and the master had 3 s each, whatever the operation timeout was."""
    liar = Liar(topics={"demo": 3})
    limits = OPTIONS | {"operation_timeout": 0.5, "request_timeout": 60}
    took: list[float] = []
    async with liar.up() as url, asyncio.timeout(PATIENCE), forebay.connect(url, **limits) as client:
        while not took or (min(took) >= 3 and len(took) < 3):
            liar.lies = {}
            consumer = await client.consumer("demo", group(), position="first")
            await until(lambda: liar.asked["get"] > 0)
            liar.lies = dict.fromkeys(("partition_register", "commit", "consumer_close"), silent)
            liar.times = 10**6
            began = asyncio.get_running_loop().time()
            await consumer.close()
            took.append(asyncio.get_running_loop().time() - began)
        liar.lies = {}
    # On a busy machine a close may take longer, but not each time.
    assert min(took) < 3
