"""``forebay.Broker`` as an MQTT broker: ports, users, TLS, WebSocket, limits."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest

import forebay
from forebay import cli, errors

from support.commands import ended
from support.mqtt.harness import EmbeddedMqtt
from support.mqtt.wire import V311, Raw
from support.waiting import eventually, line_with


def port_of(url: str | None) -> int:
    assert url
    return int(url.rsplit(":", 1)[1].split("/")[0])


def test_mqtt_is_spoken_only_when_it_is_given_a_port() -> None:
    with forebay.Broker() as broker:
        assert (broker.mqtt_url, broker.mqtt_ws_url) == (None, None)
        assert "mqtt" not in broker.status()
    with forebay.Broker(mqtt_port=0, mqtt_ws_port=0) as broker:
        assert str(broker.mqtt_url).startswith("mqtt://127.0.0.1:")
        assert str(broker.mqtt_ws_url).startswith("ws://127.0.0.1:")
        assert str(broker.mqtt_ws_url).endswith("/mqtt")
        with Raw(port_of(broker.mqtt_url)) as peer:
            peer.connect("one")
            assert broker.status()["mqtt"]["connections"] == 1


def test_limits_are_what_the_options_say() -> None:
    options = {"mqtt_receive_maximum": 7, "mqtt_max_packet_size": "1KiB", "mqtt_topic_alias_maximum": 0}
    with forebay.Broker(mqtt_port=0, mqtt_max_session_expiry="1h", **options) as broker:
        with Raw(port_of(broker.mqtt_url)) as peer:
            said = dict(peer.connect("one", props={"session_expiry_interval": 100_000})["properties"])
    assert said == {"session_expiry_interval": 3600, "receive_maximum": 7, "maximum_packet_size": 1024}


@pytest.mark.parametrize(("given", "longest"), [(0.5, 1), (4_294_967_294, 4_294_967_294)])
def test_the_longest_expiry_of_a_session_is_a_whole_number(given: float, longest: int) -> None:
    with forebay.Broker(mqtt_port=0, mqtt_max_session_expiry=given) as broker:
        with Raw(port_of(broker.mqtt_url)) as peer:
            said = dict(peer.connect("one", props={"session_expiry_interval": 0xFFFF_FFFF})["properties"])
    assert said["session_expiry_interval"] == longest
    with pytest.raises(errors.InvalidArgument, match="between 0 and 4294967295 seconds, not 4294967296"):
        forebay.Broker(mqtt_port=0, mqtt_max_session_expiry=4_294_967_296)


def passwd(*arguments: str, stdin: str = "") -> int:
    return ended("passwd", *arguments, stdin=stdin.encode()).status


def test_passwd_tells_what_it_did_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    users = str(tmp_path / "users")

    def said(*words: str) -> dict[str, str]:
        assert cli.main(["passwd", users, *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert said("till", "-b", "x") == {"file": users, "user": "till", "done": "added", "hash": "argon2id"}
    assert said("till", "-b", "y", "-H", "sha512-pbkdf2")["done"] == "changed"
    assert said("-D", "till") == {"file": users, "user": "till", "done": "deleted"}
    assert cli.main(["passwd", "-D", users, "till"]) == 1
    assert "has no user 'till'" in capsys.readouterr().err


def test_passwd_finds_a_user_however_its_line_was_written(tmp_path: Path) -> None:
    users = tmp_path / "users"
    assert passwd(str(users), "till", "-b", "old") == 0
    # An editor of Windows, and spaces around the name.
    users.write_bytes(b"\xef\xbb\xbf " + users.read_bytes().replace(b":", b" :", 1).replace(b"\n", b"\r\n"))
    assert passwd(str(users), "till", "-b", "new") == 0
    assert users.read_text().count("till") == 1
    for name in ("#till", " till", "till ", "ti\tll", "ti\rll", "ti\u2028ll", "\ufefftill", ""):
        assert passwd(str(users), name, "-b", "x") == 2, name
    with (
        forebay.Broker(mqtt_port=0, mqtt_password_file=users) as broker,
        Raw(port_of(broker.mqtt_url), V311) as peer,
    ):
        assert peer.connect("one", username="till", password="new")["reason"] == 0
    users.write_bytes(b"\xff\n")
    assert passwd(str(users), "till", "-b", "x") == 1


def test_users_of_forebay_passwd_get_in_and_nobody_else(tmp_path: Path) -> None:
    users = tmp_path / "users"
    assert passwd(str(users), "till", stdin="drop\n") == 0
    assert passwd(str(users), "elder", "-b", "mosquitto 2.0", "-H", "sha512-pbkdf2") == 0
    hashes = dict(line.split(":") for line in users.read_text().splitlines())
    assert hashes["till"].startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert hashes["elder"].startswith("$7$210000$")
    assert passwd(str(users), "boss", "-b", "old", "-H", "sha512-pbkdf2") == 0
    assert passwd(str(users), "boss", "-b", "new") == 0
    assert passwd(str(users), "gone", "-b", "x") == 0
    assert passwd(str(users), "gone", "-D") == 0
    assert passwd(str(users), "gone", "-D") == 1
    assert users.stat().st_mode & 0o777 == 0o600
    with forebay.Broker(mqtt_port=0, mqtt_password_file=users) as broker:
        for user, password, code in [
            ("till", "drop", 0),
            ("till", "Drop", 4),
            ("elder", "mosquitto 2.0", 0),
            ("boss", "new", 0),
            ("boss", "old", 4),
            ("gone", "x", 4),
            (None, None, 5),
        ]:
            with Raw(port_of(broker.mqtt_url), V311) as peer:
                assert peer.connect("one", username=user, password=password)["reason"] == code, user


def test_a_bad_file_of_one_protocol_keeps_the_users_of_all(tmp_path: Path) -> None:
    mqtt, tubemq = tmp_path / "mqtt", tmp_path / "tubemq"
    assert passwd(str(mqtt), "till", "-b", "drop") == 0
    tubemq.write_text("user:pass\n")
    files = {"mqtt_password_file": str(mqtt), "tubemq_user_file": str(tubemq)}
    with forebay.Broker(mqtt_port=0, tubemq_port=0, **files) as broker:
        with Raw(port_of(broker.mqtt_url), V311) as till:
            assert till.connect("till", username="till", password="drop")["reason"] == 0
            assert passwd(str(mqtt), "till", "-D") == 0
            assert passwd(str(mqtt), "new", "-b", "y") == 0
            tubemq.write_text("not a user\n")
            with pytest.raises(forebay.errors.InvalidArgument, match="tubemq_user_file, line 1"):
                broker.reload_users()
            till.sync()
            tubemq.write_text("user:pass\nother:word\n")
            assert broker.reload_users() == {"mqtt": 1, "tubemq": 2}
            assert till.closed() == []


def test_a_file_of_users_of_a_protocol_without_a_port_is_not_read_again(tmp_path: Path) -> None:
    mqtt, tubemq = tmp_path / "mqtt", tmp_path / "tubemq"
    assert passwd(str(mqtt), "till", "-b", "drop") == 0
    tubemq.write_text("user:pass\n")
    files = {"mqtt_password_file": str(mqtt), "tubemq_user_file": str(tubemq)}
    with forebay.Broker(tubemq_port=0, **files) as broker:
        assert broker.reload_users() == {"tubemq": 1}
    with forebay.Broker(mqtt_ws_port=0, **files) as broker:
        assert broker.reload_users() == {"mqtt": 1}


def test_a_broker_whose_stderr_is_closed_reads_the_users_again(tmp_path: Path) -> None:
    users = tmp_path / "users"
    assert passwd(str(users), "till", "-b", "drop") == 0
    command = [sys.executable, "-m", "forebay", "broker", "--port", "0", "--mqtt-port", "0", "--json"]
    broker = subprocess.Popen(
        [*command, "--mqtt-password-file", str(users)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert broker.stdout and broker.stderr
        port = port_of(json.loads(broker.stdout.readline())["mqtt_url"])
        broker.stderr.close()
        for gone, new in [("till", "one"), ("one", "two")]:
            with Raw(port, V311) as peer:
                assert peer.connect(gone, username=gone, password="drop")["reason"] == 0
                assert passwd(str(users), gone, "-D") == 0
                assert passwd(str(users), new, "-b", "drop") == 0
                broker.send_signal(signal.SIGHUP)
                assert peer.closed() == [], "its user is gone"
        broker.terminate()
        assert broker.wait(60) == 0
    finally:
        broker.kill()
        broker.wait(60)
        if broker.stdout:
            broker.stdout.close()


def test_sighup_reads_the_users_again(tmp_path: Path) -> None:
    users = tmp_path / "users"
    assert passwd(str(users), "till", "-b", "drop") == 0
    assert passwd(str(users), "gone", "-b", "x") == 0
    command = [sys.executable, "-m", "forebay", "broker", "--port", "0", "--mqtt-port", "0", "--json"]
    broker = subprocess.Popen(
        [*command, "--mqtt-password-file", str(users)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert broker.stdout and broker.stderr
        port = port_of(json.loads(broker.stdout.readline())["mqtt_url"])
        with Raw(port, V311) as till, Raw(port, V311) as gone:
            assert till.connect("till", username="till", password="drop")["reason"] == 0
            assert gone.connect("gone", username="gone", password="x")["reason"] == 0
            good = users.read_text()
            users.write_text("not a user\n")
            broker.send_signal(signal.SIGHUP)
            told = line_with("SIGHUP", broker.stderr)
            assert "line 1" in told and "the former users stay" in told
            till.sync()
            gone.sync()
            users.write_text(good)
            assert passwd(str(users), "gone", "-D") == 0
            assert passwd(str(users), "new", "-b", "y") == 0
            broker.send_signal(signal.SIGHUP)
            told = line_with("SIGHUP", broker.stderr)
            assert told.endswith(" broker: SIGHUP: users read again: 2 of mqtt\n")
            till.sync()
            assert gone.closed() == []
        with Raw(port, V311) as peer:
            assert peer.connect("new", username="new", password="y")["reason"] == 0
        broker.terminate()
        assert broker.wait(60) == 0
    finally:
        broker.kill()
        broker.communicate(timeout=300)


def test_a_bad_password_file_is_named(tmp_path: Path) -> None:
    users = tmp_path / "users"
    with pytest.raises(forebay.errors.InvalidArgument, match="mqtt_password_file"):
        forebay.Broker(mqtt_port=0, mqtt_password_file=users)
    users.write_text("till:plain\n")
    with pytest.raises(forebay.errors.InvalidArgument, match="line 1"):
        forebay.Broker(mqtt_port=0, mqtt_password_file=users)


def test_a_token_is_a_password_too() -> None:
    with forebay.Broker(mqtt_port=0, token_key=b"0123456789abcdef0123456789abcdef") as broker:
        with Raw(port_of(broker.mqtt_url)) as peer:
            assert peer.connect("one")["reason"] == 0x87
        with Raw(port_of(broker.mqtt_url)) as peer:
            assert peer.connect("one", username="till", password="a.b.c")["reason"] == 0x86


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMqtt]:
    broker = EmbeddedMqtt(tls=True)
    yield broker
    broker.stop()


@pytest.mark.parametrize("transport", ["tcp", "websockets"])
@pytest.mark.parametrize("tls", [False, True])
def test_paho_over_each_transport(secure: EmbeddedMqtt, transport: str, tls: bool) -> None:
    plain = None if tls else EmbeddedMqtt()
    broker = plain or secure
    got: list[bytes] = []
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "paho", transport=transport)
    client.on_message = lambda _client, _data, message: got.append(message.payload)
    if tls:
        assert secure.certificates
        assert broker.url.startswith("mqtts://")
        client.tls_set_context(secure.certificates.context())
    try:
        client.connect("127.0.0.1", port_of(broker.ws_url if transport == "websockets" else broker.url))
        client.loop_start()
        client.subscribe("t/#", 2)
        payloads = [b"%d" % size + bytes(size) for size in (0, 10, 5000, 300_000)]
        for payload in payloads:
            client.publish("t/x", payload, 2).wait_for_publish(10)
        eventually(lambda: got == payloads)
        client.disconnect()
        client.loop_stop()
    finally:
        if plain:
            plain.stop()
