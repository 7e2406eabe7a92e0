"""The official Java client on the embedded broker and on a real Pulsar: subscriptions, topics and producers.
Where both clients can do it, they do it together."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

import forebay
from forebay.pulsar import DeadLetterPolicy, KeySharedPolicy

from support.java import Refused
from support.messages import numbered
from support.pulsar.harness import PulsarService, RealPulsar
from support.pulsar.java import JavaConsumer, PulsarJava, encoded
from support.waiting import PATIENCE, eventually

pytestmark = [pytest.mark.real_pulsar, pytest.mark.timeout(300)]

QUICK: Any = {"negativeAckRedeliveryDelayMicros": 50_000, "acknowledgementsGroupTimeMicros": 0}


class Peers:
    """Both clients on one broker."""

    def __init__(self, java: PulsarJava, service: PulsarService) -> None:
        self.java, self.service = java, service
        self.ours: Any = forebay.blocking.connect(service.url, connect_timeout=PATIENCE)

    def consumer(self, topic: Any, subscription: str = "s", **options: Any) -> JavaConsumer:
        return self.java.consumer(self.service, topic, subscription, **options)

    def producer(self, topic: str, **options: Any) -> Any:
        return self.java.producer(self.service, topic, **options)

    def reader(self, topic: str, **options: Any) -> Any:
        return self.java.reader(self.service, topic, **options)

    def send(self, topic: str, *payloads: bytes, **options: Any) -> None:
        """Ours."""
        with self.ours.producer(topic, **options) as producer:
            producer.send_many(payloads)

    def read(self, topic: str, count: int) -> list[Any]:
        """Ours."""
        with self.ours.reader(topic, position="earliest") as reader:
            return [reader.receive(timeout=PATIENCE) for _ in range(count)]


@pytest.fixture
def peers(pulsar_java: PulsarJava, service: PulsarService) -> Iterator[Peers]:
    made = Peers(pulsar_java, service)
    with made.ours:
        yield made


def payloads(messages: list[Any]) -> list[bytes]:
    return [bytes(message.data) for message in messages]


# ------------------------------------------------------------------------------ subscriptions


def test_dead_letters_of_both_are_alike(peers: Peers, service: PulsarService) -> None:
    """The topic's first subscription keeps what comes before anyone reads."""
    found: list[Any] = []
    for who in ("java", "ours"):
        topic = service.topic()
        if who == "java":
            policy = {"max": 2, "subscription": "first"}
            with peers.consumer(topic, subscriptionType="Shared", dead_letter=policy, **QUICK) as consumer:
                peers.send(topic, b"bad")
                for count in range(3):
                    (message,) = consumer.receive(1)
                    assert message.redelivery_count == count
                    consumer.nack(message)
                eventually(lambda topic=topic: service.backlog(topic, "s") == 0)
                consumer.nothing()
        else:
            options: Any = {"dead_letter": DeadLetterPolicy(2, subscription="first"), "nack_delay": 0.05}
            with peers.ours.consumer(topic, "s", type="shared", **options) as consumer:
                with peers.producer(topic) as producer:
                    producer.send_bytes(b"bad")
                for _ in range(3):
                    consumer.nack(consumer.receive(timeout=PATIENCE))
                eventually(lambda topic=topic: service.backlog(topic, "s") == 0)
                assert consumer.receive_many(1, timeout=1) == []
        with peers.consumer(f"{topic}-s-DLQ", "first") as letters:
            (letter,) = letters.receive(1)
        assert letter.data == b"bad"
        assert letter.properties["REAL_TOPIC"] == topic
        found.append(set(letter.properties))
    assert found[0] == found[1]


def test_a_message_is_consumed_later(peers: Peers, topic: str) -> None:
    options: Any = {"retryEnable": True, "subscriptionType": "Shared", "dead_letter": {"max": 2}}
    with peers.consumer(topic, **options, **QUICK) as consumer:
        peers.send(topic, b"later")
        for count in range(3):
            (message,) = consumer.receive(1)
            assert message.data == b"later"
            assert message.properties.get("RECONSUMETIMES") == (str(count) if count else None)
            if count:
                assert message.properties["why"] == str(count - 1)
            consumer.reconsume_later(message, 0.2, why=str(count))
    (letter,) = peers.read(f"{topic}-s-DLQ", 1)
    assert bytes(letter.data) == b"later"


def test_what_java_retries_is_ours_to_consume(peers: Peers, topic: str) -> None:
    """Both read the topic of retries, whose messages are the same whoever sent them."""
    with peers.consumer(topic, subscriptionType="Shared", retryEnable=True, dead_letter={"max": 5}) as theirs:
        peers.send(topic, b"m")
        (message,) = theirs.receive(1)
        theirs.reconsume_later(message, 0.1)
        time.sleep(0.1)
    policy = DeadLetterPolicy(5, retry=True)
    with peers.ours.consumer(topic, "s", type="shared", dead_letter=policy) as mine:
        first = mine.receive(timeout=PATIENCE)
        assert first.properties["RECONSUMETIMES"] == "1"
        mine.reconsume_later(first, 0.1)
        second = mine.receive(timeout=PATIENCE)
        assert second.properties["RECONSUMETIMES"] == "2"
        assert set(first.properties) == set(second.properties)
        mine.reconsume_later(second, 0.1)
    with peers.consumer(topic, subscriptionType="Shared", retryEnable=True, dead_letter={"max": 5}) as theirs:
        (message,) = theirs.receive(1)
        assert message.properties["RECONSUMETIMES"] == "3"


def test_sticky_ranges_are_shared_by_both(peers: Peers, topic: str) -> None:
    ours = KeySharedPolicy(ranges=[(0, 32_767)])
    with (
        peers.ours.consumer(topic, "s", type="key_shared", key_shared=ours) as low,
        peers.consumer(topic, subscriptionType="Key_Shared", ranges=[[32_768, 65_535]]) as high,
        peers.ours.producer(topic, key_based_batching=True) as producer,
    ):
        with pytest.raises(Refused, match="ConsumerAssign"):
            peers.consumer(topic, subscriptionType="Key_Shared", ranges=[[65_000, 65_535]])
        producer.send_many(numbered(60), keys=[f"key-{n % 20}" for n in range(60)])
        mine: dict[Any, list[bytes]] = {}
        theirs: dict[Any, list[bytes]] = {}
        deadline = time.monotonic() + PATIENCE
        while sum(map(len, [*mine.values(), *theirs.values()])) < 60:
            assert time.monotonic() < deadline
            for message in high.up_to(60, 0.05):
                theirs.setdefault(message.key, []).append(message.data)
            for message in low.receive_many(60, timeout=0.05):
                mine.setdefault(message.key, []).append(bytes(message.data))
    assert mine and theirs
    assert not set(mine) & set(theirs)
    for n in range(20):
        assert (mine | theirs)[f"key-{n}"] == numbered(60)[n::20]


@pytest.mark.parametrize("out_of_order", [False, True], ids=["in order", "out of order"])
def test_keys_are_split_among_both(peers: Peers, topic: str, out_of_order: bool) -> None:
    policy = KeySharedPolicy(out_of_order=out_of_order)
    with (
        peers.consumer(topic, subscriptionType="Key_Shared", out_of_order=out_of_order) as theirs,
        peers.ours.consumer(topic, "s", type="key_shared", key_shared=policy) as mine,
        peers.producer(topic, key_based=True) as producer,
    ):
        producer.send(
            *({"value": payload, "key": f"key-{n % 20}"} for n, payload in enumerate(numbered(100)))
        )
        keys: list[dict[Any, list[bytes]]] = [{}, {}]
        deadline = time.monotonic() + PATIENCE
        while sum(len(of_key) for side in keys for of_key in side.values()) < 100:
            assert time.monotonic() < deadline
            for message in theirs.up_to(100, 0.05):
                keys[0].setdefault(message.key, []).append(message.data)
                theirs.ack(message)
            for message in mine.receive_many(100, timeout=0.05):
                keys[1].setdefault(message.key, []).append(bytes(message.data))
                mine.ack(message)
    assert keys[0] and keys[1]
    assert not set(keys[0]) & set(keys[1])
    for n in range(20):
        assert (keys[0] | keys[1])[f"key-{n}"] == numbered(100)[n::20]


def test_the_active_consumer_is_told(peers: Peers, topic: str) -> None:
    failover: Any = {"subscriptionType": "Failover", "events": True}
    with peers.consumer(topic, consumerName="b", **failover) as second:
        eventually(lambda: second.events() == ["active -1"])
        with peers.consumer(topic, consumerName="a", priorityLevel=0, **failover) as first:
            eventually(lambda: len(first.events()) == 1)
            if first.events() == ["active -1"]:
                first, second = second, first
            eventually(lambda: first.events()[-1] == "inactive -1")
            second.close()
            eventually(lambda: first.events()[-1] == "active -1")
            peers.send(topic, b"m")
            assert payloads(first.receive(1)) == [b"m"]


def test_the_end_of_a_topic_is_told(peers: Peers, service: PulsarService, topic: str) -> None:
    with peers.consumer(topic) as consumer, peers.reader(topic) as reader, peers.producer(topic) as producer:
        producer.send_bytes(*numbered(3))
        service.terminate_topic(topic)
        assert not consumer.reached_end()
        messages = consumer.receive(3)
        consumer.ack(*messages)
        assert payloads(reader.receive(3)) == payloads(messages) == numbered(3)
        eventually(consumer.reached_end)
        with pytest.raises(Refused, match="TopicTerminated"):
            producer.send_bytes(b"late")
    with pytest.raises(Refused, match="TopicTerminated"):
        peers.producer(topic)


def test_brokers_tell_of_topics_of_a_pattern(peers: Peers, service: PulsarService) -> None:
    """Java looks by itself only once an hour."""
    prefix = service.topic()
    peers.send(f"{prefix}-a", b"first")
    with peers.consumer(None, pattern=f"{prefix}-.*", patternAutoDiscoveryPeriod=3600) as consumer:
        assert payloads(consumer.receive(1)) == [b"first"]
        peers.send(f"{prefix}-b", b"second")
        with peers.producer(f"{prefix}-c") as producer:
            producer.send_bytes(b"third")
        assert sorted(payloads(consumer.receive(2))) == [b"second", b"third"]
    with peers.ours.consumer(re.compile(f"{prefix}-.*"), "mine", position="earliest") as mine:
        got = [bytes(mine.receive(timeout=PATIENCE).data) for _ in range(3)]
        assert sorted(got) == [b"first", b"second", b"third"]


def test_properties_of_a_subscription_are_stored(peers: Peers, topic: str) -> None:
    given = {"owner": "billing", "näme": "7"}
    with peers.consumer(topic, subscriptionProperties=given):
        found = peers.service.subscriptions(topic)["s"]
        assert found.get("properties", found.get("subscriptionProperties")) == given


@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Failover", "Key_Shared"])
def test_acknowledgements_seeks_and_redeliveries(peers: Peers, topic: str, kind: str) -> None:
    single = kind in ("Shared", "Key_Shared")
    options: Any = {"subscriptionType": kind, "batchIndexAckEnabled": True, **QUICK}
    with peers.ours.producer(topic, key_based_batching=True) as producer:
        ids = producer.send_many(numbered(10), keys=["k"] * 10)
    with peers.consumer(topic, **options) as consumer:
        messages = consumer.receive(10)
        assert payloads(messages) == numbered(10)
        if single:
            consumer.ack(*messages[::2])
            consumer.nack(messages[1])
            (again,) = consumer.receive(1)
            assert (again.data, again.redelivery_count) == (messages[1].data, 1)
        else:
            consumer.call("ack_cumulative", messages[4].number)
        consumer.call("redeliver")
        left = numbered(10)[1::2] if single else numbered(10)[5:]
        assert sorted(payloads(consumer.receive(5))) == left
    with peers.consumer(topic, **options) as consumer:
        assert sorted(payloads(consumer.receive(5))) == left
        consumer.call("unsubscribe", False)
    assert "s" not in peers.service.subscriptions(topic)
    with peers.consumer(topic, "seeks", **options) as consumer:
        assert payloads(consumer.receive(10)) == numbered(10)
        consumer.call("seek", encoded(ids[7].to_bytes()))
        assert payloads(consumer.receive(2)) == numbered(10)[8:]
        consumer.call("seek_time", 0)
        assert payloads(consumer.receive(10)) == numbered(10)
        consumer.nothing()


def test_a_delayed_message_comes_late(peers: Peers, topic: str) -> None:
    with (
        peers.consumer(topic, subscriptionType="Shared") as theirs,
        peers.ours.consumer(topic, "mine", type="shared") as mine,
        peers.producer(topic) as producer,
    ):
        began = time.monotonic()
        producer.send({"value": b"late", "deliver_after": 1000}, {"value": b"now"})
        peers.send(topic, b"soon")
        assert sorted(payloads(theirs.receive(3))) == [b"late", b"now", b"soon"]
        assert time.monotonic() - began > 0.8
        got = [bytes(mine.receive(timeout=PATIENCE).data) for _ in range(3)]
        assert sorted(got) == [b"late", b"now", b"soon"]


# ------------------------------------------------------------------------------ topics


def test_new_partitions_are_noticed(peers: Peers, service: PulsarService) -> None:
    topic = service.topic(partitions=2)
    options: Any = {"update_seconds": 1}
    with peers.consumer(topic, **options) as consumer, peers.producer(topic, **options) as producer:
        assert producer.call("number_of_partitions") == len(peers.java.partitions(service, topic)) == 2
        service.grow_topic(topic, 4)
        eventually(lambda: producer.call("number_of_partitions") == 4)
        ids = producer.send(*({"value": b"%d" % n, "key": f"key-{n}"} for n in range(40)))
        assert {place[2] for place in ids} == {0, 1, 2, 3}
        seen = consumer.receive(40)
        assert sorted(int(one.data) for one in seen) == list(range(40))
        assert len(peers.java.partitions(service, topic)) == 4
    with peers.ours.producer(topic, hashing="java") as mine:
        own = [mine.send(b"x", f"key-{n}").partition for n in range(40)]
    assert own == [place[2] for place in ids], "a key has its partition"


def test_readers_of_partitions(peers: Peers, service: PulsarService) -> None:
    topic = service.topic(partitions=3)
    sent = numbered(30)
    with peers.ours.producer(topic) as producer:
        producer.send_many(sent, keys=[f"key-{n}" for n in range(30)])
    with peers.reader(topic) as reader:
        got = []
        while reader.available():
            got += reader.receive(1)
        assert sorted(payloads(got)) == sent
        with peers.producer(topic) as producer:
            producer.send_bytes(b"more")
        eventually(reader.available)
        assert payloads(reader.receive(1)) == [b"more"]
        reader.call("seek_time", 0)
        assert len(reader.receive(31)) == 31


def test_a_reader_begins_at_an_id(peers: Peers, topic: str) -> None:
    with peers.ours.producer(topic) as producer:
        ids = producer.send_many(numbered(10))
    start = ids[6].to_bytes()
    with peers.reader(topic, start=start) as reader:
        assert payloads(reader.receive(3)) == numbered(10)[7:]
        assert not reader.available()
    with peers.reader(topic, start=start, inclusive=True) as reader:
        assert payloads(reader.receive(4)) == numbered(10)[6:]
    with peers.reader(topic, start="latest") as reader:
        assert not reader.available()
        peers.send(topic, b"new")
        assert payloads(reader.receive(1)) == [b"new"]


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_table_view_is_that_of_both(peers: Peers, service: PulsarService, partitions: int) -> None:
    topic = service.topic(partitions=partitions)
    with (
        peers.ours.producer(topic, schema="string") as producer,
        peers.producer(topic, schema="string") as out,
    ):
        for n in range(30):
            producer.send(str(n), f"key-{n % 7}")
        out.send(
            {"value": "grün", "key": "key-1"}, {"value": "x", "key": "new"}, {"value": None, "key": "key-2"}
        )
        with (
            peers.java.view(service, topic, schema="string") as theirs,
            peers.ours.table_view(topic, schema="string") as mine,
        ):
            expected = {f"key-{n % 7}": str(n) for n in range(30)} | {"key-1": "grün", "new": "x"}
            del expected["key-2"]
            assert theirs.entries() == expected == {key: mine[key] for key in mine}
            producer.send("later", "key-2")
            out.send({"value": "later", "key": "key-3"})
            assert theirs.entries() == expected | {"key-2": "later", "key-3": "later"}


@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Failover", "Key_Shared"])
def test_topics_that_are_not_persistent(peers: Peers, service: PulsarService, kind: str) -> None:
    topic = service.topic().replace("persistent://", "non-persistent://")
    with (
        peers.consumer(topic, subscriptionType=kind) as theirs,
        peers.ours.consumer(topic, "mine", type=kind.lower()) as mine,
        peers.producer(topic, key_based=True) as producer,
    ):
        producer.send(*({"value": payload, "key": "k"} for payload in numbered(10)))
        peers.send(topic, b"ours", batching=False)
        assert payloads(theirs.receive(11)) == [*numbered(10), b"ours"]
        assert [bytes(mine.receive(timeout=PATIENCE).data) for _ in range(11)] == [*numbered(10), b"ours"]


# ------------------------------------------------------------------------------ producers


def test_exclusive_producers_keep_others_out(peers: Peers, topic: str) -> None:
    with peers.producer(topic, accessMode="Exclusive") as first:
        first.send_bytes(b"1")
        with pytest.raises((forebay.errors.ProducerBusy, forebay.errors.ProducerFenced)):
            peers.ours.producer(topic, access_mode="exclusive")
        with pytest.raises(Refused, match=r"ProducerBusy|ProducerFenced"):
            peers.producer(topic, accessMode="Exclusive")
        with pytest.raises(Refused, match=r"ProducerBusy|ProducerFenced"):
            peers.producer(topic)
        with peers.producer(topic, later=True, accessMode="WaitForExclusive") as waiting:
            assert not waiting.call("opened", 300)
            first.close()
            assert waiting.call("opened", 60_000)
            waiting.send_bytes(b"2")
        # A real broker does not tell who is fenced.
        with peers.producer(topic, accessMode="WaitForExclusive", sendTimeoutMs=2000) as fenced:
            with peers.ours.producer(topic, access_mode="exclusive_with_fencing") as ours:
                ours.send(b"3")
                with pytest.raises(Refused, match=r"ProducerFenced|AlreadyClosed|Timeout"):
                    fenced.send_bytes(b"4")
                with peers.producer(topic, accessMode="ExclusiveWithFencing") as last:
                    last.send_bytes(b"5")
                    with pytest.raises(forebay.Error):
                        ours.send(b"6")
    assert payloads(peers.read(topic, 4)) == [b"1", b"2", b"3", b"5"]


def test_sequence_ids_keep_duplicates_out(peers: Peers, service: PulsarService, topic: str) -> None:
    if isinstance(service, RealPulsar):
        with peers.producer(topic):
            service.drop_repetitions(topic)
    numbers = range(10, 15)
    with peers.producer(topic, producerName="p", initialSequenceId=9, batchingEnabled=False) as producer:
        producer.send(*({"value": b"%d" % n} for n in numbers))
        assert producer.call("last_sequence_id") == 14
    with peers.producer(topic, producerName="p", batchingEnabled=False) as producer:
        assert producer.call("last_sequence_id") == 14
        # Sent again after a crash, say.
        producer.send(*({"value": b"%d" % n, "sequence_id": n} for n in (12, 13, 14, 15)))
    with peers.ours.producer(topic, name="p") as ours:
        assert ours.last_sequence_id == 15
        ours.send(b"15", sequence_id=15)
        ours.send(b"16")
    with peers.producer(topic, producerName="p") as producer:
        assert producer.call("last_sequence_id") == 16
        producer.send_bytes(b"17")
    with peers.reader(topic) as reader:
        seen = reader.receive(8)
        reader.nothing()
    assert [(int(one.data), one.sequence_id) for one in seen] == [(n, n) for n in range(10, 18)]
    assert {one.producer for one in seen} == {"p"}
