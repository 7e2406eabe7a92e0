"""``forebay.frames`` with all protocols, and what it refuses. Reading is tested in tests/contract/pulsar."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import forebay
from forebay import blocking, errors, frames
from forebay.broker import running_with
from forebay.frames import _opening, _writing
from forebay.pulsar import MessageId

from support.waiting import PATIENCE

TABLE = pa.table(
    {
        "till": ["7", "8", "7"],
        "payload": [b"42.00", b"13.50", b"1.00"],
        "where": ["shop/7/sales", "shop/8/sales", "shop/7/sales"],
        "tags": pa.array([[("source", "till")], [], None], pa.map_(pa.string(), pa.string())),
    }
)
MiB = 1 << 20
DICTIONARY = pa.DictionaryArray.from_arrays(pa.array([0] * 30_000, pa.int8()), ["x" * 20 * MiB])
"""More than a lot may have, however few its rows are."""
NOWHERE = "pulsar://127.0.0.1:1"


@pytest.fixture
def broker() -> Any:
    # A subscriber may be slower than the writer.
    with forebay.Broker(mqtt_port=0, tubemq_port=0, mqtt_max_queue=100_000) as broker:
        yield broker


# ------------------------------------------------------------------------------------------- three
# protocols


@pytest.mark.parametrize("protocol", ["pulsar", "mqtt", "tubemq"])
def test_rows_are_sent_in_their_order_over_each_protocol(broker: Any, protocol: str) -> None:
    count = 25_000
    big = pa.table({"payload": [b"%d" % number for number in range(count)]})
    url = broker.urls[protocol]
    options: dict[str, Any] = {
        "pulsar": {"position": "earliest"},
        "mqtt": {"qos": 1, "auto_ack": True},
        "tubemq": {"position": "first", "auto_ack": True},
    }[protocol]
    broker.create_topic("tubemq:sales", 1)
    with blocking.connect(url) as client, client.consumer("sales", "s", **options) as consumer:
        received: list[bytes] = []

        def take() -> None:
            while len(received) < count:
                table = consumer.read_frame(count - len(received), timeout=20)
                assert table.num_rows
                received.extend(table["value"].to_pylist())

        taking = threading.Thread(target=take)
        taking.start()
        reader = pa.RecordBatchReader.from_batches(big.schema, big.to_batches(3_000))
        report = frames.write(reader, url, "sales", value="payload")
        taking.join(60)
    assert received == big["payload"].to_pylist()
    assert (report.rows, report.bytes) == (count, sum(map(len, received)))
    if protocol == "mqtt":
        assert report.first is None and report.last is None
    else:
        assert report.first is not None and report.last is not None and report.first != report.last


def test_topics_of_rows_with_mqtt(broker: Any) -> None:
    url = broker.urls["mqtt"]
    with blocking.connect(url) as client, client.subscribe("shop/#", qos=1) as consumer:
        frames.write(TABLE, url, "shop/{till}/sales", value="payload", qos=1)
        frames.write(TABLE, url, topic_column="where", value="payload", properties="tags", qos=1)
        rows = consumer.read_frame(6, timeout=PATIENCE).to_pylist()
    expected = TABLE["where"].to_pylist() * 2
    assert [row["topic"] for row in rows] == expected
    assert [row["value"] for row in rows] == TABLE["payload"].to_pylist() * 2
    assert rows[3]["properties"] == [("source", "till")]
    for wrong, kind, text in (
        ({"topic": "a", "topic_column": "where"}, errors.InvalidArgument, "not both"),
        ({"topic": "a", "key": "till"}, errors.Unsupported, "key"),
        ({"topic": "a", "schema": "avro"}, errors.Unsupported, "schema"),
        ({}, errors.InvalidArgument, "a topic is needed"),
    ):
        with pytest.raises(kind, match=text):
            frames.write(TABLE, url, value="payload", **wrong)
    with pytest.raises(errors.Unsupported, match="a producer for each topic"):
        frames.write(TABLE, broker.url, topic_column="where")


def test_what_cannot_be_read(broker: Any) -> None:
    for function in (frames.read, frames.scan):
        with pytest.raises(errors.Unsupported, match="an MQTT topic cannot be read"):
            function(broker.urls["mqtt"], "shop")


# -------------------------------------------------------------------------------------------
# embedded


def test_an_embedded_url_with_a_folder(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path}/data"
    assert frames.write(TABLE, url, "sales", value="payload").rows == 3
    assert frames.read(url, "sales")["value"].to_pylist() == TABLE["payload"].to_pylist()
    scanned = frames.scan(url, "sales")
    # Another client of this process holds the folder now, and sends more.
    with blocking.connect(url) as client:
        assert scanned.read_all().num_rows == 3
        with client.producer("sales") as producer:
            producer.send(b"by another client")
        assert frames.read(url, "sales")["value"].to_pylist()[3:] == [b"by another client"]
        assert frames.write(TABLE, f"{url}?compression=zstd", "sales", value="payload").rows == 3
        assert client.connected
    assert frames.read(url, "sales").num_rows == 7
    # Several at a time share the broker that the first has started.
    one, other = iter(scanned), iter(scanned)
    assert next(one).num_rows == next(other).num_rows == 3
    one.close()
    assert frames.read(url, "sales").num_rows == 7
    assert list(other) == []
    with blocking.connect(url) as client:
        assert client.connected, "the folder is free again"


def test_a_folder_that_is_not_there_is_not_created_by_reading(tmp_path: Path) -> None:
    for function in (frames.read, frames.scan):
        with pytest.raises(errors.InvalidArgument, match=r"there is no folder .*typo"):
            function(f"embedded:{tmp_path}/typo", "sales")
    assert not (tmp_path / "typo").exists()


def within(seconds: float, act: Callable[[], Any]) -> Any:
    """The result of an act that must not hang."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(act()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert results, "it hangs, or has failed"
    return results[0]


def test_an_iteration_may_end_while_another_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (f"embedded:{tmp_path}/{name}" for name in ("one", "other"))
    for url in (one, other):
        frames.write(TABLE, url, "sales", value="payload")
    left = iter(frames.scan(one, "sales"))
    next(left)
    start = forebay.Broker.__init__

    def collected(broker: Any, **options: Any) -> None:
        # As the collector of garbage does it, wherever the thread is.
        left.close()
        start(broker, **options)

    monkeypatch.setattr(forebay.Broker, "__init__", collected)
    assert within(120, lambda: frames.read(other, "sales").num_rows) == 3
    assert within(120, lambda: frames.read(one, "sales").num_rows) == 3


def test_an_iteration_may_end_anywhere_in_this_module(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path}/data"
    frames.write(TABLE, url, "sales", value="payload")
    left = iter(frames.scan(url, "sales"))
    next(left)

    def ended() -> int:
        with _opening._lock:
            left.close()
        return frames.read(url, "sales").num_rows

    assert within(120, ended) == 3
    assert not _opening._shared and not _opening._left


def test_threads_share_the_broker_of_a_folder(tmp_path: Path) -> None:
    url = f"embedded:{tmp_path}/data"
    frames.write(TABLE, url, "sales", value="payload")

    def read(_: int) -> list[int]:
        return [frames.read(url, "sales").num_rows for _ in range(5)]

    with concurrent.futures.ThreadPoolExecutor(6) as threads:
        assert list(threads.map(read, range(6))) == [[3] * 5] * 6
    assert not _opening._shared and not _opening._left
    # One that does not start is no hindrance to the next.
    (tmp_path / "file").write_text("")
    for _ in range(2):
        with pytest.raises(errors.IoError):
            frames.write(TABLE, f"embedded:{tmp_path}/file/data", "sales", value="payload")
    assert not _opening._shared


def test_brokers_may_start_while_one_is_looked_for() -> None:
    stop = threading.Event()

    def look() -> int:
        found = 0
        while not stop.is_set():
            found += len([broker.url for broker in running_with("")])
        return found

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            looks = [threads.submit(look) for _ in range(4)]
            try:
                with contextlib.ExitStack() as running:
                    for _ in range(60):
                        running.enter_context(forebay.Broker())
            finally:
                stop.set()
            assert all(look.result() for look in looks)
    finally:
        sys.setswitchinterval(interval)


def test_an_embedded_url_is_the_broker_in_the_memory_of_this_process() -> None:
    with pytest.raises(errors.InvalidArgument, match="no broker runs in the memory of this process"):
        frames.write(TABLE, "embedded:", "sales", value="payload")
    with blocking.connect("embedded:") as client:
        with client.producer("sales") as producer:
            producer.send(b"by another client")
        assert frames.read("embedded:", "sales")["value"].to_pylist() == [b"by another client"]
        assert frames.write(TABLE, "embedded:", "sales", value="payload").rows == 3
        assert frames.read(client.url, "sales").num_rows == 4
        with forebay.Broker(), pytest.raises(errors.InvalidArgument, match="2 brokers run in the memory"):
            frames.read("embedded:", "sales")
        assert frames.read("embedded:", "sales").num_rows == 4


# -------------------------------------------------------------------------------------------
# mistakes


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"ends": "latest"}, "no option 'ends'; did you mean 'end'"),
        ({"unreadible": "skip"}, "did you mean 'unreadable'"),
        ({"minPartitions": 3}, "no option 'minPartitions'"),
        ({"position": "earliest"}, "no option 'position': use start"),
        ({"schema": "auto"}, "decode=true gives values by the schema"),
        ({"type": "shared"}, "no option 'type'"),
        ({"receiver_queue": "many"}, "receiver_queue"),
        ({"connect_timeout": "soon"}, "connect_timeout"),
        ({"start": "middle"}, "start: 'middle' is no position"),
        ({"start": 1.5}, "start: 1.5 is no position"),
        ({"start": True}, "start: True is no position"),
        ({"start": "-soon"}, "start: '-soon' is no position"),
        ({"start": -1}, "start: -1 is no time"),
        ({"start": 2**70}, "start: 1180591620717411303424 is no time"),
        ({"start": []}, "start: the list of ids is empty"),
        ({"start": ["(1,2,0,-1)", "(1,3,0,-1)"]}, "start: .*1,2,0.* and .*1,3,0.* are of one partition"),
        ({"start": '{"a": {"0": "middle"}}'}, "start: .* not a message id"),
        ({"start": {"a": 1.5}}, "start: 1.5 is no position"),
        ({"end": "earliest"}, "end: expected"),
        ({"end": MessageId.earliest}, "end: expected"),
        ({"end": str(MessageId.earliest)}, "end: expected"),
        ({"end": {"a": MessageId.earliest}}, "end: a partition cannot end at"),
        ({"topic": ["a", "b"], "start": "(1,2,-1,-1)"}, "start: the message .* is of one topic"),
        ({"topic": None}, "topic is None: expected the name of a topic"),
        ({"topic": 5}, "topic is 5: expected the name of a topic"),
        ({"topic": []}, "expected the name of a topic"),
        ({"topic": ""}, "expected the name of a topic"),
        ({"columns": ["value", "valeu"]}, "no column 'valeu'"),
        ({"columns": []}, "at least one"),
        ({"columns": 5}, "columns=5: expected a list of names"),
        ({"columns": [["value"]]}, r"no column \['value'\]"),
        ({"columns": "value"}, "expected a list of names"),
        ({"columns": ["value", "value"]}, "given twice"),
        ({"read_timeout": "long"}, "read_timeout: expected a duration"),
        ({"url": f"{NOWHERE}?consumer.position=earliest"}, "use start"),
        ({"url": f"{NOWHERE}?consumer.type=shared"}, "no option 'type'"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_mistakes_are_found_before_anything_is_connected(given: dict[str, Any], text: str) -> None:
    for function in (frames.read, frames.scan):
        with pytest.raises(errors.InvalidArgument, match=text):
            function(**{"url": NOWHERE, "topic": "a", **given})


def test_a_scan_has_no_progress() -> None:
    with pytest.raises(errors.InvalidArgument, match="scan has no option 'progress': rows"):
        frames.scan(NOWHERE, "a", progress=True)


def test_the_environment_of_other_consumers_does_not_matter(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with blocking.connect(broker.url) as client:
        client.consumer("sales", "keep", position="earliest").close()
    frames.write(TABLE, broker.url, "sales", value="payload")
    # Of a worker that is set up in the same place.
    for name, value in {"TYPE": "shared", "POSITION": "latest", "START_INCLUSIVE": "true"}.items():
        monkeypatch.setenv(f"FOREBAY_CONSUMER_{name}", value)
    monkeypatch.setenv("FOREBAY_URL", broker.url)
    for start, count in ((None, 3), ("-1h", 3), ("latest", 0)):
        assert frames.read(None, "sales", start=start).num_rows == count
    first = frames.read(None, "sales")["message_id"][0].as_py()
    assert frames.read(None, "sales", start=first).num_rows == 2
    monkeypatch.setenv("FOREBAY_URL", f"{broker.url}?consumer.type=shared")
    with pytest.raises(errors.InvalidArgument, match="no option 'type'"):
        frames.read(None, "sales")
    # Others hold here, too.
    monkeypatch.setenv("FOREBAY_URL", broker.url)
    monkeypatch.setenv("FOREBAY_CONSUMER_RECEIVER_QUEUE", "many")
    with pytest.raises(errors.InvalidArgument, match="receiver_queue"):
        frames.read(None, "sales")


def test_a_naive_time_is_refused() -> None:
    from datetime import datetime

    with pytest.raises(errors.InvalidArgument, match="start: the datetime has no time zone"):
        frames.read(NOWHERE, "a", start=datetime(2026, 1, 1))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"compresion": "zstd"}, "no option 'compresion'; did you mean 'compression'"),
        ({"encodign": "json"}, "did you mean 'encoding'"),
        ({"progressbar": True}, "did you mean 'progress'"),
        ({"encoding": "xml"}, "encoding"),
        ({"encoding": "raw"}, "needs value="),
        ({"ack_timeout": "long"}, "ack_timeout: expected a duration"),
        ({"frame": [1, 2]}, "no Arrow interface"),
        ({"topic": None}, "a topic is needed"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_mistakes_of_a_write(given: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=text):
        frames.write(**{"frame": TABLE, "url": NOWHERE, "topic": "a", **given})


def test_the_columns_of_a_frame_without_rows_are_checked(broker: Any) -> None:
    empty = TABLE.slice(0, 0)
    for url in (broker.url, broker.urls["mqtt"]):
        with pytest.raises(errors.InvalidArgument, match="nothing"):
            frames.write(empty, url, "sales", value="nothing")
        report = frames.write(empty, url, "sales", value="payload")
        assert (report.rows, report.bytes, report.first) == (0, 0, None)


def test_a_spark_data_frame_is_refused() -> None:
    kind = type("DataFrame", (), {"__module__": "pyspark.sql.classic", "__arrow_c_stream__": lambda self: 1})
    with pytest.raises(errors.InvalidArgument, match=r"forebay\.spark\.write"):
        frames.write(kind(), NOWHERE, "a")


@pytest.mark.parametrize(
    ("frame", "count"),
    [
        (pa.table({"i": range(95_000)}), 10),
        (pa.concat_tables(pa.table({"i": range(at, at + 10)}) for at in range(0, 20_000, 10)), 2),
        (pa.table({"i": range(200), "text": [bytes(MiB)] * 200}), 13),
        (pl.DataFrame({"i": range(400_000), "text": [f"{number:0100}" for number in range(400_000)]}), 40),
        (pa.table({"i": range(30_000), "text": DICTIONARY}), 3),
        (pa.table({"i": pa.array([], pa.int64())}), 0),
    ],
    ids=["one batch", "small batches", "large rows", "views", "a dictionary", "no rows"],
)
def test_rows_are_divided_into_lots(frame: Any, count: int) -> None:
    lots = list(_writing._lots(pa.RecordBatchReader.from_stream(frame)))
    assert len(lots) == count
    assert all(0 < lot.num_rows <= 10_000 for lot in lots)
    assert [row for lot in lots for row in lot["i"].to_pylist()] == pa.table(frame)["i"].to_pylist()


def ending(broker: Any) -> pa.RecordBatchReader:
    """More rows than are written: the broker ends meanwhile."""

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(1_000):
            if number == 3:
                broker.stop(0.5)
            yield pa.record_batch({"payload": [b"x" * 100] * 10_000})

    return pa.RecordBatchReader.from_batches(pa.schema([("payload", pa.binary())]), batches())


@pytest.mark.parametrize("protocol", ["pulsar", "mqtt", "tubemq"])
def test_a_broker_that_is_gone_holds_no_write_after_its_timeout(broker: Any, protocol: str) -> None:
    broker.create_topic("tubemq:sales", 1)
    started = time.monotonic()
    with pytest.raises(errors.Timeout, match="did not acknowledge a lot of rows within 1 s") as raised:
        frames.write(ending(broker), broker.urls[protocol], "sales", value="payload", ack_timeout=1)
    assert time.monotonic() - started < 60
    assert "have been acknowledged, and others may have been sent" in raised.value.__notes__[0]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A process in the background of a shell ignores the signal from its beginning."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("protocol", ["pulsar", "mqtt", "tubemq"])
def test_an_interrupt_ends_a_write_whose_broker_is_gone(broker: Any, protocol: str) -> None:
    broker.create_topic("tubemq:sales", 1)
    timer = threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        frames.write(ending(broker), broker.urls[protocol], "sales", value="payload")
    assert time.monotonic() - started < 60
    timer.join()


def test_errors_of_what_is_written_keep_their_types(broker: Any) -> None:
    with blocking.connect(broker.url) as client:
        client.consumer("sales", "keep", position="earliest").close()
        frames.write(TABLE, broker.url, "sales", value="payload")
        scanned = frames.scan(broker.url, "sales")
        client.consumer("sales", "keep").unsubscribe()
    broker.delete_topic("sales")
    with pytest.raises(errors.DataLost, match="deleted"):
        frames.write(scanned, broker.url, "copy", value="value")

    def interrupted() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        raise KeyboardInterrupt

    reader = pa.RecordBatchReader.from_batches(TABLE.schema, interrupted())
    with pytest.raises(KeyboardInterrupt):
        frames.write(reader, broker.url, "copy", value="payload")


# -------------------------------------------------------------------------------------------
# surroundings


async def test_in_a_running_loop_and_in_threads(broker: Any) -> None:
    # Blocking, as forebay.blocking is.
    assert frames.write(TABLE, broker.url, "sales", value="payload").rows == 3
    assert frames.read(broker.url, "sales").num_rows == 3
    tables = await asyncio.gather(
        *(asyncio.to_thread(frames.read, broker.url, "sales") for _ in range(4)),
        asyncio.to_thread(frames.write, TABLE, broker.url, "others", value="payload"),
    )
    assert [table.num_rows for table in tables[:4]] == [3] * 4


def test_progress_on_a_terminal(broker: Any) -> None:
    script = (
        "import sys, pyarrow as pa; from forebay import frames\n"
        "table = pa.table({'payload': [b'x'] * 25_000})\n"
        "frames.write(table, sys.argv[1], 'sales', value='payload', progress=True)\n"
        "frames.read(sys.argv[1], 'sales', progress=True)\n"
        "frames.read(sys.argv[1], 'sales')\n"
    )
    ours, theirs = pty.openpty()
    pieces: list[bytes] = []

    def read() -> None:
        # The end of the terminal is an error here.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 1 << 16):
                pieces.append(piece)

    # At once: a terminal holds 4 KiB, and the script would wait.
    reading = threading.Thread(target=read)
    reading.start()
    try:
        subprocess.run(
            [sys.executable, "-c", script, broker.url],
            stderr=theirs,
            check=True,
            timeout=120,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        )
    finally:
        os.close(theirs)
        reading.join(20)
        os.close(ours)
    shown = b"".join(pieces).decode()
    assert shown.count("25000/25000") >= 1 and shown.count("25000/?") >= 1 and "sales" in shown


def test_without_a_library_the_error_names_the_extra(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    frames.write(TABLE, broker.url, "sales", value="payload")
    scanned = frames.scan(broker.url, "sales")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r'pip install "forebay\[polars\]"'):
        scanned.to_polars()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for call in (frames.read, frames.scan, lambda url, topic: frames.write(TABLE, url, topic)):
        with pytest.raises(ImportError, match=r'pip install "forebay\[frames\]"'):
            call(broker.url, "sales")


def test_importing_costs_no_optional_library() -> None:
    script = (
        "import sys, forebay.frames\n"
        "found = {'pyarrow', 'polars', 'duckdb', 'pandas', 'pyspark', 'rich'} & set(sys.modules)\n"
        "sys.exit(', '.join(found) or 0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


def test_a_topic_or_partition_with_two_positions_is_refused() -> None:
    twice = '{"orders": {"0": "earliest"}, "orders": {"0": "latest"}}'
    for url in ("pulsar://127.0.0.1:1", "tubemq://127.0.0.1:1"):
        with pytest.raises(errors.InvalidArgument, match=r"start: .*'orders' is given twice"):
            frames.read(url, "orders", start=twice)
    with pytest.raises(errors.InvalidArgument, match="0 is given twice"):
        frames.read("pulsar://127.0.0.1:1", "orders", start={"orders": {"0": "earliest", 0: "latest"}})
    with forebay.Broker() as broker:
        with blocking.connect(broker.url) as client, client.producer("orders") as producer:
            producer.send(b"x")
        spelled = {"orders": "earliest", "persistent://public/default/orders": "latest"}
        with pytest.raises(errors.InvalidArgument, match=r"start: 'orders' and .* are one topic"):
            frames.read(broker.url, "orders", start=spelled)
