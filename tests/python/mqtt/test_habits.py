"""``forebay pub``, ``sub`` and ``rr`` as they are typed by people who know Mosquitto's commands."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

import pytest

from forebay import blocking, cli, errors

from support.commands import ended, start
from support.mqtt.harness import USERS, EmbeddedMqtt
from support.waiting import PATIENCE, eventually


def run(*words: str, status: int = 0, **rest: Any) -> str:
    """What a command says: its errors if it fails."""
    done = ended(*words, **rest)
    assert done.status == status, (words, done)
    return done.err if status in (1, 2) else done.out.decode()


@pytest.fixture(scope="module")
def url(embedded_mqtt: EmbeddedMqtt) -> str:
    return embedded_mqtt.url


@pytest.fixture
def place(url: str) -> list[str]:
    """``-h HOST -p PORT``."""
    parts = urlsplit(url)
    return ["-h", str(parts.hostname), "-p", str(parts.port)]


@pytest.fixture
def topic() -> str:
    return f"t/{uuid.uuid4().hex[:12]}"


def retained(url: str, topic: str, wait: float = 0.5) -> list[bytes]:
    with blocking.connect(url) as client, client.subscribe(topic) as messages:
        return [message.data for message in messages.receive_many(100, timeout=wait)]


# ------------------------------------------------------------------------------------------------
# the address


def test_a_host_and_a_port(url: str, place: list[str], topic: str) -> None:
    assert run("pub", *place, "-t", topic, "-m", "on", "-r", "-q", "1") == ""
    assert run("sub", *place, "-t", topic, "-v", "-C", "1", "-W", "50") == f"{topic} on\n"
    host, port = place[1], place[3]
    assert run("sub", "-t", topic, f"--host={host}", "--port", port, "-C", "1", "-W", "50") == "on\n"
    assert run("sub", f"-h{host}", f"-p{port}", "-t", topic, "-C", "1", "-W", "50") == "on\n"
    # Whatever the environment names, the flags are meant.
    other = {"FOREBAY_URL": "pulsar://127.0.0.1:1"}
    assert run("sub", *place, "-t", topic, "-C", "1", "-W", "50", env=other) == "on\n"
    # Without -h it is this machine.
    for words in (["-p", port], [f"-p{port}"], ["--port", port], [f"--port={port}"]):
        assert run("sub", "-t", topic, *words, "-C", "1", "-W", "50", env=other) == "on\n"
    assert run("pub", "-p", port, "-t", topic, "-m", "off", "-q", "1", "--json").startswith('{"topic"')
    pulsar = ("pub", "-p", port, "-t", topic, "-m", "x", "pulsar://127.0.0.1:1")
    assert "properties are NAME=VALUE" in run(*pulsar, status=2)
    far = {"FOREBAY_URL": "mqtt://broker.example"}
    assert "give -h HOST, too" in run("pub", "-p", port, "-t", topic, "-m", "x", env=far, status=2)


def test_all_in_one_url(url: str, place: list[str], topic: str) -> None:
    where = f"mqtt://{place[1]}:{place[3]}/{topic}"
    run("pub", "-L", where, "-m", "on", "-r", "-q", "1")
    assert run("sub", "-L", f"{where}/#", "-C", "1", "-W", "50") == "on\n"


def test_users_of_a_url_and_of_flags(topic: str) -> None:
    broker = EmbeddedMqtt(users=True)
    try:
        parts = urlsplit(broker.url)
        user, password = next(iter(USERS.items()))
        run("pub", "-L", f"mqtt://{user}:{password}@{parts.netloc}/{topic}", "-m", "on", "-r")
        place = ("-h", str(parts.hostname), "-p", str(parts.port))
        assert run("sub", *place, "-u", user, "-P", password, "-t", topic, "-C", "1", "-W", "50") == "on\n"
        said = run("pub", "-L", f"mqtt://{user}:canary-93@{parts.netloc}/{topic}", "-m", "on", status=1)
        assert "authentication" in said and "canary-93" not in said
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["-h", "h"], "mqtt://h"),
        (["-h", "::1", "-p", "1884"], "mqtt://[::1]:1884"),
        (["-p", "1884", "mqtt://"], None),
        (["-h", "h", "-p", "8883"], "mqtts://h:8883"),
        (["--unix", "/run/broker.sock"], "mqtt+unix:///run/broker.sock"),
        (["-h", "h", "--cafile", "ca.pem"], "mqtts://h"),
        (["-L", "mqtt://h"], "mqtt://h"),
        (["-L", "mqtts://h:1/a/b"], "mqtts://h:1"),
        (["-L", "mqtt://[::1]:1/a/b"], "mqtt://[::1]:1"),
        (["-L", "mqtt://u:p@ss@h/a#?b"], "mqtt://h"),
    ],
)
def test_the_url_of_the_flags(words: list[str], found: str | None) -> None:
    from forebay.commands.mqtt import arguments

    given = cli.parser("mqtt").parse_args(["sub", "-t", "t", *words])
    if found is None:
        given.url = given.places.pop(0)
        assert "-h or -p and by a URL" in str(arguments.problem(given))
        return
    assert arguments.problem(given) is None
    assert given.url == found
    if "@" in words[-1]:
        assert (given.username, given.pw, given.topic) == ("u", "p@ss", ["t", "a#?b"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-h", "h", "-p", "a=b"], "-D publish user-property NAME VALUE"),
        (["-h", "h", "-p", "0"], "from 1 to 65535"),
        (["-p", "0"], "from 1 to 65535"),
        (["-h", "h", "--unix", "/a"], "by -h or -p and by --unix"),
        (["--unix", "/a?b"], "--unix takes no path"),
        (["-h", "h", "--repeat-delay", "soon"], "--repeat-delay: expected a duration"),
        (["pulsar://127.0.0.1:1", "--unix", "/a"], "Pulsar has no --unix"),
        (["-u", "tubemq://127.0.0.1:1", "-I", "x"], "TubeMQ has no -I"),
        (["--qos", "1"], "-h HOST or mqtt://HOST"),
        (["-h", "h:1883"], "-h h -p 1883"),
        (["-h", "me@h"], "no host name"),
        (["-h", "h", "-L", "mqtt://h/t"], "by -L and by -h or -p"),
        (["-h", "h", "mqtt://h"], "by -h or -p and by a URL"),
        (["-L", "http://h/t"], "-L is mqtt://"),
        (["-L", "mqtt://user:canary-93@/t"], "no host name"),
        (["-L", "user:canary-93@h"], "-L is mqtt://"),
        (["-L", "mqtt://h:nine/t"], "from 1 to 65535"),
        (["-h", "h", "pulsar://127.0.0.1:1"], "-h HOST is for MQTT"),
        (["pulsar://127.0.0.1:1", "-h", "h"], "-h HOST is for MQTT"),
        (["tubemq://127.0.0.1:1", "-h", "h"], "-h HOST is for MQTT"),
        (["pulsar://127.0.0.1:1", "-L", "mqtt://h"], "-L"),
    ],
)
def test_addresses_that_are_wrong_usage(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["pub", "-t", "t", "-m", "x", *words])
    assert ended.value.code == 2
    error = capsys.readouterr().err.rsplit("forebay pub: error:", 1)[1]
    assert said in error and "canary-93" not in error


@pytest.mark.parametrize(
    "words", [["pub", "-h"], ["sub", "mqtt://", "-h"], ["sub", "-h", "mqtt://"], ["rr", "-h"]]
)
def test_h_without_a_host_is_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: forebay {words[0]}")


# ------------------------------------------------------------------------------------------------
# publishing


def test_nothing_is_published_that_was_not_given(url: str, topic: str) -> None:
    """A cron job without standard input once deleted a retained message."""
    run("pub", url, topic, "-r", "-q", "1", "-m", "on")
    assert "nothing to publish" in run("pub", url, topic, "-r", stdin=b"", status=2)
    assert "nothing to publish" in run("pub", url, topic, "-r", stdin=b"off", status=2)
    assert "standard input is empty" in run("pub", url, topic, "-r", "-s", stdin=b"", status=1)
    assert "/dev/null is empty" in run("pub", url, topic, "-r", "-f", "/dev/null", status=1)
    assert run("pub", url, topic, "-r", "-l", stdin=b"") == ""
    assert retained(url, topic, PATIENCE) == [b"on"]
    run("pub", url, topic, "-r", "-q", "1", "-n")
    assert retained(url, topic) == []


def test_repetitions_with_a_pause(url: str, place: list[str], topic: str) -> None:
    with blocking.connect(url) as client, client.subscribe(topic) as messages:
        started = time.monotonic()
        run("pub", *place, "-t", topic, "-m", "x", "-q", "1", "--repeat", "3", "--repeat-delay", "0.4")
        assert time.monotonic() - started >= 0.8, "no pause before the first"
        for _ in range(3):
            messages.receive(timeout=PATIENCE)
        assert messages.receive_many(100, timeout=0.2) == []


def test_what_else_is_set_for_a_client(place: list[str]) -> None:
    from forebay.commands.mqtt import arguments

    def options(*words: str) -> dict[str, Any]:
        return arguments.client_options(cli.parser("mqtt").parse_args(["pub", *place, *words]), {})

    assert options("-I", "till", "-M", "7", "--nodelay") == {
        "client_id": f"till-{os.getpid()}",
        "max_inflight": "7",
    }
    with pytest.raises(errors.InvalidArgument, match="-i and -I"):
        options("-I", "till", "-i", "till")
    with pytest.raises(errors.InvalidArgument, match="give one with -i"):
        options("-I", "till", "-c")
    wrong = ["pub", *place, "-t", "t", "-m", "x", "-M", "0"]
    assert "--max-inflight" in run(*wrong, status=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-A", "127.0.0.1"], "-A is not supported: the operating system"),
        (["-S"], "name the host with -h"),
        (["--psk", "ab"], "--psk is not supported: use a client certificate"),
        (["--psk-identity", "me"], "--psk-identity is not supported"),
        (["--ciphers", "x"], "TLS 1.3 or 1.2"),
        (["--tls-version", "tlsv1.2"], "TLS 1.3 or 1.2"),
        (["--proxy", "socks5h://h"], "ssh -L"),
        (["--capath", "/etc/ssl"], "cat DIR/*.pem"),
        (["-w"], "-w is not supported: -v"),
        (["--tls-engine", "x"], "--key takes the key as a PEM file"),
        (["--tls-engine-kpass-sha1", "x"], "--key takes the key as a PEM file"),
        (["--keyform", "engine"], "--key takes the key as a PEM file"),
        (["--quiet"], "2>/dev/null hides errors"),
    ],
)
def test_flags_of_mosquitto_that_are_not_supported(place: list[str], words: list[str], said: str) -> None:
    for command in (["sub"], ["pub", "-m", "x"], ["rr", "-m", "x"]):
        if command == ["sub"] or (words[0] != "-w" and (command[0] != "pub" or words[0] != "--quiet")):
            assert said in run(*command, *place, "-t", "t", *words, status=2)


# ------------------------------------------------------------------------------------------------
# subscribing


def test_a_random_part_of_the_messages_is_printed(url: str, place: list[str], topic: str) -> None:
    words = ["sub", *place, "-t", topic, "-q", "1", "-c", "-i", f"till-{uuid.uuid4().hex[:8]}"]
    run(*words, "-E")
    with blocking.connect(url) as client, client.producer(topic) as producer:
        producer.send_many([str(number).encode() for number in range(600)])
    shown = run(*words, "-C", "50", "-W", "50", "--random-filter", "25").split()
    assert len(shown) == 50
    numbers = [int(one) for one in shown]
    assert numbers == sorted(numbers)
    # 200 on average: one in 4.
    assert 60 < numbers[-1] < 500
    for wrong in ("0", "100.1", "-1", "nan", "half"):
        said = run("sub", *place, "-t", topic, "--random-filter", wrong, status=2)
        assert f"above 0 and up to 100, not '{wrong}'" in said


def test_every_message_is_printed_by_default(url: str, place: list[str], topic: str) -> None:
    for number in range(20):
        run_in_process(url, f"{topic}/{number}")
    for words in ([], ["--random-filter", "100"], ["--retain-as-published", "--tls-use-os-certs"]):
        shown = run("sub", *place, "-t", f"{topic}/#", "-C", "20", "-W", "50", "-F", "%t", *words)
        assert len(shown.split()) == 20


def test_a_subscription_shows_whether_messages_were_published_as_retained(
    url: str, place: list[str], topic: str
) -> None:
    words = ["sub", *place, "-t", topic, "-q", "1", "-c", "-F", "%r", "-C", "1", "-W", "50"]
    for more, shown in (([], "0"), (["--retain-as-published"], "1")):
        session = [*words, "-i", f"till-{uuid.uuid4().hex[:8]}", *more]
        run(*session, "-R", "-E")
        run_in_process(url, topic)
        # Nothing is retained any more, so what comes is the message of the session.
        run("pub", *place, "-t", topic, "-n", "-r")
        assert run(*session).split() == [shown]


def test_json_over_several_lines(url: str, place: list[str], topic: str) -> None:
    run_in_process(url, topic)
    for form in (["-F", "%j"], ["--json"]):
        text = run("sub", *place, "-t", topic, "-C", "1", "-W", "50", *form, "--pretty")
        assert '\n  "topic"' in text and json.loads(text)["payload"] == "x"


def test_retained_messages_are_removed_and_the_command_ends(url: str, place: list[str], topic: str) -> None:
    for number in range(50):
        run_in_process(url, f"{topic}/{number}")
    run_in_process(url, f"{topic}/keep/1")
    words = ["-t", f"{topic}/#", "-T", f"{topic}/keep/#", "--remove-retained", "--retained-only", "-W", "30"]
    shown = run("sub", *place, *words, "-F", "%t").split()
    assert sorted(shown) == sorted(f"{topic}/{number}" for number in range(50))
    assert retained(url, f"{topic}/#", PATIENCE) == [b"x"]
    # Not printed, and deleted all the same.
    assert run("sub", *place, "-t", f"{topic}/#", "--remove-retained", "-R", "-W", "5", status=27) == ""
    assert retained(url, f"{topic}/#") == []


def run_in_process(url: str, topic: str) -> None:
    with blocking.connect(url) as client:
        client.publish(topic, b"x", qos=1, retain=True)


def test_a_subscription_of_a_session_is_ended(place: list[str], topic: str) -> None:
    session = [*place, "-c", "-i", uuid.uuid4().hex, "-q", "1"]
    run("sub", *session, "-t", f"{topic}/a", "-t", f"{topic}/b", "-E")
    assert run("sub", *session, "-U", f"{topic}/a", "-U", f"{topic}/never") == ""
    for name in ("a", "b"):
        run("pub", *place, "-q", "1", "-t", f"{topic}/{name}", "-m", name)
    words = ["-U", f"{topic}/c", "-t", f"{topic}/b", "-C", "2", "-W", "5"]
    assert run("sub", *session, *words, status=27) == "b\n"
    assert "-t TOPIC" in run("sub", *place, status=2)


def test_debug_tells_of_the_connection(url: str, place: list[str], topic: str) -> None:
    process = start("pub", *place, "-t", topic, "-m", "x", "-d")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and out == b""
    assert b"forebay.mqtt.connection: connected to 127.0.0.1" in err
    silent = start("pub", *place, "-t", topic, "-m", "x")
    assert silent.communicate(timeout=300) == (b"", b"")


# ------------------------------------------------------------------------------------------------
# requests


def test_a_request_and_its_response(url: str, place: list[str], topic: str) -> None:
    with blocking.connect(url) as client, client.subscribe(topic, qos=1) as requests:
        process = start("rr", *place, "-t", topic, "-m", "now", "-W", "30", "-q", "1", "-v")
        request = requests.receive(timeout=30)
        assert (request.data, request.qos, request.retain) == (b"now", 1, False)
        assert request.response_topic and request.correlation_data is None
        client.publish(request.response_topic, b"12:00", qos=1)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out.decode(), err) == (0, f"{request.response_topic} 12:00\n", b"")


def test_only_the_response_to_this_request_counts(url: str, place: list[str], topic: str) -> None:
    answers = f"{topic}/answers"
    words = ("-e", answers, "-D", "publish", "correlation-data", "7", "-W", "30", "--json")
    with blocking.connect(url) as client, client.subscribe(topic, qos=1) as requests:
        client.publish(answers, b"old", qos=1, retain=True, correlation_data=b"7")
        process = start("rr", *place, "-t", topic, "-n", *words)
        request = requests.receive(timeout=30)
        assert (request.data, request.response_topic, request.correlation_data) == (b"", answers, b"7")
        client.publish(answers, b"another's", qos=1, correlation_data=b"8")
        client.publish(answers, b"without", qos=1)
        client.publish(answers, b"mine", qos=1, correlation_data=b"7")
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert b'"payload": "mine"' in out and b"another" not in out


def test_a_request_without_a_response_ends_in_time(place: list[str], topic: str) -> None:
    assert run("rr", *place, "-t", topic, "-m", "now", "-W", "0.5", status=27) == ""


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [
        (["-m", "a", "-m", "b"], "one request, not 2", 2),
        ([], "nothing to publish", 2),
        (["-m", "a", "-V", "311"], "use -V 5", 1),
        (["-m", "a", "-e", "x", "-D", "publish", "response-topic", "y"], "give one of them", 2),
        (["-m", "a", "-u", "pulsar://127.0.0.1:1"], "by -h or -p and by a URL", 2),
        (["-l"], "unrecognized arguments: -l", 2),
        (["-m", "a", "-e", "x/#"], "x/#", 1),
    ],
)
def test_requests_that_are_refused(
    place: list[str], topic: str, words: list[str], said: str, status: int
) -> None:
    assert said in run("rr", *place, "-t", topic, *words, status=status)


def test_requests_are_mqtts_alone(topic: str) -> None:
    assert "not a URL of MQTT" in run("rr", "pulsar://127.0.0.1:1", topic, "-m", "x", status=2)


def silent_after_subscribe(server: socket.socket) -> None:
    """A broker of MQTT 5 that answers CONNECT and SUBSCRIBE, and nothing else."""
    connection, _ = server.accept()
    with connection, contextlib.suppress(OSError):
        while packet := connection.recv(65536):
            if packet[0] >> 4 == 1:
                connection.sendall(b"\x20\x03\0\0\0")
            elif packet[0] >> 4 == 8:
                # The length of these packets has one byte.
                connection.sendall(b"\x90\x04" + packet[2:4] + b"\0\1")


def test_a_request_that_is_not_acknowledged_ends_with_the_time(topic: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=silent_after_subscribe, args=(server,), daemon=True).start()
        port = str(server.getsockname()[1])
        started = time.monotonic()
        run("rr", "-h", "127.0.0.1", "-p", port, "-t", topic, "-m", "x", "-W", "1", status=27)
        # Then it ends its subscription, which is not answered, either.
        assert time.monotonic() - started < 55


def test_a_broker_that_goes_while_a_response_is_awaited(place: list[str], topic: str) -> None:
    broker = EmbeddedMqtt()
    parts = urlsplit(broker.url)
    host, port = str(parts.hostname), str(parts.port)
    process = start("rr", "-h", host, "-p", port, "-t", topic, "-m", "x", "-W", "10")
    try:
        eventually(lambda: broker.call("status")["mqtt"]["subscriptions"] == 1)
    finally:
        broker.stop()
    assert process.wait(60) == 27
    process.communicate()
