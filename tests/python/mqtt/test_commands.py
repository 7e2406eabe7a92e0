"""``forebay pub``, ``sub``, ``bench``, ``doctor`` and ``topic`` with MQTT URLs, on the embedded broker, and
next to ``mosquitto_pub`` and ``mosquitto_sub``."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import ssl
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay import blocking, cli, errors
from forebay.commands.mqtt.format import compile_format
from forebay.mqtt import ReasonCode

from support.commands import refused, run, start
from support.mqtt.harness import USERS, EmbeddedMqtt, Mosquitto
from support.waiting import eventually


@pytest.fixture(scope="module")
def url(embedded_mqtt: EmbeddedMqtt) -> str:
    return embedded_mqtt.url


@pytest.fixture
def topic() -> str:
    return f"t/{uuid.uuid4().hex[:12]}"


class Session:
    """A session that collects publications, to be read with ``sub -c``."""

    def __init__(self, url: str, *topics: str, qos: int = 2, version: str = "5") -> None:
        self._client_id = uuid.uuid4().hex[:20]
        self._words = [url, "-c", "-i", self._client_id, "-q", str(qos), "-V", version]
        for topic in topics:
            self._words += ["-t", topic]
        assert run("sub", *self._words, "-E") == b""

    def read(self, *arguments: str, status: int = 0) -> bytes:
        return run("sub", *self._words, "-W", "50", *arguments, status=status)


# ------------------------------------------------------------------------------------------------
# publishing


def test_a_message_with_qos_and_retain(url: str, topic: str) -> None:
    session = Session(url, topic)
    run("pub", url, "-t", topic, "-m", "default", "-r")
    assert run("sub", url, topic, "-q", "2", "-C", "1", "-W", "50", "-F", "%r %q %p") == b"1 0 default\n"
    for qos in (1, 2):
        assert run("pub", url, "-t", topic, "-m", f"qos {qos}", "-q", str(qos), "-r") == b""
    assert session.read("-C", "2", "-R", "-F", "%q %p") == b"1 qos 1\n2 qos 2\n"
    assert run("sub", url, "-t", topic, "-q", "2", "-C", "1", "-W", "50", "-F", "%r %q %p") == b"1 2 qos 2\n"
    run("pub", url, "-t", topic, "-n", "-r")
    assert run("sub", url, "-t", topic, "-C", "1", "-W", "0.3", status=27) == b""


def test_the_url_may_stand_anywhere(url: str, topic: str) -> None:
    session = Session(url, topic)
    run("pub", url, topic, "-q", "1", "-m", "1")
    run("pub", "-u", url, "-q", "1", "-t", topic, "-m", "2")
    run("pub", "-t", topic, "-q", "1", "-m", "3", "--url", url)
    run("pub", "-m", "4", "-q", "1", f"--url={url}", topic)
    run("pub", "-t", topic, "-q", "1", "-m", "5", env={"FOREBAY_URL": url})
    assert session.read("-C", "5", topic) == b"1\n2\n3\n4\n5\n"


def test_files_lines_standard_input_and_repetition(url: str, topic: str, tmp_path: Path) -> None:
    session = Session(url, topic)
    (tmp_path / "one").write_bytes(b"\0one")
    run("pub", url, "-t", topic, "-q", "1", "-f", str(tmp_path / "one"))
    run("pub", url, "-t", topic, "-q", "1", "-l", stdin=b"two\r\nthree\n")
    run("pub", url, "-t", topic, "-q", "1", "-s", stdin=b"fo\nur")
    run("pub", url, "-t", topic, "-q", "1", "-m", "5", "-m", "6", "--repeat", "2")
    run("pub", url, "-t", topic, "-q", "1", "-n")
    lines = session.read("-C", "9", "-N", "-F", "%p|").split(b"|")
    assert lines == [b"\0one", b"two\r", b"three", b"fo\nur", b"5", b"6", b"5", b"6", b"", b""]
    assert "forebay" in refused("pub", url, "-t", topic, "-f", str(tmp_path / "none"), status=1)


def test_more_lines_than_the_window_takes(url: str, topic: str) -> None:
    session = Session(url, topic)
    numbers = b"".join(b"%d\n" % number for number in range(5000))
    run("pub", url, "-t", topic, "-q", "1", "-l", "--quiet", "-X", "max_pending=100", stdin=numbers)
    assert session.read("-C", "5000") == numbers


def test_answers_as_json(url: str, topic: str) -> None:
    out = run("pub", url, "-t", topic, "-m", "x", "-m", "y", "-q", "1", "--json").splitlines()
    none = {"topic": topic, "reason": "NO_MATCHING_SUBSCRIBERS", "code": ReasonCode.NO_MATCHING_SUBSCRIBERS}
    assert [json.loads(line) for line in out] == [none, none]
    session = Session(url, topic)
    out = run("pub", url, "-t", topic, "-m", "x", "-q", "2", "--json")
    assert json.loads(out) == {"topic": topic, "reason": "SUCCESS", "code": 0}
    assert session.read("-C", "1") == b"x\n"


def test_properties(url: str, topic: str) -> None:
    session = Session(url, topic)
    words = [("content-type", "text/plain"), ("response-topic", "r"), ("correlation-data", "c")]
    words += [("message-expiry-interval", "1000"), ("payload-format-indicator", "1")]
    flags = [text for name, value in words for text in ("-D", "publish", name, value)]
    users = ("-D", "publish", "user-property", "a", "1", "-D", "publish", "user-property", "a", "2")
    run("pub", url, "-t", topic, "-m", "x", "-q", "1", *flags, *users)
    assert session.read("-C", "1", "-F", "%C %R %D %F %P") == b"text/plain r c 1 a:1 a:2\n"
    run("pub", url, "-t", topic, "-m", "x", "-q", "1", *flags, *users)
    left = int(session.read("-C", "1", "-F", "%E"))
    assert 900 <= left <= 1000
    users += ("-D", "publish", "user-property", "b", "3")
    run("pub", url, "-t", topic, "-m", "x", "-q", "1", "-m", "y", *users)
    both = session.read("-C", "1", "-F", "%j"), session.read("-C", "1", "--json")
    mosquittos, own = (json.loads(line)["properties"] for line in both)
    assert mosquittos["user-properties"] == own == {"a": ["1", "2"], "b": "3"}


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [
        (["publish", "content-type"], "IDENTIFIER VALUE", 2),
        (["publish", "user-property", "a"], "NAME VALUE", 2),
        (["publish", "contenttype", "x"], "it takes content-type", 1),
        (["subscribe", "user-property", "a", "b"], "only publish, will, connect", 1),
        (["publish", "message-expiry-interval", "soon"], "'soon'", 2),
        (["publish", "payload-format-indicator", "2"], "'2'", 2),
    ],
)
def test_wrong_properties_are_named(url: str, words: list[str], said: str, status: int) -> None:
    assert said in refused("pub", url, "-t", "t", "-m", "x", "-D", *words, status=status)


# -----------------------------------------------------------------------------------------------
# subscribing


def test_formats(url: str, topic: str) -> None:
    run(
        "pub", url, "-t", topic, "-m", "Hi\u00e9", "-r", "-q", "1", "-D", "publish", "user-property", "a", "b"
    )
    text = r"%t|%p|%x|%X|%q|%r|%l|%%|%P|%-14t|%15t|%.3t|%05l|%-5l|%2p|%6p|%4x|\\\t\e|%@Y-%@m|%@N"
    out = run("sub", url, "-t", topic, "-q", "1", "-C", "1", "-W", "50", "-F", text).decode().split("|")
    digits = "4869c3a9"
    assert out[:9] == [topic, "Hi\u00e9", digits, digits.upper(), "1", "1", "4", "%", "a:b"]
    assert out[9:13] == [topic.ljust(14), topic.rjust(15), topic[:3], "00004"]
    assert out[13:18] == ["4    ", "Hi", "  Hi\u00e9", "4869", "\\\t\x1b"]
    assert re.fullmatch(r"20\d\d-\d\d", out[18])
    assert re.fullmatch(r"\d{9}\n", out[19])
    out = run(
        "sub", url, "-t", topic, "-q", "1", "-C", "1", "-W", "50", "-F", "%I|%U|%m|%S|%j|%C|%E"
    ).decode()
    moment, seconds, packet, _, as_json, content_type, expiry = out.split("|")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", moment)
    assert re.fullmatch(r"\d{10}\.\d{9}", seconds)
    assert int(packet) > 0
    said = json.loads(as_json)
    assert (said["topic"], said["payload"], said["mid"]) == (topic, "Hi\u00e9", int(packet))
    assert (said["qos"], said["retain"], said["payloadlen"]) == (1, 1, 4)
    assert said["properties"]["user-properties"] == {"a": "b"}
    assert (content_type, expiry) == ("", "\n")


def test_json_in_json(url: str, topic: str) -> None:
    run("pub", url, "-t", topic, "-m", '{"a": [1]}', "-r")
    one = ("sub", url, "-t", topic, "-C", "1", "-W", "50", "-F", "%J")
    assert json.loads(run(*one))["payload"] == {"a": [1]}
    run("pub", url, "-t", topic, "-m", "no json", "-r")
    assert "%J" in refused(*one, status=2)


@pytest.mark.parametrize("text", ["%z", "%", "\\x", "abc\\", "%@", "%5"])
def test_an_unknown_format_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidArgument, match="unknown"):
        compile_format(text)


def test_json(url: str, topic: str) -> None:
    session = Session(url, f"{topic}/#")
    run("pub", url, "-t", f"{topic}/a", "-m", "text", "-q", "1", "-D", "publish", "user-property", "a", "b")
    run(
        "pub",
        url,
        "-t",
        f"{topic}/b",
        "-q",
        "1",
        "-s",
        "-D",
        "publish",
        "correlation-data",
        "c",
        stdin=b"\xff",
    )
    first, second = (json.loads(line) for line in session.read("-C", "2", "--json").splitlines())
    assert (first["topic"], first["payload"], first["qos"]) == (f"{topic}/a", "text", 1)
    assert (first["retain"], first["dup"], first["properties"]) == (False, False, {"a": "b"})
    assert "payload" not in second
    assert base64.b64decode(second["payload_base64"]) == b"\xff"
    assert base64.b64decode(second["correlation_data_base64"]) == b"c"


def test_verbose_and_no_newline(url: str, topic: str) -> None:
    run("pub", url, "-t", topic, "-m", "x", "-r")
    one = ("sub", url, "-t", topic, "-C", "1", "-W", "50")
    assert run(*one, "-v") == f"{topic} x\n".encode()
    assert run(*one, "-N") == b"x"
    assert run(*one, "-v", "-N") == f"{topic} x".encode()


def test_retained_live_and_unwanted_messages(url: str, topic: str) -> None:
    for name in ("a", "b"):
        run("pub", url, "-t", f"{topic}/{name}", "-m", name, "-r")
    everything = ("sub", url, "-t", f"{topic}/#", "-W", "3")
    assert sorted(run(*everything, status=27).split()) == [b"a", b"b"]
    assert run(*everything, "-R", status=27) == b""
    assert run(*everything, "-T", f"{topic}/b", status=27) == b"a\n"
    assert "leave nothing" in refused(*everything, "-R", "--retained-only", status=2)
    assert "filter" in refused(*everything, "-T", "a/#/b", status=1)
    # Messages queued for the offline session are not retained: the first of them ends the command.
    session = Session(url, f"{topic}/#")
    session.read("-C", "2")
    run("pub", url, "-t", f"{topic}/c", "-m", "live", "-q", "1")
    assert b"live" not in session.read("--retained-only")


def test_a_timeout_has_its_own_status(url: str, topic: str) -> None:
    assert run("sub", url, "-t", topic, "-W", "0.2", status=27) == b""
    run("pub", url, "-t", topic, "-m", "x", "-r")
    # As mosquitto_sub: status 27 when the time is over, whether messages arrived or not.
    assert run("sub", url, "-t", topic, "-W", "3", status=27) == b"x\n"
    assert run("sub", url, "-t", topic, "-W", "50", "-C", "1") == b"x\n"
    assert "-W" in refused("sub", url, "-t", topic, "-W", "soon", status=2)


def test_a_group_shares_the_messages(embedded_mqtt: EmbeddedMqtt, topic: str) -> None:
    url = embedded_mqtt.url
    before = embedded_mqtt.call("status")["mqtt"]["subscriptions"]
    member = ("sub", url, "-t", topic, "-q", "1", "-s", "group", "-C", "5", "-W", "50")
    members = [start(*member), start(*member)]
    eventually(lambda: embedded_mqtt.call("status")["mqtt"]["subscriptions"] == before + 2)
    run("pub", url, "-t", topic, "-q", "1", "--quiet", "-l", stdin=b"".join(b"%d\n" % n for n in range(10)))
    said = [member.communicate(timeout=300) for member in members]
    assert [member.returncode for member in members] == [0, 0], said
    lines = [line for out, _ in said for line in out.split()]
    assert sorted(lines) == [b"%d" % number for number in range(10)]


def test_messages_that_nobody_acknowledged_come_again(url: str, topic: str) -> None:
    session = Session(url, topic)
    run("pub", url, "-t", topic, "-q", "1", "-m", "1", "-m", "2", "-m", "3")
    assert session.read("-C", "2", "--no-ack") == b"1\n2\n"
    # Only printed messages are acknowledged; prefetched ones stay in the session.
    assert session.read("-C", "2") == b"1\n2\n"
    assert session.read("-C", "1") == b"3\n"


# -------------------------------------------------------------------------------------------------
# connecting


@pytest.mark.parametrize(
    ("given", "level"), [("5", 5), ("mqttv5", 5), ("311", 4), ("mqttv311", 4), ("31", 3), ("auto", 5)]
)
def test_versions(url: str, topic: str, given: str, level: int) -> None:
    run("pub", url, "-t", topic, "-m", "x", "-r", "-V", given, "-q", "1")
    # Only MQTT 5.0 has subscription identifiers.
    out = run("sub", url, "-t", topic, "-V", given, "-C", "1", "-W", "50", "-F", "%p %S")
    assert out.startswith(b"x ")
    assert (len(out.strip()) > 1) == (level == 5)


def test_wrong_versions_and_combinations_are_named(url: str) -> None:
    assert "mqttv311" in refused("pub", url, "-t", "t", "-m", "x", "-V", "4", status=2)
    plain = ("-D", "publish", "content-type", "x")
    assert "-V 5" in refused("pub", url, "-t", "t", "-m", "x", "-V", "311", *plain, status=1)
    assert "give one with -i" in refused("sub", url, "-t", "t", "-c", status=2)
    assert "--will-topic" in refused("pub", url, "-t", "t", "-m", "x", "--will-payload", "x", status=2)
    assert "a topic is needed" in refused("pub", url, "-m", "x")
    assert "one topic" in refused("pub", url, "-t", "a", "-t", "b", "-m", "x", status=2)
    assert "receive_maximum" in refused("sub", url, "-t", "t", "-X", "receive_maximun=1", status=2)


@pytest.mark.parametrize(
    "words",
    [["-K", ":"], ["-z", "zstd"], ["--key-separator=:"], ["--compression", "lz4"]],
)
def test_what_only_pulsar_has_is_refused_by_name(url: str, words: list[str]) -> None:
    said = refused("pub", url, "-t", "t", "-m", "x", *words)
    assert f"MQTT has no {words[0].split('=')[0]}" in said.replace("keys, so ", "")


@pytest.mark.parametrize("words", [["-o", "earliest"], ["-e"], ["--type", "shared"]])
def test_what_only_pulsars_subscriptions_have_is_refused_by_name(url: str, words: list[str]) -> None:
    assert f"so {words[0]} is not supported" in refused("sub", url, "-t", "t", *words)


@pytest.mark.parametrize("command", ["pub", "sub"])
@pytest.mark.parametrize(
    "words",
    [
        ["--will-topic", "t"],
        ["--will-payload", "x"],
        ["--will-qos", "1"],
        ["--will-retain"],
        ["--qos", "1"],
        ["-V", "5"],
        ["-i", "me"],
        ["-P", "secret"],
        ["-c"],
        ["-x", "5"],
        ["--cafile", "ca.pem"],
    ],
)
def test_what_only_mqtt_has_is_refused_by_name_with_pulsar(
    command: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "pulsar://127.0.0.1:1", "-t", "t", *words])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert words[0] in said.rsplit("error:", 1)[1]
    assert "MQTT" in said


def test_help_is_that_of_the_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    for words, flag in (
        (["pub", "mqtt://", "--help"], "--will-topic"),
        (["sub", "mqtts://", "--help"], "--retained-only"),
        (["pub", "--help"], "--compression"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code == 0
        assert flag in capsys.readouterr().out


def test_topics_cannot_be_listed(url: str) -> None:
    assert "MQTT cannot list topics" in refused("topic", "ls", "-u", url, status=1)


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedMqtt]:
    broker = EmbeddedMqtt(users=True)
    yield broker
    broker.stop()


def test_user_and_password(guarded: EmbeddedMqtt, topic: str) -> None:
    user, password = next(iter(USERS.items()))
    pub = ("pub", guarded.url, "-t", topic, "-m", "x", "-r")
    run(*pub, "-u", user, "-P", password)
    run(*pub, "-u", user, "-P", "env:PASSWORD_OF_TEST", env={"PASSWORD_OF_TEST": password})
    said = refused(*pub, "-u", user, "-P", "canary-93", status=1)
    assert "authentication" in said
    assert "canary-93" not in said
    assert "authorization" in refused(*pub, status=1)


@pytest.mark.parametrize("scheme", ["tcp", "websocket"])
def test_tls(topic: str, scheme: str, tmp_path: Path) -> None:
    broker = EmbeddedMqtt(tls=True)
    try:
        assert broker.certificates
        secure = broker.url if scheme == "tcp" else broker.ws_url
        assert secure.startswith(("mqtts://", "wss://"))
        trust = ("--cafile", str(broker.certificates.ca))
        own = ("--cert", str(broker.certificates.client_crt), "--key", str(broker.certificates.client_key))
        run("pub", secure, "-t", topic, "-m", "x", "-r", *trust, *own, "--tls-alpn", "mqtt")
        assert run("sub", secure, "-t", topic, "-C", "1", "-W", "50", *trust) == b"x\n"
        assert "tls" in refused("pub", secure, "-t", topic, "-m", "x", status=1)
        elsewhere = secure.replace("127.0.0.1", "localhost")
        run("pub", elsewhere, "-t", topic, "-m", "y", *trust, "--insecure")
        bundle = tmp_path / "bundle.pem"
        bundle.write_bytes("# Autorité\n".encode() + broker.certificates.ca.read_bytes())
        der = ssl.PEM_cert_to_DER_cert(broker.certificates.server_crt.read_text())
        for trusted in (f"tls_ca={bundle}", f"tls_pin={hashlib.sha256(der).hexdigest()}"):
            said = json.loads(run("doctor", secure, "-X", trusted, "--json"))
            steps = [finding["step"] for finding in said["findings"]]
            assert steps == ["installed", "address", "tls", "connect", "limits", "round trip"]
        bundle.write_text("-----BEGIN CERTIFICATE-----\n")
        assert b"FAILED tls" in run("doctor", secure, "-X", f"tls_ca={bundle}", status=1)
        assert b"FAILED tls" in run("doctor", secure, status=1)
    finally:
        broker.stop()


def test_a_will(embedded_mqtt: EmbeddedMqtt, topic: str) -> None:
    url = embedded_mqtt.url
    flags = ["--will-topic", f"{topic}/will", "--will-payload", "gone", "--will-qos", "1", "--will-retain"]
    flags += ["-D", "will", "content-type", "text/plain", "-D", "will", "will-delay-interval", "0"]
    flags += ["-D", "will", "user-property", "a", "b"]
    with blocking.connect(url) as client, client.consumer(f"{topic}/will", retain_as_published=True) as wills:
        # A client that sends DISCONNECT leaves no will.
        run("pub", url, "-t", topic, "-m", "x", *flags)
        before = embedded_mqtt.call("status")["mqtt"]["subscriptions"]
        process = start("sub", url, "-t", topic, "-k", "10", *flags)
        eventually(lambda: embedded_mqtt.call("status")["mqtt"]["subscriptions"] == before + 1)
        process.kill()
        process.communicate(timeout=300)
        message = wills.receive(20)
        assert (message.data, message.qos, message.retain) == (b"gone", 1, True)
        assert (message.content_type, message.user_properties) == ("text/plain", [("a", "b")])
        wills.ack(message)


def test_what_connect_says(embedded_mqtt: EmbeddedMqtt, monkeypatch: pytest.MonkeyPatch) -> None:
    from forebay.commands.mqtt import arguments

    words = ["-x", "60", "-k", "7", "-i", "me", "--insecure", "--tls-alpn", "x-mqtt"]
    for name, value in (
        ("session-expiry-interval", "61"),
        ("receive-maximum", "5"),
        ("maximum-packet-size", "4096"),
        ("topic-alias-maximum", "3"),
        ("request-response-information", "1"),
    ):
        words += ["-D", "connect", name, value]
    for value in "bc":
        words += ["-D", "connect", "user-property", "a", value]
    given = cli.parser("mqtt").parse_args(["sub", embedded_mqtt.url, "-t", "t", *words])
    options = arguments.client_options(given, {})
    assert options == {
        "session_expiry": 61,
        "keep_alive": "7",
        "client_id": "me",
        "tls_skip_hostname_check": True,
        "tls_alpn": "x-mqtt",
        "receive_maximum": 5,
        "max_packet_size": 4096,
        "topic_alias_maximum": 3,
        "request_response_information": True,
        "connect_properties": [("a", "b"), ("a", "c")],
    }
    plain = {name: value for name, value in options.items() if not name.startswith("tls_")}
    with blocking.connect(embedded_mqtt.url, **plain) as client:
        assert client.stats()["client_id"] == "me"


# ------------------------------------------------------------------------------------------- doctor
# and bench


def test_doctor_finds_nothing_wrong(embedded_mqtt: EmbeddedMqtt) -> None:
    for url in (embedded_mqtt.url, embedded_mqtt.ws_url):
        said = json.loads(run("doctor", url, "--json"))
        assert said["ok"]
        steps = {finding["step"]: finding["detail"] for finding in said["findings"]}
        assert list(steps) == ["installed", "address", "connect", "limits", "round trip"]
        assert "MQTT 5" in steps["connect"]
        assert "QoS up to 2, 1000 in flight, packets up to 2000000 bytes" in steps["limits"]


def test_doctor_names_the_step_that_fails(guarded: EmbeddedMqtt, tmp_path: Path) -> None:
    for url, step in (
        ("mqtt://127.0.0.1:1", "address"),
        (guarded.url, "connect"),
        (f"mqtt+unix://{tmp_path}/none", "address"),
        (guarded.url.replace("mqtt://", "mqtts://"), "tls"),
    ):
        assert f"FAILED {step}" in run("doctor", url, status=1).decode()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_bench_measures(url: str, qos: int) -> None:
    said = json.loads(run("bench", "-u", url, "-n", "3000", "--qos", str(qos), "--json"))
    assert list(said["cases"]) == ["send, one at a time", "send, in a window", "send_many to receive_many"]
    assert all(case["rate"] > 0 for case in said["cases"].values())


def test_bench_refuses_what_the_protocol_has_not(url: str, embedded: Any) -> None:
    assert "-z" in refused("bench", "-u", url, "-z", "lz4", status=1)
    assert "--qos" in refused("bench", "-u", embedded.url, "--qos", "1", status=1)


# ----------------------------------------------------------------------------------------- beside
# mosquitto's


def mosquitto(program: str, url: str, *arguments: str, status: int = 0, stdin: bytes = b"") -> bytes:
    port = url.rsplit(":", 1)[1]
    words = [Mosquitto.program(program), "-h", "127.0.0.1", "-p", port, "-V", "mqttv5", *arguments]
    done = subprocess.run(words, input=stdin, capture_output=True, timeout=300, check=False)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done.stdout


def test_the_same_flags_print_the_same_as_mosquitto_sub(url: str, topic: str) -> None:
    flags = ["-t", topic, "-m", "Hi", "-q", "1", "-r", "-D", "publish", "content-type", "text/plain"]
    flags += ["-D", "publish", "user-property", "a", "b", "-D", "publish", "response-topic", "r"]
    text = r"%t|%p|%q|%r|%l|%x|%X|%C|%P|%R|%%|%-16t|%16t|%.2t|%04l|%6p|%-6p\t."
    ask = ["-t", topic, "-q", "1", "-C", "1", "-W", "50"]
    for publish in (
        lambda: mosquitto("mosquitto_pub", url, *flags),
        lambda: run("pub", url, *flags),
    ):
        publish()
        for how in (["-F", text], ["-v"], ["-N"], ["-v", "-N"]):
            assert run("sub", url, *ask, *how) == mosquitto("mosquitto_sub", url, *ask, *how), how


def test_the_same_status_as_mosquitto_sub(url: str, topic: str) -> None:
    for ask in (["-t", topic, "-W", "1"], ["-t", topic, "-C", "1", "-W", "1"]):
        mosquitto("mosquitto_sub", url, *ask, status=27)
        run("sub", url, *ask, status=27)
