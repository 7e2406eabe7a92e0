"""Options: one table; keyword over URL over environment over default; errors that name the mistake."""

import datetime
import functools
import importlib
import inspect
import pathlib
import pydoc
import re
import typing

import pytest

from forebay import broker, errors, pulsar
from forebay._core import broker_config, options, protocols


def test_each_option_has_a_default_that_parses():
    for scope in protocols.table_names():
        for name, option in protocols.table(scope).items():
            assert option.doc, (scope, name)
            if option.default is not None:
                assert option.parse(option.default) == option.default, (scope, name)


def test_help_shows_the_texts_of_the_options():
    for row in protocols.PROTOCOLS.values():
        for scope, reference in row.keywords.items():
            module, _, name = reference.partition(":")
            shown = pydoc.render_doc(getattr(importlib.import_module(module), name), renderer=pydoc.plaintext)
            assert "typing.Annotated" not in shown
            for option, value in row.tables[scope].items():
                assert f"{option}: {value.doc}" in shown
    shown = pydoc.render_doc(broker.BrokerOptions, renderer=pydoc.plaintext)
    assert "http_port: " in shown
    assert "Annotated" not in shown
    # Secrets have no default that could be shown.
    assert "password: Password for basic authentication.\n" in pydoc.render_doc(
        pulsar.PulsarClientOptions, renderer=pydoc.plaintext
    )


def test_each_word_of_an_option_stands_for_itself():
    found = 0
    for protocol in ("pulsar", "mqtt", "tubemq"):
        module = importlib.import_module(f"forebay.{protocol}._options")
        for keywords in filter(typing.is_typeddict, vars(module).values()):
            for name, hint in keywords.__annotations__.items():
                for literal in (hint.__origin__, *typing.get_args(hint.__origin__)):
                    if typing.get_origin(literal) is typing.Literal:
                        for word in filter(lambda word: isinstance(word, str), typing.get_args(literal)):
                            parse = hint.__metadata__[0].parse
                            assert parse(word) == parse(word.swapcase().replace("-", "_")) == word, name
                            found += 1
    assert found > 30


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (2, 2.0),
        (0.25, 0.25),
        ("250ms", 0.25),
        ("2m", 120.0),
        ("1.5", 1.5),
        (datetime.timedelta(hours=1), 3600.0),
    ],
)
def test_durations_are_seconds(given, seconds):
    values = protocols.resolve("pulsar.client", {"operation_timeout": given})
    assert values["operation_timeout"] == seconds


@pytest.mark.parametrize(
    ("given", "size"),
    [(1, 1), ("64MiB", 64 << 20), ("1 kB", 1000), ("2k", 2000), ("1GiB", 1 << 30), ("5 b", 5)],
)
def test_sizes_are_bytes(given, size):
    assert protocols.resolve("pulsar.client", {"memory_limit": given})["memory_limit"] == size


@pytest.mark.parametrize(
    ("scope", "name", "value"),
    [
        ("pulsar.client", "keep_alive", -1),
        ("pulsar.client", "keep_alive", "soon"),
        ("pulsar.client", "keep_alive", True),
        ("pulsar.client", "memory_limit", "many"),
        ("pulsar.client", "memory_limit", 1.5),
        ("pulsar.client", "tls_ca", "/does/not/exist"),
        ("pulsar.client", "tls_ca", b"not PEM"),
        ("pulsar.client", "token", "env:FOREBAY_NO_SUCH_VARIABLE"),
        ("pulsar.client", "token", "file:/does/not/exist"),
        ("pulsar.client", "token", 7),
        ("pulsar.producer", "batching", "perhaps"),
        ("pulsar.producer", "max_pending", 0),
        ("pulsar.producer", "max_pending", "1e3"),
        ("pulsar.producer", "compression", "brotli"),
        ("pulsar.producer", "properties", "a"),
        ("pulsar.producer", "properties", {"a": 1}),
        ("pulsar.producer", "name", ""),
        ("pulsar.consumer", "type", "exclusiv"),
        ("broker", "port", 65536),
        ("broker", "durability", "disk"),
        ("broker", "mqtt_port", -1),
        ("broker", "mqtt_max_packet_size", 1 << 30),
    ],
)
def test_a_bad_value_is_refused_by_name(scope, name, value):
    with pytest.raises(errors.InvalidArgument, match=name) as caught:
        protocols.resolve(scope, {name: value})
    assert isinstance(caught.value, ValueError)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("scope", "name", "least"),
    [
        ("pulsar.client", "keep_alive", 1),
        ("pulsar.client", "max_backoff", 0.1),
        ("mqtt.client", "max_backoff", 0.1),
        ("tubemq.client", "max_backoff", 0.1),
        ("tubemq.client", "heartbeat_interval", 0.1),
        ("broker", "keep_alive", 1),
    ],
)
def test_an_interval_of_attempts_is_never_zero(scope, name, least):
    assert protocols.resolve(scope, {name: least})[name] == least
    assert f"At least {least:g} s." in protocols.table(scope)[name].doc
    for wrong in (0, "0s", least * 0.99, datetime.timedelta(0)):
        with pytest.raises(errors.InvalidArgument, match=f"'{name}': expected at least {least:g} s, not 0"):
            protocols.resolve(scope, {name: wrong})


def test_an_unknown_name_gets_the_nearest_one():
    with pytest.raises(errors.InvalidArgument, match="did you mean 'compression'"):
        protocols.resolve("pulsar.producer", {"compresion": "zstd"})
    with pytest.raises(errors.InvalidArgument, match="did you mean 'send_timeout'"):
        protocols.for_connection("pulsar://h?send_timeot=3", {})
    with pytest.raises(errors.InvalidArgument, match="did you mean 'zstd'"):
        protocols.resolve("pulsar.producer", {"compression": "ztsd"})


@pytest.mark.parametrize("scope", ["pulsar.client", "mqtt.client", "tubemq.client"])
def test_an_unknown_name_that_is_near_to_none_gets_no_hint(scope):
    for name in ("porter", "transports", "reconnecting", "host_of_broker"):
        with pytest.raises(errors.InvalidArgument) as caught:
            protocols.resolve(scope, {name: 1})
        assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("hostname", "mqtt://host:1883"),
        ("port", "mqtt://host:1883"),
        ("ca_certs", "tls_ca="),
        ("keepalive", "keep_alive="),
        ("clean_session", "clean_start="),
        ("transport", "ws://"),
        ("identifier", "client_id="),
    ],
)
def test_a_name_of_another_mqtt_client_gets_the_one_of_here(name, instead):
    with pytest.raises(errors.InvalidArgument, match=f"has no client option '{name}': use .*{instead}"):
        protocols.for_connection("mqtt://h", {name: 1})


@pytest.mark.parametrize(
    ("scope", "name", "verb"),
    [
        ("pulsar.client", "compression", "producer()"),
        ("pulsar.consumer", "token", "connect()"),
        ("mqtt.client", "auto_ack", "consumer()"),
    ],
)
def test_an_option_of_another_verb_is_named_with_it(scope, name, verb):
    with pytest.raises(errors.InvalidArgument, match=re.escape(f"'{name}': use {name}= of {verb}")):
        protocols.resolve(scope, {name: 1})


@pytest.mark.parametrize(
    ("scope", "name", "instead"),
    [
        ("pulsar.client", "connect_timeout_ms", "use connect_timeout=, in seconds"),
        ("pulsar.client", "connectTimeoutMs", "use connect_timeout=, in seconds"),
        ("pulsar.client", "keep_alive_seconds", "use keep_alive=, in seconds"),
        ("pulsar.client", "operationTimeoutSeconds", "use operation_timeout=, in seconds"),
        ("pulsar.client", "send_timeout_ms", re.escape("use send_timeout= of producer(), in seconds")),
        ("pulsar.producer", "batching_delay_millis", "use batching_delay=, in seconds"),
        ("pulsar.producer", "sending_timeout_ms", "did you mean 'send_timeout', in seconds"),
        ("pulsar.consumer", "ack_timeout_ms", "use ack_timeout=, in seconds"),
        ("mqtt.client", "keepalive_sec", "use keep_alive=, in seconds"),
        ("mqtt.client", "session_expiry_interval_seconds", "use session_expiry=, in seconds"),
        ("mqtt.client", "connection_timeout_ms", "did you mean 'connect_timeout', in seconds"),
        ("tubemq.client", "heartbeat_interval_ms", "use heartbeat_interval=, in seconds"),
        ("tubemq.consumer", "nack_delay_in_ms", "use nack_delay=, in seconds"),
        ("broker", "retention_minutes", "use retention=, in seconds"),
    ],
)
def test_a_duration_with_a_unit_in_its_name_is_one_in_seconds(scope, name, instead):
    with pytest.raises(errors.InvalidArgument, match=f"{name}'(:|;) {instead}"):
        protocols.resolve(scope, {name: 1})


@pytest.mark.parametrize("name", ["memory_limit_ms", "token_seconds", "batch_max_bytes_ms"])
def test_a_unit_of_time_makes_no_duration_of_another_option(name):
    with pytest.raises(errors.InvalidArgument) as caught:
        protocols.for_connection("pulsar://h", {name: 1})
    assert "in seconds" not in str(caught.value)


def test_a_unit_in_a_name_is_told_wherever_options_are_given(tmp_path):
    with pytest.raises(
        errors.InvalidArgument, match="'connect_timeout_ms': use connect_timeout=, in seconds"
    ):
        protocols.for_connection("mqtt://h?connect_timeout_ms=1000", {})
    scopes = ("mqtt.client", "mqtt.producer")
    with pytest.raises(errors.InvalidArgument, match="'connectTimeoutMs': use connect_timeout=, in seconds"):
        protocols.by_table({"connectTimeoutMs": "1000"}, scopes, "the Spark sink")
    with pytest.raises(errors.InvalidArgument, match="'keepalive': use keep_alive=, in seconds"):
        protocols.by_table({"keepalive": "60"}, scopes, "the Spark sink")
    file = tmp_path / "broker.toml"
    file.write_text("retention_ms = 100\n", encoding="utf-8")
    with pytest.raises(errors.InvalidArgument, match=r"line 1: .*: use retention=, in seconds"):
        broker_config.read(file, protocols.table("broker"))


@pytest.mark.parametrize(
    ("scope", "name", "instead"),
    [
        ("client", "masterAddr", "tubemq://master:8715"),
        ("client", "master_addr", "tubemq://master:8715"),
        ("client", "rpcTimeoutMs", "request_timeout=, in seconds"),
        ("client", "rpc_timeout", "request_timeout=, in seconds"),
        ("consumer", "group", "subscription="),
        ("consumer", "consumer_group", "subscription="),
        ("consumer", "consumePosition", "position="),
    ],
)
def test_a_name_of_another_tubemq_client_gets_the_one_of_here(scope, name, instead):
    with pytest.raises(errors.InvalidArgument, match=f"has no {scope} option '{name}': use .*{instead}"):
        protocols.resolve(f"tubemq.{scope}", {name: 1})


def test_what_the_tables_of_other_clients_name_exists():
    for key, row in protocols.PROTOCOLS.items():
        for scope, names in row.other_names().items():
            table = protocols.table(f"{key}.{scope}")
            assert not set(names) & set(table)
    for row in (protocols.PROTOCOLS["mqtt"], protocols.PROTOCOLS["tubemq"]):
        known = {name for table in row.tables.values() for name in table} | {"subscription"}
        for names in row.other_names().values():
            for text in names.values():
                assert set(re.findall(r"(\w+)=(?=[, ]|$)", text)) <= known


def test_words_take_hyphens_and_capitals():
    assert protocols.resolve("pulsar.consumer", {"type": "Key-Shared"})["type"] == "key_shared"


def test_none_means_not_given():
    assert protocols.resolve("pulsar.producer", {"compression": None})["compression"] == "none"


def test_keyword_over_query_over_environment(monkeypatch):
    monkeypatch.setenv("FOREBAY_KEEP_ALIVE", "1s")
    monkeypatch.setenv("FOREBAY_OPERATION_TIMEOUT", "2s")
    monkeypatch.setenv("FOREBAY_CONNECT_TIMEOUT", "3s")
    monkeypatch.setenv("FOREBAY_COMPRESSION", "lz4")
    monkeypatch.setenv("FOREBAY_CONSUMER_NAME", "till")
    url = "pulsar://h:1,i:2?keep_alive=4s&operation_timeout=5s&compression=zstd&producer.name=p"
    base, values, defaults = protocols.for_connection(url, {"keep_alive": 6})
    assert base == "pulsar://h:1,i:2"
    assert (values["keep_alive"], values["operation_timeout"], values["connect_timeout"]) == (6.0, 5.0, 3.0)
    assert defaults.producer == {"compression": "zstd", "name": "p"}
    assert defaults.consumer == {"name": "till"}
    assert defaults.resolve("producer", {"compression": "none"})["compression"] == "none"


@pytest.mark.parametrize("order", [1, -1])
def test_a_variable_with_its_scope_wins_over_the_one_without(monkeypatch, order):
    for name, value in [("FOREBAY_COMPRESSION", "lz4"), ("FOREBAY_PRODUCER_COMPRESSION", "zstd")][::order]:
        monkeypatch.setenv(name, value)
    assert options.environment(protocols.PROTOCOLS["pulsar"].tables)["producer"] == {"compression": "zstd"}


def test_the_url_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("FOREBAY_URL", "pulsar://from-env:1")
    assert protocols.for_connection(None, {})[0] == "pulsar://from-env:1"
    monkeypatch.delenv("FOREBAY_URL")
    with pytest.raises(errors.InvalidArgument, match="FOREBAY_URL"):
        protocols.for_connection(None, {})


def test_other_variables_of_the_environment_do_not_matter(monkeypatch):
    monkeypatch.setenv("FOREBAY_SOMETHING_ELSE", "1")
    protocols.for_connection("embedded:", {})


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("keep_alive=4s&keep_alive=5s", "the URL has the option 'keep_alive' twice"),
        ("keep_alive=4s&operation_timeout=1&keep_alive=4s", "the URL has the option 'keep_alive' twice"),
        ("token=secret-1&token=secret-2", "the URL has the option 'token' twice"),
        ("compression=lz4&producer.compression=zstd", r"'producer\.compression' is given twice"),
    ],
)
def test_an_option_that_a_url_has_twice_is_refused(query, text):
    with pytest.raises(errors.InvalidArgument, match=text) as caught:
        protocols.for_connection(f"pulsar://h?{query}", {})
    assert "secret" not in str(caught.value)


def test_an_ambiguous_name_needs_its_prefix():
    with pytest.raises(errors.InvalidArgument, match=r"producer\.name"):
        options.split({"name": "x"}, protocols.PROTOCOLS["pulsar"].tables)
    assert options.split({"producer.name": "x"}, protocols.PROTOCOLS["pulsar"].tables)["producer"] == {
        "name": "x"
    }


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("pulsr://h", errors.InvalidArgument),
        ("localhost:6650", errors.InvalidArgument),
        ("pulsar://user:secret@h", errors.InvalidArgument),
    ],
)
def test_a_wrong_scheme_is_refused(url, kind):
    with pytest.raises(kind) as caught:
        protocols.split_url(url)
    assert "secret" not in str(caught.value)


def test_a_secret_comes_from_env_file_or_callable(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "abc")
    assert protocols.resolve("pulsar.client", {"token": "env:MY_TOKEN"})["token"] == "abc"
    file = tmp_path / "token"
    file.write_text("first\n")
    token = protocols.resolve("pulsar.client", {"token": f"file:{file}"})["token"]
    assert token() == "first"
    file.write_text("second\n")
    assert token() == "second"
    supplier = lambda: "called"  # noqa: E731
    assert protocols.resolve("pulsar.client", {"token": supplier})["token"] is supplier


def test_a_secret_never_gets_into_an_error():
    for option in ("token", "tls_key"):
        with pytest.raises(errors.InvalidArgument) as caught:
            protocols.resolve("pulsar.client", {option: 123456789})
        assert "123456789" not in str(caught.value)


PATHS = ["/etc/forebay/token.key", "/token", "./token", "../token", "..\\token", "~/token", "C:\\token"]
PATHS += ["c:/token", "\\\\server\\token", "token.key", "key.PEM", "token.txt", "keys.json"]


@pytest.mark.parametrize("text", PATHS)
@pytest.mark.parametrize("option", ["token", "token_key"])
def test_a_path_is_neither_a_token_nor_a_key(option: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = broker.OPTIONS if option == "token_key" else protocols.table("pulsar.client")
    monkeypatch.setenv("HOLDS_IT", text)
    for given in (text, "env:HOLDS_IT"):
        with pytest.raises(errors.InvalidArgument, match=rf"{option}.*write file:PATH") as caught:
            options.resolve(table, {option: given})
        assert text not in str(caught.value)


def test_the_name_of_a_file_that_exists_is_neither_a_token_nor_a_key(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tables = {"token": protocols.table("pulsar.client"), "token_key": broker.OPTIONS}
    for option, table in tables.items():
        options.resolve(table, {option: "signing"})
    (tmp_path / "signing").write_bytes(b"k" * 32)
    for option, table in tables.items():
        with pytest.raises(errors.InvalidArgument, match="write file:PATH"):
            options.resolve(table, {option: "signing"})
    monkeypatch.setenv("HOLDS_IT", "file:signing")
    with pytest.raises(errors.InvalidArgument, match="write file:PATH"):
        options.resolve(broker.OPTIONS, {"token_key": "env:HOLDS_IT"})


def test_secrets_with_slashes_in_them_are_no_paths() -> None:
    for text in (
        "a/b+c/d==",
        "eyJh.eyJz.s-_g",
        '{"keys": []}',
        "-----BEGIN PUBLIC KEY-----\nMF/k=\n",
        "k" * 5000,
    ):
        assert options.resolve(broker.OPTIONS, {"token_key": text})["token_key"] == text.encode()
        if text.isprintable() and " " not in text:
            assert protocols.resolve("pulsar.client", {"token": text})["token"] == text
    # Bytes are the key itself.
    assert (
        options.resolve(broker.OPTIONS, {"token_key": b"/key of sixteen"})["token_key"] == b"/key of sixteen"
    )


@pytest.mark.parametrize("scope", ["pulsar.client", "mqtt.client", "tubemq.client"])
def test_only_the_path_of_a_file_that_exists_is_no_password(scope: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "password"
    for text in (str(path), "~x", "/x9", "word.txt"):
        assert protocols.resolve(scope, {"password": text})["password"] == text
    path.write_text("hush")
    with pytest.raises(errors.InvalidArgument, match="write file:PATH"):
        protocols.resolve(scope, {"password": str(path)})
    assert protocols.resolve(scope, {"password": f"file:{path}"})["password"]() == "hush"


def test_bytes_that_are_no_text_are_a_password_of_mqtt_only() -> None:
    assert protocols.resolve("mqtt.client", {"password": b"\xff"})["password"] == b"\xff"
    for scope in ("pulsar.client", "tubemq.client"):
        with pytest.raises(errors.InvalidArgument, match="UTF-8") as refused:
            protocols.resolve(scope, {"password": b"\xffsecret"})
        assert "secret'" not in str(refused.value)
        assert refused.value.__cause__ is None


def test_pem_is_bytes_text_or_a_file(tmp_path):
    pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
    file = tmp_path / "ca.pem"
    file.write_text(pem)
    for given in (pem, pem.encode(), str(file), file, f"file:{file}"):
        assert protocols.resolve("pulsar.client", {"tls_ca": given})["tls_ca"] == pem.encode()


def test_what_is_for_the_face_is_not_handed_to_the_engine():
    values = protocols.resolve("pulsar.consumer", {"ack_receipt": True})
    assert values["ack_receipt"] is True
    assert "ack_receipt" not in options.to_engine(protocols.table("pulsar.consumer"), values)


def test_the_documented_keywords_are_the_table():
    for kind in (
        pulsar.PulsarClientOptions,
        pulsar.PulsarProducerOptions,
        pulsar.PulsarConsumerOptions,
        broker.BrokerOptions,
    ):
        assert inspect.getdoc(kind)
        assert all(isinstance(hint.__metadata__[0], options.Option) for hint in kind.__annotations__.values())


@pytest.mark.parametrize(
    ("scope", "name", "says"),
    [
        ("tubemq.producer", "compression", "TubeMQ has no producer option"),
        ("tubemq.producer", "qos", "TubeMQ has no producer option"),
        ("tubemq.consumer", "type", "TubeMQ has no consumer option"),
        ("pulsar.consumer", "filters", "Pulsar has no consumer option"),
        ("mqtt.consumer", "balance", "MQTT has no consumer option"),
        ("mqtt.client", "request_timeout", "MQTT has no client option"),
    ],
)
def test_an_option_of_another_protocol_is_refused_by_name(scope: str, name: str, says: str) -> None:
    with pytest.raises(errors.Unsupported, match=says):
        protocols.resolve(scope, {name: "x"})


def test_a_partition_of_tubemq_has_one_position() -> None:
    from forebay.tubemq import Position

    two = [Position(1, 0, 28), Position(1, 1, 28), Position(1, 0, 56)]
    with pytest.raises(errors.InvalidArgument, match="partition 1:0 has two positions"):
        protocols.resolve("tubemq.consumer", {"position": two})


def test_positions_and_filters_of_tubemq() -> None:
    from forebay.tubemq import Position

    at = Position(1, 10_002, 560)
    resolve = functools.partial(protocols.resolve, "tubemq.consumer")
    assert resolve({"position": "earliest"})["position"] == "first"
    assert resolve({"position": "MAX"})["position"] == "max"
    assert resolve({"position": at})["position"] == [at]
    assert resolve({"position": "1:10002:560"})["position"] == [at]
    assert resolve({"position": [at, Position(1, 0, 0)]})["position"] == [at, Position(1, 0, 0)]
    assert resolve({"filters": "a,b"})["filters"] == {"a", "b"}
    assert resolve({"filters": {"demo": ["a"]}})["filters"] == {"demo": {"a"}}
    for wrong in ("first day", "1:2", 7, [], [1], object()):
        with pytest.raises(errors.InvalidArgument, match="position"):
            resolve({"position": wrong})
    for wrong in ([""], ["a=b"], ["x" * 257], [7], [f"t{i}" for i in range(501)]):
        with pytest.raises(errors.InvalidArgument, match="filters"):
            resolve({"filters": wrong})
