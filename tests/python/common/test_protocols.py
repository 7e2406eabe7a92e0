"""The registry of protocols, and the one answer for verbs and fields that a protocol lacks."""

from __future__ import annotations

import importlib
import inspect
import pickle
import subprocess
import sys
from itertools import permutations
from typing import Any

import pytest

import forebay
from forebay import blocking, errors
from forebay._core import protocols, unsupported

from support.waiting import until

KINDS = ("Client", "Producer", "Consumer")
PREFIXES = {"pulsar": "Pulsar", "mqtt": "Mqtt", "tubemq": "TubeMq"}


def handle(protocol: str, kind: str, face: str = "_client") -> type[Any]:
    return getattr(importlib.import_module(f"forebay.{protocol}.{face}"), f"{PREFIXES[protocol]}{kind}")


def public(kind: type[Any]) -> set[str]:
    # A missing verb has a place in the class, which hasattr does not see.
    return {name for name in dir(kind) if not name.startswith("_") and hasattr(kind, name)}


@pytest.mark.parametrize(
    "package", ["forebay", "forebay.mqtt", "forebay.pulsar", "forebay.spark", "forebay.tubemq"]
)
def test_a_star_import_has_each_lazy_name(package: str) -> None:
    module = importlib.import_module(package)
    lazy = set(inspect.getclosurevars(module.__getattr__).nonlocals["homes"])
    assert lazy - {"__version__"} <= set(module.__all__)


@pytest.mark.parametrize("row", protocols.PROTOCOLS.values(), ids=lambda row: row.key)
def test_what_a_row_refers_to_exists(row: protocols.Protocol) -> None:
    assert set(row.tables) == {"client", "producer", "consumer"}
    assert issubclass(row.client_class(), forebay.Client)
    assert issubclass(row.blocking_client_class(), blocking.Client)
    assert importlib.import_module(row.commands)
    for name, text in row.words().items():
        assert row.title in text, name


@pytest.mark.parametrize("protocol", protocols.PROTOCOLS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_blocking_face_has_the_verbs_of_the_asyncio_face(protocol: str, kind: str) -> None:
    theirs, ours = handle(protocol, kind), handle(protocol, kind, "blocking")
    assert public(ours) - public(theirs) <= {"abandon", "submit_many", "submit_frame", "submit_rows"}
    assert not public(theirs) - public(ours)
    for name in public(theirs):
        verb, twin = getattr(theirs, name), getattr(ours, name)
        if inspect.isfunction(verb) and name not in ("flush", "close"):
            assert list(inspect.signature(verb).parameters) == list(inspect.signature(twin).parameters), name


@pytest.mark.parametrize(("protocol", "other"), list(permutations(protocols.PROTOCOLS, 2)))
@pytest.mark.parametrize("kind", KINDS)
def test_each_verb_of_another_protocol_has_an_answer(protocol: str, other: str, kind: str) -> None:
    ours = handle(protocol, kind)
    for name in public(handle(other, kind)) - public(ours):
        error = unsupported.missing(ours, name)
        assert isinstance(error, errors.Unsupported), name
        assert protocols.PROTOCOLS[protocol].title in str(error)


@pytest.mark.parametrize("protocol", protocols.PROTOCOLS)
def test_a_column_that_a_protocol_lacks_is_refused(protocol: str) -> None:
    own = inspect.signature(handle(protocol, "Producer").send_frame).parameters
    for name in ("key", "ordering_key", "event_time", "deliver_at", "message_type", "schema"):
        unsupported.refuse(protocol, {name: None})
        if name in own:
            unsupported.refuse(protocol, {name: "column"})
        else:
            with pytest.raises(errors.Unsupported, match=protocols.PROTOCOLS[protocol].title):
                unsupported.refuse(protocol, {name: "column"})


def test_the_error_is_an_attribute_error_and_survives_a_pickle() -> None:
    error = unsupported.missing("mqtt.message", "publish_time")
    assert isinstance(error, errors.Unsupported)
    assert isinstance(error, AttributeError)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))


def test_a_mistyped_or_private_name_is_a_plain_attribute_error() -> None:
    error = unsupported.missing(handle("mqtt", "Client"), "publsh")
    assert type(error) is AttributeError
    assert "did you mean 'publish'?" in str(error)
    assert type(unsupported.missing(handle("mqtt", "Client"), "_reader")) is AttributeError


async def test_a_verb_that_is_missing_is_absent() -> None:
    async with forebay.connect("embedded:") as client, client.producer("t") as producer:
        assert not hasattr(client, "publish")
        assert not hasattr(producer, "topics")
        assert "publish" not in dir(client)
        assert "partitions" in dir(client)
        with pytest.raises(errors.Unsupported, match="open a producer"):
            client.publish("t", b"x")
        with pytest.raises(AttributeError, match="open a producer"):
            client.publish("t", b"x")
        with pytest.raises(TypeError, match="qos"):
            producer.send(b"x", qos=1)
    with blocking.connect("embedded:") as client, client.consumer("t", "s") as consumer:
        with pytest.raises(errors.Unsupported, match="use partitions"):
            consumer.partitions()


@pytest.mark.parametrize(
    ("connect", "url", "schemes"),
    [
        (forebay.mqtt.connect, "pulsar://h", "mqtt, mqtts"),
        (forebay.pulsar.connect, "mqtt://h", "pulsar, pulsar"),
        (forebay.tubemq.blocking.connect, "embedded:", "tubemq, tubemq"),
    ],
)
def test_the_connect_of_a_protocol_takes_its_urls_only(connect: Any, url: str, schemes: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=schemes):
        connect(url)


async def test_the_connect_of_a_protocol_gives_its_client() -> None:
    async with forebay.pulsar.connect("embedded:") as client:
        assert type(client) is forebay.pulsar.PulsarClient
    with forebay.pulsar.blocking.connect("embedded:") as client:
        assert type(client) is forebay.pulsar.blocking.PulsarClient


def test_the_registry_loads_no_protocol() -> None:
    code = "import sys, forebay._core.protocols; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"forebay._engine", "forebay.pulsar", "forebay.mqtt", "forebay.tubemq"} & set(loaded.split())


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("pulsar://far.invalid", {"token": "t"}),
        ("mqtt://far.invalid", {"username": "u", "password": "p"}),
        ("tubemq://far.invalid", {"username": "u", "password": "p"}),
    ],
)
async def test_a_secret_that_goes_to_another_machine_in_plain_text_is_warned_of(
    url: str, secret: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def attempt(url: str, **options: Any) -> None:
        with pytest.raises(errors.Error):
            await forebay.connect(url, connect_timeout=0.5, **options)

    with caplog.at_level("WARNING", "forebay"):
        await attempt(url)
        await attempt(url.split(":")[0] + "://127.0.0.1:1", **secret)
        await attempt(url, **secret)
        await until(lambda: any("far.invalid" in record.message for record in caplog.records))
    (warning,) = (record.message for record in caplog.records if "in plain text" in record.message)
    assert "far.invalid" in warning and "use TLS" in warning, "the first had none, the second stayed here"
