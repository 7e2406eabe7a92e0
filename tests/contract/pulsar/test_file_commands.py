"""``sub --parquet`` and ``pub --frame`` with the embedded broker and with a real Pulsar."""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest

from forebay import blocking, frames
from forebay.pulsar import Schema

from support.commands import Commands
from support.pulsar.harness import PulsarService


@dataclass
class Order:
    name: str
    size: int


@pytest.fixture
def command(service: PulsarService) -> Commands:
    return Commands(service.url)


@pytest.fixture
def orders(service: PulsarService) -> str:
    """A topic of records."""
    topic = service.topic()
    with blocking.connect(service.url) as client:
        with client.producer(topic, schema=Schema.avro(Order)) as producer:
            for number in range(10):
                producer.send(Order("ab"[number % 2], number), f"k{number}")
    return topic


def test_a_topic_becomes_a_file_and_a_topic_again(
    command: Commands, service: PulsarService, tmp_path: Path
) -> None:
    topic, other = service.topic(partitions=2), service.topic()
    with blocking.connect(service.url) as client, client.producer(topic) as producer:
        for number in range(20):
            producer.send(b"%d\xff" % number, f"k{number}", properties={"n": str(number)}, event_time=number)
    file = tmp_path / "orders.parquet"
    said = command.json("sub", "-t", topic, "--parquet", str(file))
    assert said == {"file": str(file), "messages": 20}
    read = parquet.read_table(file)
    assert sorted(read["key"].to_pylist()) == sorted(f"k{number}" for number in range(20))
    assert command.json("pub", "-t", other, "--frame", str(file)) == {"topic": other, "messages": 20}
    columns = ["value", "key", "properties", "event_time"]
    assert frames.read(service.url, other, columns=columns) == read.select(columns)
    # A file is replaced in whole, and nothing else is left in the folder.
    command("sub", "-t", topic, "--parquet", str(file), "-C", "3")
    assert parquet.read_table(file).num_rows == 3
    command("sub", "-t", topic, "--parquet", str(file), "-o", "2099-01-01T00:00:00Z")
    assert parquet.read_table(file).num_rows == 0
    assert os.listdir(tmp_path) == ["orders.parquet"]


def test_values_by_the_schema(command: Commands, orders: str, tmp_path: Path) -> None:
    file = str(tmp_path / "orders.parquet")
    command("sub", "-t", orders, "--parquet", file, "--decode")
    assert parquet.read_table(file)["value"].to_pylist()[3] == {"name": "b", "size": 3}


def test_files_that_cannot_be_written(command: Commands, orders: str, tmp_path: Path) -> None:
    missing = tmp_path / "none" / "a.parquet"
    assert f"forebay: io: cannot write {missing}" in command.refused(
        "sub", "-t", orders, "--parquet", str(missing)
    )
    full = Path("/dev/full")
    if full.exists():
        # The file beside it cannot be made there, or is full.
        assert "forebay: io" in command.refused("sub", "-t", orders, "--parquet", str(full / "a"))
    said = command.misused("sub", "-t", orders, "-s", "s", "--parquet", str(tmp_path / "a"))
    assert "without a subscription" in said
    for flag in (["-F", "%s"], ["-v"], ["-W", "1"]):
        said = command.misused("sub", "-t", orders, *flag, "--parquet", str(tmp_path / "a"))
        assert f"--parquet and {flag[0]} exclude each other" in said
    assert "topic_not_found" in command.refused(
        "sub", "-t", "none-of-this-name", "--parquet", str(tmp_path / "a")
    )
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "feather", "csv"])
def test_rows_of_a_file_are_sent_as_json(
    command: Commands, service: PulsarService, tmp_path: Path, suffix: str
) -> None:
    table = pa.table({"id": ["a", "b"], "n": [1, 2]})
    file = tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        parquet.write_table(table, file)
    elif suffix == "csv":
        pa_csv.write_csv(table, file)
    else:
        feather.write_feather(table, str(file), compression="uncompressed")
    topic = service.topic()
    command("pub", "-t", topic, "--frame", str(file), "--key-column", "id", "-q")
    found = frames.read(service.url, topic)
    assert [json.loads(value) for value in found["value"].to_pylist()] == table.to_pylist()
    assert found["key"].to_pylist() == ["a", "b"]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_the_index_that_pandas_stores_is_no_column(
    command: Commands, service: PulsarService, tmp_path: Path, suffix: str
) -> None:
    import pandas

    frame = pandas.DataFrame({"id": ["a", "b"], "n": [1, 2]})
    table = pa.Table.from_pandas(frame[frame.n > 1])
    assert "__index_level_0__" in table.column_names
    file, topic = tmp_path / f"rows.{suffix}", service.topic()
    if suffix == "parquet":
        parquet.write_table(table, file)
    else:
        feather.write_feather(table, str(file), compression="uncompressed")
    command("pub", "-t", topic, "--frame", str(file), "-q")
    found = frames.read(service.url, topic)
    assert [json.loads(value) for value in found["value"].to_pylist()] == [{"id": "b", "n": 2}]


def test_files_that_cannot_be_read(command: Commands, service: PulsarService, tmp_path: Path) -> None:
    topic = service.topic()

    def refused(name: str, *words: str) -> str:
        return command.refused("pub", "-t", topic, "--frame", str(tmp_path / name), *words)

    def misused(name: str, *words: str) -> str:
        return command.misused("pub", "-t", topic, "--frame", str(tmp_path / name), *words)

    (tmp_path / "a.parquet").write_bytes(b"nonsense")
    assert "cannot read" in refused("a.parquet")
    assert "cannot read" in refused("none.parquet")
    assert "these end in .parquet" in misused("a.txt")
    whole = io.BytesIO()
    parquet.write_table(pa.table({"value": [os.urandom(100) for _ in range(999)]}), whole)
    broken = bytearray(whole.getvalue())
    broken[100:3000] = bytes(2900)
    (tmp_path / "broken.parquet").write_bytes(broken)
    assert f"cannot read {tmp_path / 'broken.parquet'}: " in refused("broken.parquet")
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "b.parquet")
    assert "has no column 'id'; it has a" in misused("b.parquet", "--key-column", "id")
    for flag, value in (("-k", "x"), ("-K", ":"), ("-p", "a=b")):
        assert f"--frame and {flag} exclude each other" in misused("b.parquet", flag, value)
    assert "each row once" in misused("b.parquet", "-r", "2")
