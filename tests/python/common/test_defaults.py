"""Tables and signatures of options: they say what the declarations in Rust say."""

from __future__ import annotations

import inspect
import pydoc
import sys
from pathlib import Path
from typing import Any

import pytest

import forebay
import forebay.blocking
from forebay import _engine, broker
from forebay._core import broker_endpoints, options, protocols
from forebay.errors import InvalidArgument

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))

import generate_options

SPECS = _engine.option_specs()


def table(name: str) -> options.Table:
    return broker_endpoints.OPTIONS if name == "listener" else protocols.table(name)


@pytest.mark.parametrize("name", [*protocols.table_names(), "listener"])
def test_a_table_is_what_the_engine_declares(name: str) -> None:
    declared = {spec["name"]: spec for spec in SPECS[name]}
    assert set(table(name)) == set(declared)
    for option, row in table(name).items():
        spec = declared[option]
        assert (type(row.default), row.default) == (type(spec["default"]), spec["default"]), option
        # A limit that the generator adds is said at the end of the text.
        _, limit = generate_options.own_parser(name, spec) or ("", "")
        text = f"{spec['text']} {limit}".strip()
        assert (row.doc, row.at_limit) == (text, spec["at_limit"]), option
        assert (row.common, row.secret, row.face) == (spec["common"], spec["secret"], spec["face"]), option


def test_each_table_is_declared_and_few_options_are_common() -> None:
    assert set(SPECS) == {*protocols.table_names(), "listener"}
    rows = [spec for specs in SPECS.values() for spec in specs]
    common = [spec for spec in rows if spec["common"]]
    assert len(rows) > 180
    assert 20 <= len(common) <= 40
    assert all(spec["text"].endswith((".", "`.")) for spec in rows)


def test_the_sources_of_the_defaults_are_the_structs_of_the_engine() -> None:
    # One of each way by which a default is declared.
    pulsar, mqtt = protocols.table("pulsar.consumer"), protocols.table("mqtt.client")
    assert pulsar["nack_delay"].default == 60.0
    assert pulsar["type"].default == "exclusive"
    assert pulsar["receive_buffer"].default == 16 << 20
    assert mqtt["keep_alive"].default == 60.0
    assert mqtt["outbox_limit"].default == 1 << 30
    assert mqtt["session_expiry"].default is None
    assert protocols.table("mqtt.consumer")["qos"].default == 1
    assert protocols.table("broker")["durability"].default is None


def _methods() -> list[Any]:
    found = []
    for row in protocols.PROTOCOLS.values():
        for client in (row.client_class(), row.blocking_client_class()):
            found += [(client.producer, [f"{row.key}.producer"]), (client.consumer, [f"{row.key}.consumer"])]
    clients = [f"{key}.client" for key in protocols.PROTOCOLS]
    return [
        *found,
        (forebay.connect, clients),
        (forebay.blocking.connect, clients),
        (forebay.Broker, ["broker"]),
    ]


@pytest.mark.parametrize(("function", "names"), _methods())
def test_a_signature_shows_the_options_with_their_defaults(function: Any, names: list[str]) -> None:
    shown = inspect.signature(function).parameters
    for name in names:
        for option, row in protocols.table(name).items():
            parameter = shown[option]
            assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
            assert repr(row.default) in repr(parameter.default).split(" or "), option
    keywords = [one.name for one in shown.values() if one.kind is inspect.Parameter.KEYWORD_ONLY]
    assert set(keywords) == {option for name in names for option in protocols.table(name)}
    # Those that most programs set come first.
    common = {option for name in names for option, row in protocols.table(name).items() if row.common}
    assert set(keywords[: len(common)]) == common


def test_help_shows_options_with_their_defaults() -> None:
    text = pydoc.render_doc(forebay.connect, renderer=pydoc.plaintext)
    assert "connect_timeout: 'Duration' = 10.0" in text
    assert "max_backoff: 'Duration' = 60.0 or 2.0" in text
    assert "token: 'Secret' = None" in text


def test_a_default_of_a_signature_is_not_given() -> None:
    def function(
        topic: str, *, size: int = options.default(5), name: Any = options.default(None), **unknown: Any
    ):
        return options.given(locals(), "topic")

    assert function("a") == {}
    assert function("a", size=5, name=None, other=1) == {"size": 5, "name": None, "other": 1}


def test_options_of_the_broker_are_checked_as_before() -> None:
    with pytest.raises(InvalidArgument, match="did you mean 'max_topics'"):
        broker.Broker(max_topicz=1)  # pyright: ignore[reportArgumentType]
