"""The command line without a broker: arguments, formats, exit status, the check of a store."""

import argparse
import contextlib
import importlib
import itertools
import json
import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
import types

import pytest

from forebay import blocking, cli, errors
from forebay._core import protocols
from forebay.commands._shared.options import pairs
from forebay.commands._shared.subscribe import Limits
from forebay.commands.pulsar.format import compile_format, to_json
from forebay.pulsar._positions import full_name

from support.commands import COMMANDS, refused, start
from support.waiting import PATIENCE, eventually, line_with


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "forebay", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )


def message(**fields):
    identity = types.SimpleNamespace(partition=2)
    values = {
        "data": b"a\xff",
        "key": "k",
        "topic": "persistent://public/default/t",
        "id": identity,
        "publish_time": 12,
        "event_time": None,
        "properties": {"a": "1"},
        "redelivery_count": 3,
    }
    return types.SimpleNamespace(**{**values, **fields})


def test_wrong_usage_ends_with_2_and_errors_with_1():
    assert run().returncode == 2
    refused("nonsense")
    refused("pub", "-m", "x")
    assert "did you mean 'pulsar'" in refused("pub", "-t", "t", "-m", "x", "-u", "pulsr://h")


def test_an_unknown_option_is_an_error_that_names_the_nearest():
    assert "receiver_queue" in refused("sub", "-t", "t", "-X", "receiver_qeue=3")


def test_version():
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("forebay ")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_examples_and_the_exit_status(command, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.parser().parse_args([command, "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert f"\nexamples:\n  forebay {command} " in said
    assert "Exit status: 1 after an error" in said


def leaves(parser, *words):
    """The commands that have none of their own, with the words that call them."""
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not inner:
        yield words, parser
    for action in inner:
        # Aliases are the same parsers again.
        found = {id(command): (name, command) for name, command in reversed(action.choices.items())}
        for name, command in found.values():
            yield from leaves(command, *words, name)


def every_leaf():
    for protocol in protocols.PROTOCOLS:
        for words, parser in leaves(cli.parser(protocol)):
            if protocol == "pulsar" or words[0] in ("pub", "sub"):
                yield pytest.param(protocol, words, parser, id=" ".join([protocol, *words]))


def examples_of(parser):
    """The lines of the examples at the end of a command's help."""
    (block,) = [part for part in parser.epilog.split("\n\n") if part.startswith("examples:\n")]
    return [line.strip() for line in block.splitlines()[1:]]


def test_the_tree_of_commands_is_walked_to_its_ends():
    found = {" ".join(words) for words, _ in leaves(cli.parser())}
    assert {"backup", "check", "topic ls", "admin topic create", "admin cluster ls", "token show"} <= found
    assert not {"topic", "admin", "admin topic", "token", "admin topic delete"} & found


@pytest.mark.parametrize(("protocol", "words", "parser"), list(every_leaf()))
def test_every_command_has_examples_that_parse(protocol, words, parser, monkeypatch):
    monkeypatch.delenv("FOREBAY_URL", raising=False)
    lines = examples_of(parser)
    assert lines
    for line in lines:
        typed = shlex.split(line.rpartition("| ")[2])
        assert typed[: len(words) + 1] == ["forebay", *words]
        typed = typed[1 : next((at for at, word in enumerate(typed) if word in "<>"), None)]
        with_topics = typed[:1] in cli._WITH_TOPICS
        spoken = cli._protocol(list(typed)) if with_topics else protocol
        if with_topics:
            assert spoken == ("mqtt" if words == ("rr",) else protocol), line
        _, given, rest = cli._parse(typed, spoken)
        assert not rest
        if with_topics:
            assert protocols.PROTOCOLS[spoken].module("arguments").problem(given) is None


def test_arguments_follow_mosquitto_and_kcat():
    given = cli.parser().parse_args(["sub", "-t", "a", "-t", "b", "-C", "5", "-W", "2s", "-F", "%s", "-e"])
    assert (given.topic, given.count, given.timeout, given.format, given.exit) == (
        ["a", "b"],
        5,
        "2s",
        "%s",
        True,
    )
    given = cli.parser().parse_args(["pub", "-t", "a", "-m", "x", "-m", "y", "-k", "7", "-z", "zstd"])
    assert (given.message, given.key, given.compression) == (["x", "y"], "7", "zstd")
    with pytest.raises(SystemExit):
        cli.parser().parse_args(["pub", "-t", "a", "-m", "x", "-l"])


def test_a_format_prints_what_it_names():
    parts = compile_format(r"%t [%p] %k=%s %S %T %e %h %r %%\n")
    line = b"".join(part if isinstance(part, bytes) else part(message()) for part in parts)
    assert line == b"persistent://public/default/t [2] k=a\xff 2 12  a=1 3 %\n"


@pytest.mark.parametrize("text", ["%q", "%", "\\x", "abc\\"])
def test_an_unknown_format_is_refused(text):
    with pytest.raises(errors.InvalidArgument, match="unknown"):
        compile_format(text)


def test_json_keeps_payloads_that_are_no_text():
    assert to_json(message())["payload_base64"] == "Yf8="
    assert to_json(message(data=b"hi"))["payload"] == "hi"


def test_pairs_and_names():
    assert pairs(["a=1", "b=x=y"], "things") == {"a": "1", "b": "x=y"}
    with pytest.raises(errors.InvalidArgument, match="NAME=VALUE"):
        pairs(["a"], "things")
    assert full_name("t") == "persistent://public/default/t"
    assert full_name("a/b/t") == "persistent://a/b/t"
    assert full_name("non-persistent://a/b/t") == "non-persistent://a/b/t"


def test_check_lists_what_is_damaged_in_a_store(tmp_path, capsys):
    folder = str(tmp_path)
    assert cli.main(["check"]) == 2
    assert "--data" in capsys.readouterr().err
    assert cli.main(["check", "--data", folder]) == 1
    assert "no broker.db" in capsys.readouterr().err
    with blocking.connect(f"embedded:{folder}") as client, client.producer("orders") as producer:
        for number in range(5):
            producer.send(str(number).encode())
    assert cli.main(["check", "--data", folder]) == 0
    assert capsys.readouterr().out.startswith("5 messages")
    with contextlib.closing(sqlite3.connect(tmp_path / "broker.db")) as database, database:
        database.execute("UPDATE entry SET body = x'00' WHERE id % (1 << 30) = 3")
    assert cli.main(["check", "--data", folder, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["entries"] == 4
    assert (
        [line for line in found["damage"] if "public/default/orders: entry 3 " in line]
        == found["damage"]
        != []
    )


@pytest.fixture
def broker_process(tmp_path):
    words = [
        "-m",
        "forebay",
        "broker",
        "--port",
        "0",
        "--json",
        "--data",
        str(tmp_path),
        "--topic",
        "orders",
    ]
    process = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    yield process, json.loads(process.stdout.readline())["url"]
    process.kill()
    process.communicate()


def test_a_store_that_is_locked_is_waited_for(tmp_path, broker_process):
    process, url = broker_process
    with blocking.connect(url) as client, client.producer("orders", send_timeout=60) as producer:
        producer.send(b"one")
        store = sqlite3.connect(tmp_path / "broker.db", timeout=60, isolation_level=None)
        with contextlib.closing(store) as neighbour:
            neighbour.execute("BEGIN IMMEDIATE")
            sending = threading.Thread(target=producer.send, args=(b"two",))
            sending.start()
            # The broker waits for five seconds in SQLite before it first says so.
            assert line_with("locked", process.stderr)
            assert sending.is_alive()
            neighbour.execute("COMMIT")
        sending.join(60)
        producer.send(b"three")
    assert line_with("writes again", process.stderr)


def test_a_store_that_has_failed_ends_the_broker_with_3(tmp_path, broker_process):
    process, url = broker_process
    with blocking.connect(url) as client:
        with client.producer("orders", send_timeout=60) as producer:
            producer.send(b"one")
        with contextlib.closing(sqlite3.connect(tmp_path / "broker.db", timeout=60)) as neighbour, neighbour:
            # The number of the next message is taken.
            neighbour.execute("CREATE TEMP TABLE next AS SELECT * FROM entry")
            neighbour.execute("UPDATE next SET id = id + 1")
            neighbour.execute("INSERT INTO entry SELECT * FROM next")
        with client.producer("orders", send_timeout=3) as producer, pytest.raises(errors.Error):
            producer.send(b"two")
    assert process.wait(60) == 3
    assert "UNIQUE" in process.stderr.read()


def test_what_the_broker_command_needs_is_not_much():
    """`forebay broker` answers within 300 ms of its start, so nothing heavy may be imported."""
    code = "import sys, forebay.cli, forebay.broker, forebay._core.options; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"asyncio", "pyarrow", "pyspark", "pandas", "numpy", "rich", "inspect"} & set(loaded)


@pytest.mark.parametrize("protocol", list(protocols.PROTOCOLS))
def test_each_protocol_has_the_same_modules(protocol):
    package = protocols.PROTOCOLS[protocol].commands
    for name in ("pub", "sub", "bench", "doctor", "topic", "subscriptions", "peek", "replay"):
        assert callable(importlib.import_module(f"{package}.{name}").run)
    arguments = importlib.import_module(f"{package}.arguments")
    assert all(callable(getattr(arguments, name)) for name in ("broker", "pub", "sub", "problem"))


@pytest.fixture
def amqp(monkeypatch):
    """A protocol that the registry alone knows; the runs of its commands."""
    row = protocols.PROTOCOLS["tubemq"]._replace(key="amqp", title="AMQP", schemes=("amqp",), commands="amqp")
    monkeypatch.setitem(protocols.PROTOCOLS, "amqp", row)
    monkeypatch.setitem(protocols._BY_SCHEME, "amqp", row)
    runs = []

    def run(given):
        runs.append((given.command, given))
        return 7

    def places(command):
        command.add_argument("places", nargs="*")
        command.add_argument("--url")
        command.add_argument("-t", "--topic", action="append", default=[])
        command.add_argument("--exchange")

    arguments = types.SimpleNamespace(
        broker=lambda command: command.add_argument("--amqp-port"),
        pub=places,
        sub=places,
        PUB_EXAMPLES=(),
        SUB_EXAMPLES=(),
        problem=lambda given: None if given.exchange else "an exchange is needed",
    )
    monkeypatch.setitem(sys.modules, "amqp.arguments", arguments)
    for name in ("pub", "sub", "bench", "doctor", "topic"):
        monkeypatch.setitem(sys.modules, f"amqp.{name}", types.SimpleNamespace(run=run))
    return runs


def test_another_protocol_needs_its_row_in_the_registry_only(amqp, capsys):
    for words in (
        ["pub", "amqp://h", "t", "--exchange", "e"],
        ["sub", "-t", "t", "amqp://h", "--exchange", "e"],
        ["bench", "-u", "amqp://h"],
        ["doctor", "amqp://h"],
        ["topic", "ls", "-u", "amqp://h"],
    ):
        assert cli.main(words) == 7
        command, given = amqp.pop()
        assert command == words[0]
        assert "amqp://h" in (given.url, getattr(given, "address", None))
    with pytest.raises(SystemExit) as ended:
        cli.main(["pub", "-t", "t", "-u", "amqp://h"])
    assert ended.value.code == 2
    assert "an exchange is needed" in capsys.readouterr().err
    assert cli.parser().parse_args(["broker", "--amqp-port", "1"]).amqp_port == "1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["pub", "-h", "127.0.0.1", "-t", "t", "-m", "x", "-k", "soon"],
            ": --keepalive: expected a duration",
        ),
        (["sub", "mqtt://127.0.0.1", "-t", "t", "--cafile", "/no/ca"], ": --cafile: cannot read /no/ca"),
        (
            ["sub", "mqtt://127.0.0.1", "-t", "t", "-X", "keep_alive=soon"],
            ": client option 'keep_alive': exp",
        ),
        (["broker", "--max-store", "big"], ": --max-store: expected a size"),
        (["broker", "--port", "0", "--host", "0.0.0.0"], ": set --token-key. Or"),
        (["broker", "--port", "0", "-X", "retention=soon"], ": option 'retention': expected"),
        (["broker", "--port", "0", "--tls-cert", "/no/tls_key"], ": --tls-cert: cannot read /no/tls_key:"),
    ],
)
def test_a_refusal_names_the_flag_that_was_typed(words, said):
    assert said in refused(*words)


def test_a_url_after_the_first_flag_decides_what_the_flags_mean():
    for words in (
        ["-s", "g", "mqtt://127.0.0.1:1", "-t", "t", "-X", "receive_maximun=1"],
        ["-t", "t", "mqtt://127.0.0.1:1", "-X", "receive_maximun=1"],
    ):
        assert "receive_maximum" in refused("sub", *words)


def test_the_administration_of_this_machine_does_not_stand_for_that_of_another_broker(monkeypatch, capsys):
    monkeypatch.setenv("FOREBAY_URL", "pulsar://broker.example:6650")
    monkeypatch.delenv("FOREBAY_ADMIN_URL", raising=False)
    for words in (["admin", "topic", "ls"], ["top", "--once"]):
        assert cli.main(words) == 2
        assert "-u http://HOST:8080" in capsys.readouterr().err
    assert cli.main(["subscriptions"]) == 1
    assert "-u http://HOST:8080" in capsys.readouterr().err
    monkeypatch.setenv("FOREBAY_ADMIN_URL", "http://127.0.0.1:1")
    for words in (["admin", "topic", "ls"], ["top", "--once"], ["subscriptions"]):
        assert cli.main(words) == 1
        assert "cannot connect to 127.0.0.1 port 1" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["admin", "topic", "ls"], ["top"], ["subscriptions"], ["peek", "t"]])
def test_the_options_of_commands_are_listed(words, capsys):
    assert cli.main([*words, "-X", "help"]) == 0
    assert "tls_ca" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pub", "-t", "t", "-m", "x", "--key-column", "k"), "--key-column needs --frame"),
        (("pub", "-t", "t", "-l", "-r", "2"), "lines of standard input are published once each"),
        (("pub", "mqtt://h", "t", "-l", "--repeat", "2"), "lines of standard input are published once each"),
        (("pub", "-t", "t", "-l", "-K", ""), "-K is the text between key and message: it cannot be empty"),
        (("sub", "-t", "t", "--decode"), "--decode needs --parquet"),
        (("sub", "-t", "t", "--no-ack"), "--no-ack needs -s"),
        (("sub", "-t", "t", "-T", "shared"), "-T needs -s"),
        (
            ("sub", "--pattern", "t.*", "--json", "-v"),
            "--json prints whole messages: leave -F, -v and -N out",
        ),
        (("sub", "mqtt://h", "t", "--json", "-F", "%p"), "--json prints whole messages"),
        (("sub", "tubemq://h", "t", "-s", "g", "--json", "-N"), "--json prints whole messages"),
        (("rr", "mqtt://h", "-t", "t", "-m", "x", "--json", "-v"), "--json prints whole messages"),
    ],
)
def test_a_flag_without_an_effect_is_refused(words, said):
    assert said in refused(*words)


@pytest.mark.parametrize("url", ["pulsar://h", "mqtt://h", "tubemq://h"])
@pytest.mark.parametrize("number", ["0", "-1", "x"])
def test_a_number_of_messages_is_1_or_more(url, number):
    # As for mosquitto_sub and mosquitto_pub.
    group = ("-s", "g") if url == "tubemq://h" else ()
    said = f"expected a whole number of 1 or more, not {number!r}"
    assert said in refused("sub", url, "t", *group, "-C", number)
    assert said in refused("pub", url, "t", "-m", "x", "--repeat", number)
    assert "-W is longer than 0 seconds" in refused("sub", url, "t", *group, "-W", "0")


def test_a_url_or_a_property_that_is_given_twice_is_refused():
    said = "the URL is given twice: pulsar://one and pulsar://two"
    assert said in refused("pub", "pulsar://two", "t", "-m", "x", "-u", "pulsar://one")
    words = ("-D", "publish", "content-type", "a", "-D", "publish", "content-type", "b")
    assert "-D publish content-type is given twice" in refused("pub", "mqtt://h", "t", "-m", "x", *words)


def test_messages_without_end_do_not_prolong_the_time_of_a_subscription():
    limits = Limits(argparse.Namespace(count=None, timeout="10ms"))
    limits.start()
    taken = itertools.count()
    consumer = types.SimpleNamespace(receive=lambda wait: next(taken))
    # As of `sub -T FILTER`, which prints none of them.
    eventually(lambda: limits.receive(consumer) is None)
    assert limits.expired


@pytest.mark.parametrize("protocol", ["pulsar", "mqtt", "tubemq"])
@pytest.mark.parametrize("command", ["pub", "sub", "bench"])
def test_ctrl_c_ends_a_command_whose_broker_is_gone(protocol, command):
    ports = ("--port", "0", "--mqtt-port", "0", "--tubemq-port", "0")
    broker = start("broker", *ports, "--json")
    try:
        urls = json.loads(broker.stdout.readline())
        url = urls["url" if protocol == "pulsar" else f"{protocol}_url"]
        options = ["-X", "operation_timeout=1h"]
        if protocol == "pulsar":
            options += ["-X", "send_timeout=0"]
        elif protocol == "mqtt":
            options += ["-X", "keep_alive=10m", "--qos", "1"]
        words = {"pub": ["-l", "--json"], "sub": ["-v"], "bench": ["-n", "100000000"]}[command]
        if command == "sub" and protocol != "mqtt":
            words += ["-s", "g"]
        run = start(command, "-u", url, "-t", "t", *words, *options, stdin=subprocess.PIPE)
        if command == "pub":
            run.stdin.write(b"x\n")
            run.stdin.flush()
            run.stdout.readline()
        elif command == "sub":
            with blocking.connect(url) as client, client.producer("t") as producer:
                # A subscription begins when it is made.
                sending = threading.Event()
                thread = threading.Thread(target=send_until, args=(producer, sending))
                thread.start()
                run.stdout.readline()
                sending.set()
                thread.join()
        else:
            with (
                blocking.connect(url) as client,
                client.consumer("t", None if protocol == "mqtt" else "g") as rest,
            ):
                rest.receive(PATIENCE)
        broker.send_signal(signal.SIGSTOP)
        if command == "pub":
            run.stdin.write(b"x\n")
            run.stdin.flush()
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=PATIENCE)
        assert run.returncode == 130
    finally:
        for process in (run, broker):
            process.kill()
            process.communicate()


def test_ctrl_c_ends_a_replay_whose_broker_is_gone():
    broker = start("broker", "--port", "0", "--json")
    try:
        url = json.loads(broker.stdout.readline())["url"]
        with blocking.connect(url) as client, client.producer("t") as producer:
            producer.send_many([b"x"] * 1000)
        words = ("--rate", "10", "-X", "operation_timeout=1h", "-X", "producer.send_timeout=0")
        run = start("replay", url, "t", "copy", *words)
        with blocking.connect(url) as client, client.reader("copy", position="earliest") as copy:
            copy.receive(PATIENCE)
        broker.send_signal(signal.SIGSTOP)
        run.send_signal(signal.SIGINT)
        assert b": forebay replay t copy -u " in run.communicate(timeout=PATIENCE)[1]
        assert run.returncode == 130
    finally:
        for process in (run, broker):
            process.kill()
            process.communicate()


def send_until(producer, ended):
    while not ended.wait(0.02):
        producer.send(b"x")
