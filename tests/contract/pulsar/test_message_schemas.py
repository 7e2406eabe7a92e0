"""Schemas of single messages of a producer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import forebay
from forebay import errors
from forebay.blocking import connect as connect_blocking
from forebay.pulsar import ProducerInterceptor, Schema

from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE


@dataclass
class Line:
    article: str


@dataclass
class Counted:
    article: str
    count: int | None = None


ONE, TWO = bytes(8), (1).to_bytes(8, "big")


async def received(client: Any, topic: str, count: int, schema: Any = "auto") -> list[Any]:
    async with client.reader(topic, schema=schema, position="earliest") as reader:
        return [await reader.receive(timeout=PATIENCE) for _ in range(count)]


async def test_messages_have_schemas_of_their_own(client: Any, topic: str) -> None:
    one, two = Schema.avro(Line), Schema.avro(Counted)
    async with client.producer(topic, schema=one, batching_delay=1) as producer:
        sent = [
            producer.send(Line("a")),
            producer.send(Line("b")),
            producer.send(Counted("c", 3), schema=two),
            producer.send(Counted("d", 4), schema=two, key="k"),
            producer.send(Line("e"), schema=Schema.avro(Line)),
            producer.send(Line("f")),
        ]
        producer.send_nowait(Counted("g"), schema=two)
        ids = await asyncio.gather(*sent)
        await producer.flush()
    assert ids == sorted(ids)
    got = await received(client, topic, 7)
    assert [message.value["article"] for message in got] == list("abcdefg")
    assert [message.schema_version for message in got] == [ONE, ONE, TWO, TWO, ONE, ONE, TWO]
    assert (got[2].value, got[3].key) == ({"article": "c", "count": 3}, "k")
    entries: dict[Any, set[bytes]] = {}
    for message in got:
        entries.setdefault((message.id.ledger, message.id.entry), set()).add(message.schema_version)
    assert all(len(versions) == 1 for versions in entries.values()), "an entry states one version"
    got = await received(client, topic, 7, two)
    assert [message.value for message in got][:3] == [Counted("a"), Counted("b"), Counted("c", 3)]


async def test_many_values_have_a_schema_of_their_own(client: Any, topic: str) -> None:
    async with client.producer(topic, schema=Schema.avro(Line), max_pending=5) as producer:
        await producer.send(Line("a"))
        # More than the window.
        values = [Counted(str(number), number) for number in range(20)]
        keys = ["k", *[None] * 19]
        ids = await producer.send_many(values, keys, schema=Schema.avro(Counted))
        assert len(ids) == 20 and list(ids) == sorted(ids)
        await producer.send_many([Line("b")])
        assert len(await producer.send_many([], schema=Schema.avro(Counted))) == 0
    got = await received(client, topic, 22)
    assert [message.schema_version for message in got] == [ONE, *[TWO] * 20, ONE]
    assert [message.value for message in got[1:21]] == [{"article": str(n), "count": n} for n in range(20)]
    assert [message.key for message in got[1:4]] == ["k", None, None]


async def test_many_values_of_which_one_does_not_fit_are_not_sent(client: Any, topic: str) -> None:
    async with client.producer(topic, schema=Line) as producer:
        with pytest.raises(errors.SchemaError, match="count"):
            await producer.send_many([Counted("a", 1), Counted("b", "x")], schema=Counted)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="1 keys for 2 payloads"):
            await producer.send_many([Counted("a"), Counted("b")], ["k"], schema=Counted)
        with pytest.raises(errors.InvalidArgument, match="schema"):
            await producer.send_many([b"a"], schema="auto")
        pairs = Schema.key_value("string", "string", "separated")
        with pytest.raises(errors.Unsupported, match="separated"):
            await producer.send_many([("k", "v")], schema=pairs)
        with pytest.raises(errors.IncompatibleSchema):
            await producer.send_many([1, 2], schema="int32")
        await producer.send(Line("only"))
    (only,) = await received(client, topic, 1)
    assert only.value["article"] == "only"


def test_many_values_of_the_blocking_face(service: PulsarService, topic: str) -> None:
    with connect_blocking(service.url) as client, client.producer(topic) as producer:
        assert len(producer.send_many(["a", "b"], schema="string")) == 2
        with client.reader(topic, schema="string", position="earliest") as reader:
            assert [reader.receive(timeout=PATIENCE).value for _ in range(2)] == ["a", "b"]


async def test_a_producer_without_a_schema_sends_messages_that_have_one(client: Any, topic: str) -> None:
    async with client.producer(topic) as producer:
        await producer.send("text", schema="string")
        await producer.send(b"bytes")
        await producer.send(None, schema="string", null_value=True)
    got = await received(client, topic, 3)
    assert [(message.value, message.schema_version) for message in got] == [
        ("text", ONE),
        (b"bytes", None),
        (None, ONE),
    ]


async def test_bytes_are_sent_without_a_schema(client: Any, topic: str) -> None:
    async with client.producer(topic, schema=Line) as producer:
        await producer.send(Line("a"))
        await producer.send(b"raw", schema="bytes")
    got = await received(client, topic, 2)
    assert (got[1].data, got[1].schema_version) == (b"raw", None)


async def test_a_refused_schema_fails_its_messages_only_and_names_both(client: Any, topic: str) -> None:
    async with client.producer(topic, schema=Schema.avro(Line)) as producer:
        before = producer.send(Line("a"))
        refused = [producer.send(n, schema="int32") for n in range(3)]
        after = producer.send(Line("b"))
        await before
        for sending in refused:
            with pytest.raises(errors.IncompatibleSchema, match=r"given is Int32; .* is Avro .*article"):
                await sending
        await after
        with pytest.raises(errors.IncompatibleSchema):
            await producer.send(7, schema="int32")
        producer.send_nowait(7, schema="int32")
        with pytest.raises(errors.IncompatibleSchema):
            await producer.flush()
        await producer.send(Counted("c"), schema=Schema.avro(Counted))
        assert producer.stats()["messages_pending"] == 0
    got = await received(client, topic, 3)
    assert [message.value["article"] for message in got] == ["a", "b", "c"]


async def test_a_value_that_does_not_fit_the_schema_of_its_message_is_not_sent(
    client: Any, topic: str
) -> None:
    async with client.producer(topic, schema=Line) as producer:
        with pytest.raises(errors.SchemaError, match="expected Counted, got Line"):
            await producer.send(Line("a"), schema=Counted)
        with pytest.raises(errors.InvalidArgument, match="needs its own schema"):
            await producer.send(b"a", schema="auto")
        with pytest.raises(errors.InvalidArgument, match="schema"):
            await producer.send(b"a", schema=7)
        await producer.send(Line("b"))
    assert [message.value for message in await received(client, topic, 1)] == [{"article": "b"}]
    with pytest.raises(errors.TopicNotFound):
        await client.schema(topic, TWO)


@pytest.mark.parametrize("lazy_start", [False, True])
async def test_each_partition_knows_the_schemas(
    client: Any, service: PulsarService, lazy_start: bool
) -> None:
    topic = service.topic(partitions=3)
    async with client.producer(topic, schema=Line, lazy_start=lazy_start) as producer:
        await asyncio.gather(
            *(
                producer.send(Counted(str(n), n), schema=Counted) if n % 2 else producer.send(Line(str(n)))
                for n in range(60)
            )
        )
    got = await received(client, topic, 60)
    assert {int(message.value["article"]): message.schema_version for message in got} == {
        n: TWO if n % 2 else ONE for n in range(60)
    }


async def test_chunks_delayed_messages_and_interceptors_have_the_schema(client: Any, topic: str) -> None:
    class Mark(ProducerInterceptor):
        def before_send(self, producer: Any, message: Any) -> Any:
            message.properties["seen"] = "yes"
            return message

    options: dict[str, Any] = {"batching": False, "chunking": True, "chunk_max_size": 1000}
    async with client.producer(topic, schema=Line, interceptors=[Mark()], **options) as producer:
        await producer.send(Counted("x" * 5000), schema=Counted)
        await producer.send(Counted("late"), schema=Counted, deliver_after=0.01)
    got = await received(client, topic, 2)
    assert [message.schema_version for message in got] == [TWO, TWO]
    assert [len(message.value["article"]) for message in got] == [5000, 4]
    assert got[0].properties == {"seen": "yes"}


async def test_closing_waits_for_the_schema(client: Any, topic: str) -> None:
    async with client.producer(topic, schema=Line) as producer:
        producer.send_nowait(Counted("a"), schema=Counted)
    assert (await received(client, topic, 1))[0].schema_version == TWO


async def test_schemas_are_registered_again_at_a_topic_that_was_made_again(
    client: Any, service: PulsarService, topic: str
) -> None:
    async with client.producer(topic) as producer:
        await producer.send(Line("old"), schema=Line)
        await producer.send(Counted("old"), schema=Counted)
        service.delete_topic(topic)
        for _ in range(100):
            try:
                await producer.send(Counted("new"), schema=Counted)
                break
            except errors.IncompatibleSchema:
                await asyncio.sleep(0.1)
        await producer.send(Line("new"), schema=Line)
    got = await received(client, topic, 2)
    # Each is read by the schema that its version names there.
    assert [message.value for message in got] == [{"article": "new", "count": None}, {"article": "new"}]


def test_the_blocking_face_has_schemas_of_messages(service: PulsarService, topic: str) -> None:
    with forebay.blocking.connect(service.url) as client:
        with client.producer(topic, schema=Line) as producer:
            producer.send(Line("a"))
            producer.send(Counted("b"), schema=Counted)
            producer.send_nowait(Line("c"))
            producer.flush()
        with client.reader(topic, schema=Counted, position="earliest") as reader:
            got = [reader.receive(timeout=PATIENCE) for _ in range(3)]
    assert [message.value for message in got] == [Counted("a"), Counted("b"), Counted("c")]
    assert [message.schema_version for message in got] == [ONE, TWO, ONE]
