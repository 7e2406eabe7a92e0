"""Schemas without a broker."""

from __future__ import annotations

import enum
import sys
import textwrap
import types
from dataclasses import dataclass, field
from typing import Any, get_args

import pytest

from forebay import errors, pulsar
from forebay.pulsar import Schema, blocking
from forebay.pulsar._schema import schema_of
from forebay.pulsar.blocking import PulsarTableView


class Colour(enum.Enum):
    RED = 1


@dataclass
class Part:
    name: str
    colour: Colour = Colour.RED
    inner: Part | None = None
    sizes: list[int] = field(default_factory=list[int])


def test_a_class_may_contain_itself() -> None:
    part = Part("a", inner=Part("b", sizes=[1, -1]))
    for schema in (Schema.avro(Part), Schema.json(Part)):
        assert schema.decode(schema.encode(part)) == part


def test_names_of_a_class_are_those_of_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("shop")
    monkeypatch.setitem(sys.modules, "shop", module)
    text = """
        from __future__ import annotations
        from dataclasses import dataclass
        @dataclass
        class Part:
            article: str
        @dataclass
        class Order:
            parts: list[Part]
    """
    exec(textwrap.dedent(text), module.__dict__)
    # There is another ``Part`` here.
    order = module.Order([module.Part("nut")])
    schema = Schema.avro(module.Order)
    assert schema.decode(schema.encode(order)) == order

    @dataclass
    class Local:
        part: Part
        own: Own

    @dataclass
    class Own:
        size: int

    value = Local(Part("a"), Own(1))
    assert Schema.json(Local).decode(Schema.json(Local).encode(value)) == value


def test_values_that_contain_themselves_are_refused() -> None:
    part = Part("a")
    part.inner = part
    for schema in (Schema.avro(Part), Schema.json(Part)):
        with pytest.raises(errors.SchemaError, match="nested more than 64 deep"):
            schema.encode(part)


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ("{", "EOF"),
        ('{"type": "unknown", "name": "x"}', '"unknown" is not defined'),
        ({"type": "array"}, 'no "items"'),
        ({"type": object()}, "no JSON"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_what_is_no_definition_is_refused(definition: Any, reason: str) -> None:
    with pytest.raises(errors.SchemaError, match=reason):
        Schema.avro(definition)


def test_types_without_a_counterpart_are_named() -> None:
    @dataclass
    class Odd:
        things: dict[str, list[complex]]

    with pytest.raises(errors.SchemaError, match=r"Odd\.things: .*complex"):
        Schema.avro(Odd)
    for given in (object(), "int128", complex):
        with pytest.raises(errors.InvalidArgument, match="'schema'"):
            schema_of(given)
    with pytest.raises(errors.InvalidArgument, match="int128"):
        Schema.primitive("int128")  # type: ignore[arg-type]


def test_json_is_that_of_other_clients() -> None:
    schema = Schema.json(Part)
    assert schema.encode(Part('"ü"', sizes=[2**63 - 1])) == (
        '{"name":"\\"ü\\"","colour":"RED","inner":null,"sizes":[9223372036854775807]}'.encode()
    )
    read = schema.decode(b'{"name": "a", "colour": 1, "unknown": {"x": [1]}}'.replace(b" 1,", b' "RED",'))
    assert read == Part("a"), "what is unknown is passed over, and what is missing has its default"
    for bad, reason in [
        (b'{"name": 1}', "name: expected a text, got int"),
        (b'{"name": "a", "sizes": [1, 1.5]}', r"sizes\[1\]: expected an integer of 64 bits, got float"),
        (b'{"name": "a", "sizes": [9223372036854775808]}', r"sizes\[0\]: .* does not fit"),
        (b'{"name": "a", "sizes": [NaN]}', "NaN is no JSON"),
        (b"[" * 100_000, "nested too deep|recursion"),
        (b'{"name": "a", "colour": "GREEN"}', "no symbol"),
        (b"{}", "name"),
        (b"\xff", "decoded"),
    ]:
        with pytest.raises(errors.SchemaError, match=reason):
            schema.decode(bad)


def test_a_raw_schema_leaves_payloads_alone() -> None:
    schema = Schema("protobuf_native", "P", '{"rootMessageTypeName": "P"}', raw=True)
    assert schema.encode(b"\x01") == b"\x01"
    with pytest.raises(TypeError, match="bytes-like"):
        schema.encode("text")


def test_classes_take_the_type_of_their_values() -> None:
    classes: list[Any] = [
        *(pulsar.PulsarProducer, pulsar.PulsarConsumer, pulsar.PulsarTableView, pulsar.PulsarMessage),
        *(blocking.PulsarProducer, blocking.PulsarConsumer, PulsarTableView, Schema),
    ]
    for generic in classes:
        assert get_args(generic[Part]) == (Part,)


def test_unions_take_the_branch_of_the_value() -> None:
    schema = Schema.avro('["null", "boolean", "int", "long", "double", "string", "bytes"]')
    for value in (None, True, 1, 2**40, 1.5, "a", b"a"):
        got = schema.decode(schema.encode(value))
        assert (got, type(got)) == (value, type(value))
    with pytest.raises(errors.SchemaError, match="expected one of null, boolean"):
        schema.encode([])
