"""The drop-in for pulsar-client: what it has, against the official module that is installed, and what it
refuses."""

from __future__ import annotations

import enum
import http.server
import importlib
import inspect
import pickle
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _pulsar
import pytest

import forebay
import forebay.compat.pulsar as ours
import forebay.compat.pulsar.asyncio as aio
import pulsar as official
from forebay import errors
from forebay._core import protocols
from forebay.compat.pulsar import _options, _refusals, exceptions
from forebay.pulsar._renamed import RENAMED

from support.pulsar.harness import EmbeddedPulsar

MODULES = (
    "",
    ".asyncio",
    ".exceptions",
    ".schema",
    ".tableview",
)

LEAKED = {
    "Callable", "List", "Optional", "Tuple", "Union", "Any", "logging", "re", "timedelta", "functools",
    "asyncio", "pulsar", "abstractmethod", "pickle", "definition", "schema_avro", "schema_protobuf", "Schema",
}  # fmt: skip
"""Names that the official modules have imported and do not mean to offer."""

FUNCTIONS = {"functions", "Context", "Function", "IdentitySerDe", "PickleSerDe", "SerDe"}
"""Interfaces of Pulsar Functions, which only their own runtime uses. The drop-in does not have them."""


def parts(module: str) -> tuple[Any, Any]:
    return importlib.import_module(f"pulsar{module}"), importlib.import_module(
        f"forebay.compat.pulsar{module}"
    )


def public(owner: Any) -> list[str]:
    return [name for name in dir(owner) if not name.startswith("_")]


def named() -> list[Any]:
    """Every public name of every module."""
    found: list[Any] = []
    for module in MODULES:
        theirs, _ = parts(module)
        found += [
            pytest.param(module, name, id=f"{module or '.'}:{name}")
            for name in public(theirs)
            if name not in LEAKED | FUNCTIONS or (module == ".schema" and name == "Schema")
        ]
    return found


@pytest.mark.parametrize(("module", "name"), named())
def test_every_name_is_there(module: str, name: str) -> None:
    theirs, mine = parts(module)
    one, other = getattr(theirs, name), getattr(mine, name)
    assert isinstance(other, type) == isinstance(one, type)
    if isinstance(one, type):
        missing = {verb for verb in public(one) if not hasattr(other, verb)}
        # Of a member, which a class of Python does not show.
        missing -= {"name", "value"} if is_enum(one) else set()
        assert not missing


def is_enum(value: Any) -> bool:
    return isinstance(value, type) and hasattr(value, "__members__")


ENUMS = [name for name in public(official) if is_enum(getattr(official, name))]


@pytest.mark.parametrize("name", [*ENUMS, "SchemaType"])
def test_enumerations_are_equal(name: str) -> None:
    theirs = getattr(_pulsar, name)
    mine = getattr(ours, name, None) or importlib.import_module("forebay.compat.pulsar._enums").SchemaType
    assert {key: int(value) for key, value in mine.__members__.items()} == {
        key: int(value) for key, value in theirs.__members__.items()
    }
    for key, value in theirs.__members__.items():
        twin = mine.__members__[key]
        assert (repr(twin), str(twin), f"{twin}") == (repr(value), str(value), f"{value}")
        assert (twin.name, twin.value, hash(twin)) == (value.name, value.value, hash(value))
        assert twin == value.value and mine(value.value) is twin
        assert pickle.loads(pickle.dumps(twin)) is twin


def test_exceptions_are_equal() -> None:
    theirs, mine = parts(".exceptions")
    for name in public(theirs):
        assert [base.__name__ for base in getattr(mine, name).__mro__] == [
            base.__name__ for base in getattr(theirs, name).__mro__
        ]
        assert getattr(ours, name) is getattr(mine, name)
    results = {name for name in official.Result.__members__ if name != "Ok"}
    assert results | {"PulsarException"} == set(exceptions.__all__)


def test_every_error_of_the_engine_has_a_result() -> None:
    assert set(errors.BY_CODE.values()) == set(exceptions._RESULTS)


# Classes that a program makes itself: their constructors are compared. Others come from a client.
MADE = (
    "AutoClusterFailover", "Authentication", "AuthenticationAthenz", "AuthenticationBasic",
    "AuthenticationOauth2", "AuthenticationTLS", "AuthenticationToken", "Client", "ConsoleLogger",
    "ConsumerBatchReceivePolicy", "ConsumerDeadLetterPolicy", "ConsumerKeySharedPolicy", "CryptoKeyReader",
    "EncryptionContext", "EncryptionKey", "FileLogger", "MessageBatch", "MessageId", "ServiceInfo",
    "TableView", "BytesSchema",
)  # fmt: skip


def signature(function: Any) -> list[tuple[str, str, Any]]:
    """Names, kinds and defaults of the parameters."""
    found: list[tuple[str, str, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        default = parameter.default
        if hasattr(default, "schema_info"):
            default = type(default).__name__
        elif hasattr(type(default), "__members__"):
            default = str(default)
        found.append((parameter.name, parameter.kind.name, default))
    return found


ALLOWED = {
    # The class is empty there when the package is not installed, with other names of the
    # parameters.
    ("schema", "AvroSchema", "__init__"),
    ("schema", "ProtobufNativeSchema", "__init__"),
    # Made by the client only: the engine's objects are others.
    ("asyncio", "Producer", "__init__"),
    ("asyncio", "Consumer", "__init__"),
    ("asyncio", "Reader", "__init__"),
}
"""Signatures that differ, each with its reason."""


def signatures() -> list[Any]:
    found: list[Any] = []
    for module in MODULES:
        theirs, _ = parts(module)
        for name in public(theirs):
            kind = getattr(theirs, name)
            left_out = (LEAKED - {"Schema"}) | FUNCTIONS
            if name in left_out or not inspect.isclass(kind) or kind.__module__ == "_pulsar":
                continue
            for verb, _function in inspect.getmembers(kind, inspect.isfunction):
                made = verb == "__init__" and (module not in ("", ".asyncio") or name in MADE)
                if (made or not verb.startswith("_")) and (module.strip("."), name, verb) not in ALLOWED:
                    found.append(pytest.param(module, name, verb, id=f"{module or '.'}:{name}.{verb}"))
    return found


@pytest.mark.parametrize(("module", "name", "verb"), signatures())
def test_signatures_and_defaults_are_equal(module: str, name: str, verb: str) -> None:
    theirs, mine = (getattr(getattr(part, name), verb) for part in parts(module))
    assert signature(mine) == signature(theirs)
    assert inspect.iscoroutinefunction(mine) == inspect.iscoroutinefunction(theirs)


def test_the_version_is_that_of_the_official_module() -> None:
    assert ours.__version__ == official.__version__


# ---------------------------------------------------------------------------- message ids

POSITIONS = [(-1, 1, 2, -1), (0, 1, 2, 3), (5, 2**40, 2**33, 17), (-1, 0, 0, 0)]


@pytest.mark.parametrize("position", POSITIONS)
def test_ids_are_equal(position: tuple[int, int, int, int]) -> None:
    theirs, mine = official.MessageId(*position), ours.MessageId(*position)
    assert mine.serialize() == theirs.serialize()
    assert str(mine) == str(theirs)
    assert (mine.partition(), mine.ledger_id(), mine.entry_id(), mine.batch_index()) == position
    assert ours.MessageId.deserialize(theirs.serialize()) == mine
    assert pickle.loads(pickle.dumps(mine)) == mine and len({mine, mine}) == 1


def test_the_ends_are_equal() -> None:
    for end in ("earliest", "latest"):
        theirs, mine = getattr(official.MessageId, end), getattr(ours.MessageId, end)
        assert (str(mine), mine.serialize()) == (str(theirs), theirs.serialize())
    assert ours.MessageId() == ours.MessageId.earliest < ours.MessageId.latest


def test_ids_compare_as_there() -> None:
    for one in POSITIONS:
        for two in POSITIONS:
            theirs = [official.MessageId(*position) for position in (one, two)]
            mine = [ours.MessageId(*position) for position in (one, two)]
            for compare in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
                assert getattr(mine[0], compare)(mine[1]) == getattr(theirs[0], compare)(theirs[1]), (
                    one,
                    two,
                )
    assert (ours.MessageId() == 3) is False


@pytest.mark.parametrize("wrong", [b"", b"xx", b"\x00\x01"])
def test_bytes_that_are_no_id(wrong: bytes) -> None:
    for module in (official, ours):
        with pytest.raises(ValueError, match="Failed to parse serialized message id"):
            module.MessageId.deserialize(wrong)


# ---------------------------------------------------------------------------- policies and
# credentials

BOTH = pytest.mark.parametrize("pulsar", [official, ours], ids=["official", "ours"])


@BOTH
def test_policies(pulsar: Any) -> None:
    policy = pulsar.ConsumerBatchReceivePolicy(3, 4, 5).policy()
    assert (policy.getMaxNumMessages(), policy.getMaxNumBytes(), policy.getTimeoutMs()) == (3, 4, 5)
    with pytest.raises(ValueError, match="At least one"):
        pulsar.ConsumerBatchReceivePolicy(0, -1, 0)
    policy = pulsar.ConsumerDeadLetterPolicy(3, "t", "i")
    assert (policy.max_redeliver_count, policy.dead_letter_topic, policy.initial_subscription_name) == (
        3,
        "t",
        "i",
    )
    policy = pulsar.ConsumerDeadLetterPolicy(1)
    assert (policy.dead_letter_topic, policy.initial_subscription_name) == ("", "")
    for wrong in (0, -1, None):
        with pytest.raises(ValueError, match="greater than 0"):
            pulsar.ConsumerDeadLetterPolicy(wrong)


@BOTH
def test_key_shared_policies(pulsar: Any) -> None:
    sticky = pulsar.KeySharedMode.Sticky
    policy = pulsar.ConsumerKeySharedPolicy(sticky, True, [(0, 10), (20, 65535)])
    assert policy.key_shared_mode == sticky and policy.allow_out_of_order_delivery
    assert policy.sticky_ranges == [(0, 10), (20, 65535)]
    assert pulsar.ConsumerKeySharedPolicy().sticky_ranges == []
    for wrong in (None, [], [(-1, 3)], [(0, 65536)], [(0, 10), (10, 20)]):
        with pytest.raises(ValueError):
            pulsar.ConsumerKeySharedPolicy(sticky, False, wrong)


@BOTH
def test_credentials_are_checked(pulsar: Any) -> None:
    assert pulsar.Authentication("token", "token:abc").auth.getAuthMethodName() == "token"
    for make in (
        lambda: pulsar.AuthenticationToken(3),
        lambda: pulsar.AuthenticationTLS("cert", None),
        lambda: pulsar.AuthenticationBasic("name"),
        lambda: pulsar.AuthenticationBasic(auth_params_string=3),
        lambda: pulsar.AuthenticationOauth2({}),
        lambda: pulsar.AuthenticationAthenz(None),
        lambda: pulsar.Authentication("token", None),
        lambda: pulsar.CryptoKeyReader("public", None),
        lambda: pulsar.ConsoleLogger(1),
        lambda: pulsar.FileLogger(pulsar.LoggerLevel.Info, None),
        lambda: pulsar.ServiceInfo(3),
        lambda: pulsar.ServiceInfo("x"),
    ):
        with pytest.raises(ValueError):
            make()


@BOTH
def test_clusters_are_checked(pulsar: Any) -> None:
    primary, other = pulsar.ServiceInfo("pulsar://a:1"), pulsar.ServiceInfo("pulsar+ssl://b:1", None, "/ca")
    assert (other.use_tls, other.tls_trust_certs_file_path) == (True, "/ca")
    assert repr(other) == (
        "ServiceInfo(service_url='pulsar+ssl://b:1', use_tls=True, tls_trust_certs_file_path='/ca')"
    )
    failover = pulsar.AutoClusterFailover(primary, [other])
    assert (failover.check_interval_ms, failover.failover_threshold) == (5000, 1)
    for wrong in (
        {"primary": "a"}, {"secondary": []}, {"secondary": ["b"]}, {"check_interval_ms": 0},
        {"failover_threshold": "1"}, {"switch_back_threshold": -1},
    ):  # fmt: skip
        with pytest.raises(ValueError):
            pulsar.AutoClusterFailover(**{"primary": primary, "secondary": [other], **wrong})


def test_tokens_are_read_as_there(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from a file\n")
    for parameters, token in (
        ("token:abc", "abc"),
        ("abc", "abc"),
        ('{"token": "abc"}', "abc"),
        (f"file://{file}", "from a file"),
    ):
        name = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
        found = ours.Authentication(name, parameters).token
        assert found is not None and found() == token


# ---------------------------------------------------------------------------- schemas


class Colour(enum.Enum):
    red = 1
    blue = 2


def records(pulsar: Any) -> Any:
    """The same records for either module."""
    schema = pulsar.schema

    class Part(schema.Record):
        name = schema.String()
        size = schema.Long(required=True)

    class Order(schema.Record):
        _avro_namespace = "shop"
        text = schema.String(required=True)
        note = schema.String(default="none", required_default=True)
        flag = schema.Boolean()
        whole = schema.Integer(default=3)
        long = schema.Long()
        small = schema.Float()
        large = schema.Double(default=1.5)
        blob = schema.Bytes()
        nothing = schema.Null()
        colour = Colour
        shade = schema.CustomEnum(Colour, default=Colour.blue, required_default=True)
        part = Part()
        parts = schema.Array(Part())
        names = schema.Array(schema.String())
        by_name = schema.Map(Part())
        counts = schema.Map(schema.Integer())

    return Part, Order


def test_records_declare_equal_schemas() -> None:
    for mine, theirs in zip(records(ours), records(official), strict=True):
        assert mine.schema() == theirs.schema()
        assert list(mine.schema()) == list(theirs.schema())
    sorted_schemas = []
    for pulsar in (ours, official):

        class Sorted(pulsar.schema.Record):
            _sorted_fields = True
            b = pulsar.schema.String()
            a = pulsar.schema.String()

        sorted_schemas.append(Sorted.schema())
    assert sorted_schemas[0] == sorted_schemas[1]


def order(pulsar: Any) -> tuple[Any, Any]:
    part, kind = records(pulsar)
    made = kind(
        text="t",
        flag=True,
        long=2**40,
        blob="bytes",
        colour="red",
        part=part(name="p", size=1),
        parts=[part(name="a", size=2), part(name="b", size=3)],
        names=["x"],
        by_name={"k": part(size=4)},
        counts={"n": 1},
    )
    return kind, made


def test_json_is_equal() -> None:
    (mine_class, mine), (their_class, theirs) = order(ours), order(official)
    one, other = ours.schema.JsonSchema(mine_class), official.schema.JsonSchema(their_class)
    data = one.encode(mine)
    assert data == other.encode(theirs)
    assert one.decode(data) == mine
    assert str(one.schema_info().schema_type()) == str(other.schema_info().schema_type())
    assert one.schema_info().schema() == other.schema_info().schema()
    assert one.schema_info().name() == other.schema_info().name()
    with pytest.raises(TypeError, match="Invalid record obj"):
        one.encode("text")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", 3), ("text", None), ("flag", "yes"), ("whole", "1"), ("whole", 1.5), ("small", "x"),
        ("nothing", 1), ("colour", "green"), ("colour", 7), ("colour", 1.5), ("part", "p"), ("parts", "p"),
        ("parts", ["p"]), ("names", [1]), ("by_name", {"k": 1}), ("counts", {1: 1}), ("counts", [1]),
        ("unknown", 1), ("text", b"bytes"), ("blob", "text"), ("colour", 2), ("colour", Colour.red),
        ("whole", None), ("names", None), ("large", 1),
    ],
)  # fmt: skip
def test_fields_take_the_same_values(field: str, value: Any) -> None:
    outcomes: list[Any] = []
    for pulsar in (ours, official):
        _, record = order(pulsar)
        try:
            setattr(record, field, value)
            outcomes.append(getattr(record, field))
        except Exception as error:
            outcomes.append((type(error), str(error).replace("forebay.compat.pulsar", "pulsar")))
    assert outcomes[0] == outcomes[1]


def test_records_compare_by_their_fields() -> None:
    (_, one), (_, two) = order(ours), order(ours)
    assert str(one)
    _, kind = records(ours)
    assert kind(text="a") == kind(text="a")
    assert kind(text="a") != kind(text="b")
    del two


@BOTH
def test_text_and_bytes(pulsar: Any) -> None:
    text, raw = pulsar.schema.StringSchema(), pulsar.schema.BytesSchema()
    assert (text.encode("ü"), text.decode("ü".encode()), str(text)) == ("ü".encode(), "ü", "StringSchema")
    assert (raw.encode(b"x"), raw.decode(b"x"), str(raw)) == (b"x", b"x", "BytesSchema")
    for schema, wrong in ((text, b"x"), (raw, "x")):
        with pytest.raises(TypeError):
            schema.encode(wrong)


@BOTH
def test_schemas_of_other_packages_say_what_they_need(pulsar: Any) -> None:
    program = (
        "import importlib, sys; sys.modules['fastavro'] = None\n"
        f"importlib.import_module('{pulsar.__name__}').schema.AvroSchema(None, {{'type': 'record'}})"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert re.search("pip3? install .*avro", ended.stderr.splitlines()[-1])
    with pytest.raises(Exception, match="protobuf"):
        pulsar.schema.ProtobufNativeSchema(int)


# ---------------------------------------------------------------------------- refusals


def test_what_is_refused_is_an_option_or_a_verb() -> None:
    options = {*_options.CLIENT, *_options.PRODUCER, *_options.CONSUMER, *_options.READER}
    verbs = {name for name in _refusals.REFUSALS if name not in options}
    assert verbs == {"service_url", "MessageBatch.parse_from"}


REFUSED: dict[str, list[tuple[str, Any]]] = {
    "Client": [
        ("authentication", ours.AuthenticationAthenz("{}")),
        ("tls_allow_insecure_connection", True),
        ("service_url", ours.ServiceInfoProvider()),
    ],
    "create_producer": [
        ("encryption_key", "k"),
        ("crypto_key_reader", ours.CryptoKeyReader("a", "b")),
    ],
    "subscribe": [
        ("crypto_key_reader", ours.CryptoKeyReader("a", "b")),
        ("replicate_subscription_state_enabled", True),
        ("crypto_failure_action", ours.ConsumerCryptoFailureAction.CONSUME),
    ],
    "create_reader": [("crypto_key_reader", ours.CryptoKeyReader("a", "b"))],
}


@pytest.mark.parametrize(
    ("verb", "name", "value"),
    [(verb, name, value) for verb, pairs in REFUSED.items() for name, value in pairs],
)
def test_what_the_engine_cannot_do_is_refused_by_name(verb: str, name: str, value: Any) -> None:
    with pytest.raises(ours.OperationNotSupported, match=name):
        if verb == "Client":
            ours.Client(**{"service_url": "pulsar://localhost:6650", name: value})
            return
        needed = {
            "create_producer": {"topic": "t"},
            "subscribe": {"topic": "t", "subscription_name": "s"},
            "create_reader": {"topic": "t", "start_message_id": ours.MessageId.earliest},
            "create_table_view": {"topic": "t"},
        }[verb]
        getattr(ours.Client("pulsar://localhost:6650"), verb)(**{**needed, name: value})


def test_every_option_is_in_a_table() -> None:
    for verb, table, others in (
        ("__init__", _options.CLIENT, {"self", "service_url"}),
        ("create_producer", _options.PRODUCER, {"self", "topic"}),
        ("subscribe", _options.CONSUMER, {"self", "topic", "subscription_name"}),
        ("create_reader", _options.READER, {"self", "topic"}),
    ):
        assert set(inspect.signature(getattr(official.Client, verb)).parameters) == {*table, *others}
        for name, row in table.items():
            assert row.to or row.note, name


def test_every_option_sets_one_of_the_engine() -> None:
    for scope, tables in {
        "client": [_options.CLIENT],
        "producer": [_options.PRODUCER],
        "consumer": [_options.CONSUMER, _options.READER],
    }.items():
        for table in tables:
            assert {row.to for row in table.values() if row.to} <= set(protocols.table(f"pulsar.{scope}"))


def test_options_of_the_engine_have_the_meaning_of_there() -> None:
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(ours.Client.create_producer).parameters.items()
    }
    values = _options.producer({**defaults, "topic": "t"}, 0)
    assert (values["batching"], values["hashing"], values["batching_delay"]) == (False, "boost", 0.01)
    assert (values["send_timeout"], values["max_pending"], values["compression"]) == (30.0, 1000, "none")
    assert _options.producer({**defaults, "topic": "t"}, 100)["max_pending"] == 500
    assert _options.producer({**defaults, "max_pending_messages": 0}, 0)["max_pending"] == _options.UNLIMITED
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(ours.Client.subscribe).parameters.items()
    }
    values = _options.consumer(defaults, 0)
    assert (values["type"], values["position"], values["receiver_queue"]) == ("exclusive", "latest", 1000)
    assert (values["nack_delay"], values["batch_index_ack"]) == (60.0, False)
    assert _options.consumer(defaults, 100)["receiver_queue"] == 500


def test_limits_on_chunked_messages_are_passed_on() -> None:
    given = {
        name: parameter.default
        for name, parameter in inspect.signature(ours.Client.subscribe).parameters.items()
    }
    names = ("max_pending_chunked_messages", "ack_incomplete_chunks")
    values = _options.consumer(given, 0)
    assert [values[name] for name in names] == [10, False]
    changed = {"max_pending_chunked_message": 3, "auto_ack_oldest_chunked_message_on_queue_full": True}
    values = _options.consumer({**given, **changed}, 0)
    assert [values[name] for name in names] == [3, True]


def test_a_bad_value_names_the_option_of_there() -> None:
    client = ours.Client("pulsar://localhost:6650")
    given = {"topic": "t", "batching_max_messages": -5, "batching_enabled": False}
    with pytest.raises(ValueError, match="Argument batching_max_messages: expected a whole number"):
        _options.resolve("producer", _options.PRODUCER, given)
    client.close()


def test_a_topic_is_subscribed_to_once() -> None:
    names = ["a", "persistent://public/default/a", "public/default/a", "x/y/a"]
    assert len(_options.topics(names)) == 2


def test_threads_of_the_engine_have_limits() -> None:
    for given, threads in ((0, 1), (3, 3), (1000, 64)):
        assert _options.client({"io_threads": given}, secure=False)["threads"] == threads


def test_the_environment_does_not_change_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_COMPRESSION", "zstd")
    assert _options.resolve("producer", _options.PRODUCER, {})["compression"] == "none"


# ---------------------------------------------------------------------------- hints of the native
# interface


def old_names() -> list[Any]:
    """Every keyword of the official module that the native interface does not have."""
    found: list[Any] = []
    for scope, verbs in {
        "client": ["__init__"],
        "producer": ["create_producer"],
        "consumer": ["subscribe", "create_reader"],
    }.items():
        names = [
            name for verb in verbs for name in inspect.signature(getattr(official.Client, verb)).parameters
        ]
        table = protocols.table(f"pulsar.{scope}")
        found += [(scope, name) for name in dict.fromkeys(names) if name not in {"self", "topic", *table}]
    return found


@pytest.mark.parametrize(("scope", "name"), old_names())
def test_an_old_name_gets_the_new_one(scope: str, name: str) -> None:
    with pytest.raises(
        forebay.errors.InvalidArgument, match=f"has no {scope} option '{name}': use "
    ) as caught:
        protocols.resolve(f"pulsar.{scope}", {name: 1})
    assert str(caught.value).endswith(RENAMED[scope][name])


def test_the_new_names_are_those_that_the_drop_in_sets() -> None:
    for scope, tables in {
        "client": [_options.CLIENT],
        "producer": [_options.PRODUCER],
        "consumer": [_options.CONSUMER, _options.READER],
    }.items():
        for name, row in (pair for table in tables for pair in table.items()):
            if row.to and name in RENAMED[scope]:
                assert f"{row.to}=" in RENAMED[scope][name], name


def test_the_blocking_interface_hints_as_well() -> None:
    with forebay.blocking.connect("embedded:") as client:
        with pytest.raises(forebay.errors.InvalidArgument, match="use type="):
            client.consumer("t", "s", consumer_type="shared")


def test_the_native_module_has_a_stand_in() -> None:
    for name in ours._pulsar.__all__:
        assert hasattr(_pulsar, name)
    assert ours._pulsar.Result is ours.Result and ours._pulsar.MessageId is ours.MessageId
    assert ours._pulsar.Timeout is ours.Timeout


CONFIGURATIONS = (
    "ClientConfiguration",
    "ConsumerConfiguration",
    "ProducerConfiguration",
    "ReaderConfiguration",
)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_configurations_of_the_native_module_are_made_and_read(name: str) -> None:
    theirs, mine = (getattr(module, name)() for module in (_pulsar, ours._pulsar))
    settings = public(theirs)
    assert public(mine) == settings
    for setting in settings:
        try:
            default: Any = getattr(theirs, setting)()
        except TypeError:
            with pytest.raises(TypeError):
                getattr(mine, setting)()
            continue
        if isinstance(default, bool | int | str) or hasattr(type(default), "__members__"):
            assert repr(getattr(mine, setting)()) == repr(default), setting
            getattr(theirs, setting)(default)
        else:
            assert type(getattr(mine, setting)()).__name__ == type(default).__name__, setting
        value = object()
        assert getattr(mine, setting)(value) is mine
        assert getattr(mine, setting)() is value
    with pytest.raises(AttributeError, match="no attribute 'batching_enable'"):
        _ = mine.batching_enable
    if name in ("ConsumerConfiguration", "ProducerConfiguration"):
        assert mine.property("a", "1").property("b", "2") is mine


def test_the_native_client_is_refused_with_the_one_to_use() -> None:
    configuration = ours._pulsar.ClientConfiguration().operation_timeout_seconds(3)
    with pytest.raises(ours.OperationNotSupported, match=r"use pulsar\.Client, whose verbs take keywords"):
        ours._pulsar.Client("pulsar://127.0.0.1:1", configuration)


@pytest.mark.parametrize("pulsar", [ours, official])
def test_a_subscription_needs_a_name(pulsar: Any) -> None:
    client = pulsar.Client("pulsar://127.0.0.1:1", operation_timeout_seconds=1)
    with pytest.raises(
        ValueError, match=r"^Argument subscription_name is expected to be of type 'str' and not 'NoneType'$"
    ):
        client.subscribe("t", None)


def test_ids_take_attributes() -> None:
    for pulsar in (ours, official):
        message_id: Any = pulsar.MessageId(-1, 1, 2, 3)
        message_id.job = "a job"
        assert message_id.job == "a job"
        assert weakref.ref(message_id)() is message_id


class Refusing(http.server.BaseHTTPRequestHandler):
    """Answers each request with the status of its server."""

    def do_GET(self) -> None:
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def refusing() -> Iterator[Any]:
    """A web service that refuses every request."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
@pytest.mark.parametrize("pulsar", [ours, official])
def test_a_status_of_an_http_lookup_is_a_connect_error(pulsar: Any, refusing: Any, status: int) -> None:
    refusing.status = status
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(f"http://127.0.0.1:{refusing.server_port}", logger=quiet)
    for verb in (
        lambda: client.create_producer("t"),
        lambda: client.subscribe("t", "s"),
        lambda: client.get_topic_partitions("t"),
    ):
        with pytest.raises(pulsar.ConnectError, match=r"^Pulsar error: ConnectError"):
            verb()
    client.close()


@pytest.mark.parametrize("status", [401, 503])
async def test_a_status_of_an_http_lookup_in_asyncio(refusing: Any, status: int) -> None:
    refusing.status = status
    client = aio.Client(f"http://127.0.0.1:{refusing.server_port}")
    with pytest.raises(aio.PulsarException) as caught:
        await client.create_producer("t")
    assert caught.value.error() == ours.Result.ConnectError
    await client.close()


@pytest.mark.parametrize("pulsar", [ours, official])
def test_an_id_without_its_topic_is_not_supported_by_a_consumer_of_several(
    pulsar: Any, embedded: EmbeddedPulsar
) -> None:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(embedded.url, logger=quiet)
    consumer = client.subscribe([embedded.topic(), embedded.topic()], "s")
    bare = pulsar.MessageId(-1, 1, 2, -1)
    for verb in (consumer.acknowledge, consumer.acknowledge_cumulative, consumer.seek):
        with pytest.raises(pulsar.OperationNotSupported):
            verb(bare)
    client.close()


async def test_an_id_without_its_topic_in_asyncio(embedded: EmbeddedPulsar) -> None:
    client = aio.Client(embedded.url)
    consumer = await client.subscribe([embedded.topic(), embedded.topic()], "s")
    bare = ours.MessageId(-1, 1, 2, -1)
    for verb in (
        consumer.acknowledge,
        consumer.acknowledge_cumulative,
        consumer.negative_acknowledge,
        consumer.seek,
    ):
        with pytest.raises(aio.PulsarException) as caught:
            await verb(bare)
        assert caught.value.error() == ours.Result.OperationNotSupported
    await client.close()
