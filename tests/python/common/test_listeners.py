"""Listeners of ``forebay.Broker``, with clients of this package and official ones: certificates that name
the user, anonymous listeners beside others, Unix sockets, TLS beside plain listeners."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from paho.mqtt.enums import CallbackAPIVersion

import forebay
import pulsar
from forebay import blocking, errors
from forebay.errors import InvalidArgument

from support.certificates import Authority
from support.mqtt.wire import V5, Raw
from support.waiting import PATIENCE, eventually


class Names:
    """A server's certificate, and clients' certificates by the name in them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.authority = folder, Authority()
        (folder / "ca.pem").write_bytes(self.authority.pem)
        self.ca = str(folder / "ca.pem")
        self.cert, self.key = self.of("server", self.authority.leaf())

    def of(self, name: str, made: tuple[bytes, bytes]) -> tuple[str, str]:
        paths = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        for path, content in zip(paths, made, strict=True):
            path.write_bytes(content)
        return str(paths[0]), str(paths[1])

    def client(self, name: str, authority: Authority | None = None) -> dict[str, Any]:
        made = (authority or self.authority).leaf(usage=ExtendedKeyUsageOID.CLIENT_AUTH, common=name)
        cert, key = self.of(f"client-{len(list(self.folder.iterdir()))}", made)
        return {"tls_ca": self.ca, "tls_cert": cert, "tls_key": key}


@pytest.fixture
def names(tmp_path: Path) -> Names:
    return Names(tmp_path)


def test_certificates_name_the_user_in_every_protocol(names: Names) -> None:
    tls = {"tls_cert": names.cert, "tls_key": names.key, "tls_client_ca": names.ca}
    with forebay.Broker(
        mqtt_port=0, tubemq_port=0, http_port=0, host="0.0.0.0", **tls
    ) as broker:  # fmt: skip
        urls = {name: url.replace("0.0.0.0", "127.0.0.1") for name, url in broker.urls.items()}
        stranger = names.client("mallory", Authority("another authority"))
        for name in ("pulsar", "mqtt", "tubemq"):
            with blocking.connect(urls[name], **names.client("till")) as client:
                with client.producer("orders") as producer:
                    producer.send(b"x")
            for bad in ({"tls_ca": names.ca}, stranger):
                with pytest.raises(errors.Error), blocking.connect(urls[name], connect_timeout=5, **bad):
                    pass
        context = ssl.create_default_context(cafile=names.ca)
        with pytest.raises(OSError):
            urllib.request.urlopen(f"{urls['http']}/metrics", context=context, timeout=5)
        mine = names.client("till")
        context.load_cert_chain(mine["tls_cert"], mine["tls_key"])
        with urllib.request.urlopen(f"{urls['http']}/metrics", context=context, timeout=PATIENCE) as answer:
            assert answer.status == 200


def test_the_official_clients_come_with_their_certificates(names: Names) -> None:
    tls = {"tls_cert": names.cert, "tls_key": names.key, "tls_client_ca": names.ca}
    with forebay.Broker(mqtt_port=0, **tls) as broker:
        mine = names.client("till")
        client = pulsar.Client(
            broker.url,
            authentication=pulsar.AuthenticationTLS(mine["tls_cert"], mine["tls_key"]),
            tls_trust_certs_file_path=names.ca,
        )
        try:
            client.create_producer("orders").send(b"x")
        finally:
            client.close()
        connected: list[Any] = []
        device = paho.Client(CallbackAPIVersion.VERSION2, client_id="c")
        device.tls_set(names.ca, mine["tls_cert"], mine["tls_key"])
        device.on_connect = lambda *given: connected.append(given[3])
        device.connect("127.0.0.1", int(str(broker.mqtt_url).rsplit(":", 1)[1]))
        device.loop_start()
        try:
            eventually(lambda: bool(connected))
        finally:
            device.disconnect()
            device.loop_stop()
        assert not connected[0].is_failure


def test_a_session_belongs_to_the_name_in_the_certificate(names: Names) -> None:
    tls = {"tls_cert": names.cert, "tls_key": names.key, "tls_client_ca": names.ca}
    listeners = [{"protocol": "mqtt", **tls}, {"protocol": "mqtt"}]

    def reason_and_present(port: int, name: str | None) -> tuple[int, bool]:
        context = None
        if name:
            mine = names.client(name)
            context = ssl.create_default_context(cafile=names.ca)
            context.load_cert_chain(mine["tls_cert"], mine["tls_key"])
        with Raw(port, context=context) as peer:
            said = peer.connect("device", clean=False, props={"session_expiry_interval": 60})
        return said["reason"], said["session_present"]

    with forebay.Broker(listeners=listeners) as broker:
        secure, plain = (int(url.rsplit(":", 1)[1]) for url in broker.all_urls)
        assert reason_and_present(secure, "till") == (0, False)
        for port, name in ((secure, "mallory"), (plain, None)):
            assert reason_and_present(port, name) == (0x85, False), "the identifier belongs to another user"
        assert reason_and_present(secure, "till") == (0, True)


RULES = """\
topic readwrite public
user till
topic readwrite orders
topic readwrite persistent://public/default/orders
topic readwrite tubemq:orders
user root
superuser
"""


def test_permissions_know_the_name_in_the_certificate(names: Names, tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text(RULES)
    tls = {"tls_cert": names.cert, "tls_key": names.key, "tls_client_ca": names.ca}
    listeners: list[dict[str, Any]] = [
        *({"protocol": name, **tls} for name in ("pulsar", "mqtt", "tubemq", "http")),
        {"protocol": "mqtt"},
    ]
    till, mallory, root = (names.client(name) for name in ("till", "mallory", "root"))

    def send(url: str, topic: str, **options: Any) -> None:
        with blocking.connect(url, **options) as client, client.producer(topic) as producer:
            producer.send(b"x")

    with forebay.Broker(listeners=listeners, acl_file=rules) as broker:
        *secure, http, plain = broker.all_urls
        for url in secure:
            send(url, "orders", **till)
            send(url, "others", **root)
            for who, topic in ((mallory, "orders"), (till, "others")):
                with pytest.raises((errors.AuthorizationError, errors.TopicNotFound)):
                    send(url, topic, **who)
        send(plain, "public")
        with pytest.raises(errors.AuthorizationError):
            send(plain, "orders")
        for who, status in ((till, 403), (root, 200)):
            context = ssl.create_default_context(cafile=names.ca)
            context.load_cert_chain(who["tls_cert"], who["tls_key"])
            try:
                with urllib.request.urlopen(f"{http}/metrics", context=context, timeout=PATIENCE) as answer:
                    assert answer.status == status
            except urllib.error.HTTPError as error:
                with error:
                    assert error.code == status


def test_plain_and_tls_stand_side_by_side(names: Names) -> None:
    listeners = [{"protocol": "pulsar", "tls_cert": names.cert, "tls_key": names.key}]
    with forebay.Broker(port=0, listeners=listeners) as broker:
        plain, secure = broker.all_urls
        assert (plain.split(":")[0], secure.split(":")[0]) == ("pulsar", "pulsar+ssl")
        with blocking.connect(plain) as one, blocking.connect(secure, tls_ca=names.ca) as other:
            with one.consumer("orders", "s") as consumer, other.producer("orders") as producer:
                producer.send(b"across")
                assert consumer.receive(timeout=PATIENCE).data == b"across"
        official = pulsar.Client(secure, tls_trust_certs_file_path=names.ca)
        try:
            official.create_producer("orders").send(b"x")
        finally:
            official.close()


def test_an_anonymous_listener_takes_nothing_from_users(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(
        "till:$7$101$dkowch7IvcMGC9ZP$LWnT8hQq9KQjwhFy+BJZzeRv+47iAysVi4D7fS6Au6TcZWCkQuZK4EC2qpt4vGwToQeY"
        "y/hIwX9gZ6JyPQf4pg==\n"
    )
    listeners = [{"protocol": "mqtt"}, {"protocol": "mqtt", "anonymous": True}]
    with forebay.Broker(listeners=listeners, mqtt_password_file=users) as broker:
        asking, open_ = (int(url.rsplit(":", 1)[1]) for url in broker.all_urls)
        with Raw(asking, version=V5) as peer:
            assert peer.connect("c")["reason"] != 0
        with Raw(open_, version=V5) as peer:
            assert peer.connect("c")["reason"] == 0


def test_a_unix_socket_is_for_this_package_and_for_paho(tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    with forebay.Broker(listeners=[{"protocol": "mqtt", "unix": str(path)}]) as broker:
        assert broker.url == f"mqtt+unix://{path}"
        with blocking.connect(broker.url) as client, client.consumer("t") as consumer:
            device = paho.Client(CallbackAPIVersion.VERSION2, transport="unix")
            device.connect(str(path))
            device.loop_start()
            try:
                device.publish("t", b"x", qos=1).wait_for_publish(PATIENCE)
            finally:
                device.disconnect()
                device.loop_stop()
            assert consumer.receive(timeout=PATIENCE).data == b"x"
    assert not path.exists()


def test_off_turns_a_port_off() -> None:
    with forebay.Broker(port="off", mqtt_port=0, http_port="off") as broker:
        assert list(broker.urls) == ["mqtt"]
        assert broker.url == broker.mqtt_url
        assert broker.status()["url"] == broker.url
    with pytest.raises(InvalidArgument, match="nothing to listen on"):
        forebay.Broker(port="off")


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"listeners": "mqtt"}, "expected a list of mappings"),
        (
            {"listeners": [{"portt": 1}]},
            "listener 1: A listener has no option 'portt'; did you mean",
        ),
        ({"listeners": [{"port": 1}]}, "needs a protocol"),
        ({"listeners": [{"protocol": "mqtt", "mode": "0660"}]}, "set unix"),
        ({"listeners": [{"protocol": "mqtt", "unix": "a", "mode": "rw"}]}, "octal"),
        ({"listeners": [{"protocol": "mqtt", "tls": True}]}, "needs a certificate"),
        ({"tls_client_ca": b"-----BEGIN"}, "needs TLS"),
        ({"tls_cert": b"-----BEGIN"}, "together"),
        ({"port": "of"}, "nor 'off'"),
        ({"host": "0.0.0.0"}, "the pulsar listener on 0.0.0.0:0: set token_key"),
        ({"host": "0.0.0.0", "port": "off", "tubemq_port": 0}, "the tubemq listener on 0.0.0.0:0"),
    ],
)
def test_what_a_listener_lacks_is_named(options: dict[str, Any], part: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        forebay.Broker(**options)
    assert part in str(raised.value)
