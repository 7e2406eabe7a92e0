"""The command line without a broker: arguments, formats, exit status."""

import subprocess
import sys
import types

import pytest

from penstock import cli, errors
from penstock.commands._shared.options import pairs
from penstock.commands.pulsar.format import compile_format, to_json
from penstock.commands.pulsar.topic import full_name


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
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
    assert run("nonsense").returncode == 2
    assert run("pub", "-m", "x").returncode == 2
    done = run("pub", "-t", "t", "-m", "x", "-u", "pulsr://h")
    assert done.returncode == 1
    assert "did you mean 'pulsar'" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_option_is_an_error_that_names_the_nearest():
    done = run("sub", "-t", "t", "-X", "receiver_qeue=3")
    assert done.returncode == 1
    assert "receiver_queue" in done.stderr


def test_version():
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("penstock ")


@pytest.mark.parametrize("command", ["broker", "passwd", "pub", "sub", "bench", "topic", "doctor"])
def test_each_command_has_help(command):
    with pytest.raises(SystemExit) as ended:
        cli.parser().parse_args([command, "--help"])
    assert ended.value.code == 0


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


def test_what_the_broker_command_needs_is_not_much():
    """`penstock broker` answers within 300 ms of its start, so nothing heavy may be imported."""
    code = "import sys, penstock.cli, penstock.broker, penstock.options; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"asyncio", "pyarrow", "pyspark", "pandas", "numpy", "rich", "inspect"} & set(loaded)
