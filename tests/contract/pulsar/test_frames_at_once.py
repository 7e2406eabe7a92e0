"""Topics read as tables and as streams of batches in one call, and tables written: ``forebay.frames``."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from forebay import blocking, errors, frames
from forebay.pulsar import Schema, _ranges
from forebay.pulsar.blocking import PulsarConsumer

from support.observing import behind
from support.pulsar.chunks import Chunks
from support.pulsar.harness import PulsarService
from support.waiting import PATIENCE, eventually

MiB = 1 << 20


@pytest.fixture
def door(service: PulsarService) -> Iterator[Any]:
    """A blocking client of ``service``."""
    with blocking.connect(service.url) as client:
        yield client


def kept(door: Any, topic: str) -> str:
    """Retains messages that are sent before the first subscription."""
    door.consumer(topic, "keep", position="earliest").close()
    return topic


def fill(door: Any, topic: str, count: int, **options: Any) -> Any:
    with door.producer(topic, **options) as producer:
        return producer.send_many([b"%d" % number for number in range(count)])


def numbers(table: pa.Table) -> list[int]:
    return [int(value) for value in table["value"].to_pylist()]


# -------------------------------------------------------------------------------------------
# reading


def test_a_topic_is_a_table(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    moment = datetime.datetime(2026, 1, 31, 12, 30, 0, 250_000, tzinfo=datetime.UTC)
    with door.producer(topic, name="p") as producer:
        id = producer.send(b"v", key="k", properties={"a": "1"}, event_time=moment, ordering_key=b"\xff\x00")
        producer.send(b"", null_value=True)
    table = frames.read(service.url, topic)
    assert table.column_names == [
        *("value", "key", "topic", "message_id", "publish_time", "event_time", "properties"),
    ]
    first, tombstone = table.to_pylist()
    assert (first["value"], first["key"], first["topic"]) == (b"v", "k", topic)
    assert (first["message_id"], first["event_time"]) == (str(id), moment)
    assert first["properties"] == [("a", "1")]
    assert abs(first["publish_time"].timestamp() - time.time()) < 300
    assert (tombstone["value"], tombstone["key"], tombstone["event_time"]) == (None, None, None)
    more = frames.read(service.url, topic, columns=["ordering_key", "producer_name", "key_bytes"])
    assert more.column_names == ["ordering_key", "producer_name", "key_bytes"]
    assert more.to_pylist()[0] == {"ordering_key": b"\xff\x00", "producer_name": "p", "key_bytes": b"k"}
    # No subscription is left behind. Pulsar deletes it after it has confirmed the end of its
    # consumer.
    eventually(lambda: service.subscriptions(topic).keys() == {"keep"})


@pytest.mark.parametrize("columns", [None, "kafka", "pulsar", ["index", "partition", "value"]])
def test_an_empty_range_has_the_columns_of_one_with_rows(
    door: Any, service: PulsarService, topic: str, columns: Any
) -> None:
    kept(door, topic)
    assert frames.read(service.url, topic, columns=columns).num_rows == 0, "an empty topic"
    fill(door, topic, 3)
    full = frames.read(service.url, topic, columns=columns)
    empty = frames.read(service.url, topic, columns=columns, start="latest")
    assert (full.num_rows, empty.num_rows) == (3, 0)
    scanned = frames.scan(service.url, topic, columns=columns)
    # A batch of the engine, and not what a table makes of it.
    assert next(iter(scanned)).schema == empty.schema == full.schema == scanned.schema


def test_partitions_follow_each_other(door: Any, service: PulsarService) -> None:
    topic = kept(door, service.topic(partitions=3))
    fill(door, topic, 300, batching=False, routing="round_robin")
    table = frames.read(service.url, topic, columns=["value", "partition"])
    assert sorted(numbers(table)) == list(range(300))
    assert table["partition"].to_pylist() == [0] * 100 + [1] * 100 + [2] * 100
    for partition in range(3):
        part = table.filter(pc.field("partition") == partition)
        assert numbers(part) == sorted(numbers(part))
    assert frames.read(service.url, f"{topic}-partition-1").num_rows == 100


def test_several_topics_and_a_pattern(door: Any, service: PulsarService) -> None:
    first, second = kept(door, service.topic()), kept(door, service.topic(partitions=2))
    fill(door, first, 10)
    fill(door, second, 20)
    assert frames.read(service.url, [first, second]).num_rows == 30
    stem = first.rpartition("/")[2]
    assert frames.read(service.url, re.compile(f"persistent://public/default/{stem}.*")).num_rows == 10
    shouted = re.compile(f"^persistent://public/default/{stem.upper()}", re.IGNORECASE)
    assert frames.read(service.url, shouted).num_rows == 10
    nothing = frames.read(service.url, re.compile("no-such-topic-.*"))
    assert nothing.num_rows == 0 and "value" in nothing.column_names


def test_from_one_id_to_another(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    ids = fill(door, topic, 100, batch_max_messages=7)
    # Most of them are in the middle of a batch.
    for first, last in ((0, 99), (3, 40), (41, 41), (41, 42), (48, 49)):
        for start, end in ((ids[first], ids[last]), (str(ids[first]), {topic: ids[last]})):
            table = frames.read(service.url, topic, start=start, end=end)
            assert numbers(table) == list(range(first + 1, last + 1))
    # As the Spark source has them.
    short = topic.rpartition("/")[2]
    for start in ({short: {"0": str(ids[50])}}, f'{{"{short}": {{"0": "{ids[50]}"}}}}'):
        assert numbers(frames.read(service.url, topic, start=start)) == list(range(51, 100))
    # A table ends where the next one begins.
    table = frames.read(service.url, topic, end=ids[30])
    rest = frames.read(service.url, topic, start=table["message_id"].to_pylist()[-1])
    assert numbers(table) + numbers(rest) == list(range(100))


def test_ids_of_partitions(door: Any, service: PulsarService) -> None:
    topic = kept(door, service.topic(partitions=2))
    fill(door, topic, 40, batching=False, routing="round_robin")
    table = frames.read(service.url, topic, columns=["value", "partition", "message_id"])
    by_partition = [table.filter(pc.field("partition") == number).to_pylist() for number in (0, 1)]
    ids = [part[4]["message_id"] for part in by_partition]
    later = frames.read(service.url, topic, start=ids)
    assert numbers(later) == [int(row["value"]) for part in by_partition for row in part[5:]]
    # A partition without a position is read from its beginning.
    one = frames.read(service.url, topic, start=ids[1])
    assert numbers(one) == [int(row["value"]) for row in [*by_partition[0], *by_partition[1][5:]]]
    with door.reader(topic, position="earliest") as reader:
        message = reader.receive(timeout=PATIENCE)
    assert message.id.topic
    assert frames.read(service.url, topic, start=message.id).num_rows == 39
    assert frames.read(service.url, [topic, service.topic(1)], start=message.id).num_rows == 39
    with pytest.raises(errors.InvalidArgument, match="are of one partition: give one id for each"):
        frames.read(service.url, topic, start=[message.id, str(ids[max(message.id.partition, 0)])])
    for wrong, text in (
        ({topic: {"7": "latest"}}, "start: .* has no partition 7"),
        ({"other": {"0": "latest"}}, "start: 'other' is not read"),
    ):
        with pytest.raises(errors.InvalidArgument, match=text):
            frames.read(service.url, topic, start=wrong)


def test_from_one_time_to_another(door: Any, service: PulsarService) -> None:
    topic = kept(door, service.topic(partitions=2))
    bounds = []
    with door.producer(topic, batching=False, routing="round_robin") as producer:
        for start in (0, 10, 20):
            time.sleep(0.01)
            bounds.append(int(time.time() * 1000))
            time.sleep(0.01)
            producer.send_many([b"%d" % number for number in range(start, start + 10)])

    def read(**given: Any) -> list[int]:
        return sorted(numbers(frames.read(service.url, topic, **given)))

    moments = [datetime.datetime.fromtimestamp(bound / 1000, datetime.UTC) for bound in bounds]
    assert read(start=moments[1]) == list(range(10, 30))
    assert read(end=moments[1]) == list(range(10))
    assert read(start=bounds[1], end=moments[2]) == list(range(10, 20))
    ago = datetime.timedelta(hours=1)
    assert read(start=ago) == read(start="-1h") == list(range(30))
    assert read(end="-1h") == []
    assert read(start=datetime.datetime.now(datetime.UTC) + ago) == [], "a time that is to come"


def test_a_slow_broker_changes_no_rows(
    door: Any, service: PulsarService, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(door, topic)
    fill(door, topic, 10)
    calls = itertools.count()
    receive = PulsarConsumer.receive

    def late(consumer: Any, timeout: float) -> Any:
        # The first call of two is too early, and later on each one.
        if next(calls) % 2 == 0 or always:
            time.sleep(timeout)
            raise errors.Timeout("no message in time")
        return receive(consumer, timeout)

    always = False
    monkeypatch.setattr(_ranges, "SHORT", 1.0)
    monkeypatch.setattr(PulsarConsumer, "receive", late)
    assert frames.read(service.url, topic, start="-1h").num_rows == 10
    assert frames.read(service.url, topic, end="-1h").num_rows == 0
    assert next(calls) >= 4
    always = True
    for position in ({"start": "-1h"}, {"end": "-1h"}):
        with pytest.raises(errors.Timeout, match="none came within 2 s"):
            frames.read(service.url, topic, read_timeout=2, **position)


def test_a_part_of_a_message_is_no_message_at_a_time(
    door: Any, service: PulsarService, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_ranges, "SHORT", 2.0)
    kept(door, topic)
    chunks = Chunks(service, topic)
    # One that is not complete yet, one without a beginning, and one with a hole.
    for send in ([("young", 0, 2)], [("late", 1, 2)], [("hole", 0, 3), ("hole", 2, 3)]):
        time.sleep(0.05)
        before = int(time.time() * 1000)
        time.sleep(0.05)
        for part in send:
            chunks.send(*part)
        started = time.monotonic()
        assert frames.read(service.url, topic, start=before).num_rows == 0, send
        assert time.monotonic() - started < 50


def test_many_partitions_are_asked_for_a_time_at_once(
    door: Any, service: PulsarService, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kept(door, service.topic(partitions=8))
    fill(door, topic, 80, batching=False, routing="round_robin")
    receive = PulsarConsumer.receive

    def late(consumer: Any, timeout: float) -> Any:
        # Each of them comes when all have been asked for.
        asked.wait(PATIENCE)
        return receive(consumer, timeout)

    asked = threading.Barrier(8)
    # None asks a second time, without the others.
    monkeypatch.setattr(_ranges, "SHORT", PATIENCE)
    monkeypatch.setattr(PulsarConsumer, "receive", late)
    assert frames.read(service.url, topic, start="-1h")["value"].null_count == 0
    assert frames.read(service.url, topic, end="-1h").num_rows == 0


@pytest.mark.parametrize("compression", ["none", "zstd", "lz4"])
def test_large_and_compressed_messages(
    door: Any, service: PulsarService, topic: str, compression: str
) -> None:
    kept(door, topic)
    with door.producer(topic, compression=compression) as producer:
        producer.send_many([b"x" * 100_000] * 100)
    table = frames.read(service.url, topic)
    assert set(pc.binary_length(table["value"]).to_pylist()) == {100_000} and table.num_rows == 100
    sizes = [batch.nbytes for batch in frames.scan(service.url, topic)]
    assert len(sizes) > 1 and max(sizes) < 6 * MiB


def test_properties_count_for_the_size_of_a_batch(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    with door.producer(topic, batching=False) as producer:
        for _ in range(40):
            producer.send(b"x", properties={"large": "y" * 300_000})
    sizes = [batch.nbytes for batch in frames.scan(service.url, topic)]
    assert sum(sizes) > 12_000_000 and max(sizes) < 6 * MiB


def test_messages_in_chunks(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    payloads = [bytes([65 + number]) * (1_000 + 700 * number) for number in range(12)]
    with door.producer(topic, batching=False, chunking=True, chunk_max_size=500) as producer:
        ids = [producer.send(payload) for payload in payloads]
    assert frames.read(service.url, topic)["value"].to_pylist() == payloads
    assert frames.read(service.url, topic, start=ids[4])["value"].to_pylist() == payloads[5:]
    assert frames.read(service.url, topic, end=ids[4])["value"].to_pylist() == payloads[:5]
    # One that was never completed is left out.
    Chunks(service, topic).send("abandoned", 0, 2, age=3600)
    assert frames.read(service.url, topic)["value"].to_pylist() == payloads


def test_a_topic_that_does_not_exist_is_not_created(door: Any, service: PulsarService, topic: str) -> None:
    for function in (frames.read, frames.scan):
        with pytest.raises(errors.TopicNotFound, match=topic):
            function(service.url, topic)
    assert topic not in door.topics()


def test_what_is_sent_meanwhile_is_not_read(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    fill(door, topic, 25_000)
    scanned = frames.scan(service.url, topic)
    sent, stop = threading.Event(), threading.Event()

    def send() -> None:
        with blocking.connect(service.url) as client, client.producer(topic) as producer:
            while not stop.is_set():
                producer.send_many([b"-1"] * 1000)
                sent.set()

    sender = threading.Thread(target=send)
    sender.start()
    try:
        assert sent.wait(30)
        assert numbers(scanned.read_all()) == list(range(25_000))
        # It ends although the topic does not.
        table = frames.read(service.url, topic)
        assert numbers(table)[:25_000] == list(range(25_000)) and table.num_rows > 25_000
    finally:
        stop.set()
        sender.join()
    assert numbers(scanned.read_all()) == list(range(25_000)), "the same rows again"


def test_messages_that_were_deleted_are_an_error(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    fill(door, topic, 10)
    strict, lenient = (
        frames.scan(service.url, topic),
        frames.scan(service.url, topic, fail_on_data_loss=False),
    )
    service.delete_topic(topic)
    with pytest.raises(errors.DataLost, match="deleted"):
        strict.read_all()
    assert lenient.read_all().num_rows == 0
    assert topic not in door.topics()


# -------------------------------------------------------------------------------------------
# streams


def test_a_scan_can_be_iterated_several_times_and_left(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    fill(door, topic, 35_000)
    with frames.scan(service.url, topic) as scanned:
        one, other = iter(scanned), iter(scanned)
        begun = [next(one), next(other)]
        # How many rows are in a batch depends on when they have arrived.
        same = min(batch.num_rows for batch in begun)
        assert same and begun[0].slice(0, same).equals(begun[1].slice(0, same))
        assert sum(batch.num_rows for batch in [begun[0], *one]) == 35_000
        other.close()
        assert max(batch.num_rows for batch in scanned) <= 10_000
        left = iter(scanned)
        next(left)
        # The batch that follows is there.
        time.sleep(0.5)
    with pytest.raises(errors.Closed):
        next(left)
    for use in (iter, pa.table, frames.Scan.read_all, frames.Scan.to_polars):
        with pytest.raises(errors.Closed):
            use(scanned)


def test_libraries_take_a_scan_as_it_is(door: Any, service: PulsarService) -> None:
    topic = kept(door, service.topic(partitions=2))
    with door.producer(topic) as producer:
        keys = [f"k{number % 5}" for number in range(20_000)]
        producer.send_many([b"%d" % number for number in range(20_000)], keys)
    scanned = frames.scan(service.url, topic)
    counts = {f"k{number}": 4_000 for number in range(5)}

    assert pa.table(scanned).num_rows == 20_000
    assert pa.RecordBatchReader.from_stream(scanned).read_all().equals(scanned.read_all())
    assert dict(duckdb.sql("select key, count(*) from scanned group by key").fetchall()) == counts
    joined = "select count(*) from scanned one join scanned other using (message_id)"
    assert duckdb.sql(joined).fetchall() == [(20_000,)]
    assert scanned.read_all().to_pandas().groupby("key").size().to_dict() == counts
    assert dict(pl.DataFrame(scanned).group_by("key").len().iter_rows()) == counts

    lazy = scanned.to_polars()
    assert lazy.collect_schema().names() == scanned.schema.names
    assert dict(lazy.group_by("key").len().collect(engine="streaming").iter_rows()) == counts
    assert lazy.select(pl.len()).collect().item() == 20_000
    found = lazy.filter(pl.col("key") == "k3").select("value").head(7).collect()
    assert found.shape == (7, 1)
    assert lazy.head(3).collect().height == 3
    assert lazy.join(lazy, on="message_id").select(pl.len()).collect().item() == 20_000
    assert lazy.filter(pl.col("key") == "none").collect().height == 0


@pytest.mark.parametrize("how", ["python", "polars"])
def test_an_error_in_the_middle_of_a_scan_is_one_of_forebay(
    door: Any, service: PulsarService, topic: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forebay.frames import _pulsar

    kept(door, topic)
    with door.producer(topic) as producer:
        producer.send_many([b"x" * 10_000] * 3_000)

    def rows(*given: Any) -> Iterator[Any]:
        for batch in original(*given):
            seen.append(len(batch))
            yield batch
            if len(seen) == 1:
                service.delete_topic(topic)

    seen: list[int] = []
    original = _pulsar.rows
    monkeypatch.setattr(_pulsar, "rows", rows)
    scanned = frames.scan(service.url, topic, receive_buffer="1 MiB")
    with pytest.raises(errors.DataLost, match="deleted"):
        if how == "python":
            list(scanned)
        else:
            scanned.to_polars().select("message_id").collect()
    assert 0 < sum(seen) < 3_000, "it was in the middle"


def test_polars_reads_no_more_than_it_needs(
    door: Any, service: PulsarService, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forebay.frames import _pulsar

    kept(door, topic)
    fill(door, topic, 40_000)
    asked: list[list[str]] = []
    taken = []

    def rows(client: Any, read: Any, part: Any, columns: list[tuple[str, str]], *rest: Any) -> Iterator[Any]:
        asked.append([name for _, name in columns])
        for batch in original(client, read, part, columns, *rest):
            taken.append(len(batch))
            yield batch

    original = _pulsar.rows
    monkeypatch.setattr(_pulsar, "rows", rows)
    lazy = frames.scan(service.url, topic).to_polars()
    assert lazy.select("message_id").head(5).collect().height == 5
    assert asked == [["message_id"]]
    assert len(taken) == 1 and taken[0] <= 10_000


def test_memory_stays_flat(door: Any, service: PulsarService, topic: str) -> None:
    count = 250
    kept(door, topic)
    payload = pa.array([bytes([number]) * 10_000 for number in range(100)])

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(count):
            yield pa.record_batch({"payload": payload})

    schema = pa.schema([("payload", pa.binary())])
    before = resident()
    peaks = {"write": 0, "read": 0}

    def watched(batches: Any, what: str) -> Iterator[Any]:
        for batch in batches:
            peaks[what] = max(peaks[what], resident() - before)
            yield batch

    reader = pa.RecordBatchReader.from_batches(schema, watched(batches(), "write"))
    report = frames.write(reader, service.url, topic, value="payload")
    assert (report.rows, report.bytes) == (count * 100, count * 1_000_000)
    scanned = frames.scan(service.url, topic, columns=["value"])
    total = sum(pc.sum(pc.binary_length(batch["value"])).as_py() for batch in watched(scanned, "read"))
    assert total == count * 1_000_000
    assert max(peaks.values()) < count * 1_000_000 / 2, peaks


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def test_lost_connections_lose_no_rows(door: Any, service: PulsarService) -> None:
    topic = await asyncio.to_thread(service.topic, 2)
    await asyncio.to_thread(kept, door, topic)
    count = 60_000
    table = pa.table({"payload": [b"%d" % number for number in range(count)]})
    loop = asyncio.get_running_loop()
    async with behind(service.url, told=True) as (proxy, url):

        def cutting(batches: Any, each: int) -> Iterator[Any]:
            for number, batch in enumerate(batches):
                if number % each == each - 1:
                    loop.call_soon_threadsafe(proxy.cut)
                yield batch

        def write() -> frames.WriteReport:
            batches = cutting(table.to_batches(2_000), 7)
            reader = pa.RecordBatchReader.from_batches(table.schema, batches)
            return frames.write(reader, url, topic, value="payload", routing="single")

        def read() -> list[int]:
            scanned = cutting(frames.scan(url, topic), 2)
            return [int(value) for batch in scanned for value in batch["value"].to_pylist()]

        report = await asyncio.to_thread(write)
        assert report.rows == count
        # The first connection, and at least one that followed it.
        lost = proxy.counts["reset"]
        assert lost >= 2
        written = numbers(await asyncio.to_thread(frames.read, service.url, topic))
        # A row whose receipt was lost is sent again.
        assert list(dict.fromkeys(written)) == list(range(count))
        assert await asyncio.to_thread(read) == written
        assert proxy.counts["reset"] > lost


def test_closing_ends_an_iteration_in_another_thread(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    fill(door, topic, 10)
    # It waits for the rest of a message that does not come.
    Chunks(service, topic).send("young", 0, 2)
    scanned = frames.scan(service.url, topic)
    ended: list[BaseException | None] = []

    def run() -> None:
        try:
            list(scanned)
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(1.0)
    assert not ended
    scanned.close()
    thread.join(PATIENCE)
    assert len(ended) == 1 and isinstance(ended[0], errors.Closed)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process in the background of a shell ignores the signal from its beginning."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_read(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    fill(door, topic, 10)
    Chunks(service, topic).send("young", 0, 2)
    for reading in (frames.read, lambda *given: frames.scan(*given).read_all()):
        timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            reading(service.url, topic)
        assert time.monotonic() - started < 50
        timer.join()
    eventually(lambda: service.subscriptions(topic).keys() == {"keep"})


# -------------------------------------------------------------------------------------------
# writing


def test_a_table_there_and_back(door: Any, service: PulsarService) -> None:
    topic = kept(door, service.topic(partitions=2))
    count = 25_000
    table = pa.table(
        {
            "name": [f"n{number % 9}" for number in range(count)],
            "payload": [b"p%d" % number for number in range(count)],
            "when": pa.array(range(count), pa.timestamp("ms", "UTC")),
        }
    )
    report = frames.write(
        table, service.url, topic, value="payload", key="name", event_time="when", compression="zstd"
    )
    assert (report.rows, report.bytes) == (count, sum(map(len, table["payload"].to_pylist())))
    assert report.seconds > 0 and report.first is not None and report.last is not None
    got = frames.read(service.url, topic)
    assert sorted(got["value"].to_pylist()) == sorted(table["payload"].to_pylist())
    # Equal keys keep their order.
    of_one = got.filter(pc.field("key") == "n4")["value"].to_pylist()
    assert of_one == table.filter(pc.field("name") == "n4")["payload"].to_pylist()
    assert str(report.first) in got["message_id"].to_pylist()
    # And from topic to topic.
    copy = kept(door, service.topic())
    assert frames.write(frames.scan(service.url, topic), service.url, copy, value="value", key="key").rows
    assert frames.read(service.url, copy)["value"].to_pylist() == got["value"].to_pylist()


def test_frames_of_each_library(door: Any, service: PulsarService) -> None:
    table = pa.table({"word": ["a", "b", "c"], "n": [1, 2, 3]})
    rows = [b'{"word":"a","n":1}', b'{"word":"b","n":2}', b'{"word":"c","n":3}']
    for frame in (
        table,
        table.to_batches()[0],
        pl.from_arrow(table),
        table.to_pandas(),
        duckdb.from_arrow(table),
        pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
    ):
        topic = kept(door, service.topic())
        assert frames.write(frame, service.url, topic).rows == 3
        assert frames.read(service.url, topic)["value"].to_pylist() == rows


def test_rows_with_a_schema(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    sales = pa.table({"till": ["7", "8"] * 6_000, "amount": [42.0, 13.5] * 6_000})
    assert frames.write(sales, service.url, topic, schema="avro", key="till").rows == 12_000
    with door.reader(topic, schema="auto", position="earliest") as reader:
        assert reader.receive(timeout=PATIENCE).value == {"till": "7", "amount": 42.0}
    with pytest.raises(errors.SchemaError):
        frames.write(sales, service.url, topic)
    other = Schema.avro(pa.schema([("till", pa.string()), ("amount", pa.string())]), name="Other")
    with pytest.raises(errors.Error):
        frames.write(sales, service.url, topic, schema=other)
    assert frames.read(service.url, topic).num_rows == 12_000


def test_an_error_in_the_middle_names_its_rows(door: Any, service: PulsarService, topic: str) -> None:
    kept(door, topic)
    good = pa.table({"n": [1.5] * 20_000})
    bad = pa.table({"n": pa.array([1.5, None], pa.float64())})
    reader = pa.RecordBatchReader.from_batches(good.schema, [*good.to_batches(), *bad.to_batches()])
    strict = Schema.avro('{"type":"record","name":"N","fields":[{"name":"n","type":"double"}]}')
    with pytest.raises(errors.SchemaError) as raised:
        frames.write(reader, service.url, topic, schema=strict)
    notes = " ".join(raised.value.__notes__)
    assert "the 2 rows from row 20000 on" in notes and "have been acknowledged" in notes
