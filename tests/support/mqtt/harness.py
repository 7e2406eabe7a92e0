"""Servers that speak MQTT: the embedded broker, Mosquitto and HiveMQ."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import uuid
from typing import Any

from support.certificates import Certificates
from support.mqtt import wire
from support.scripts import ScriptedServer, facts_of, free_port, run_script
from support.service import EmbeddedListener, Service
from support.waiting import PATIENCE

USERS = {"ann": "secret", "bob": "hunter2"}
FORBIDDEN = "pattern deny forbidden/#\npattern readwrite #\n"
"""Rules for brokers with users, in the format of Mosquitto's ``acl_file``."""


class MqttService(Service):
    """``url``, ``ws_url`` and, with certificates, ``tls_url`` of a broker."""

    ws_url: str
    tls_url: str
    certificates: Certificates | None = None

    @staticmethod
    def port_of(url: str) -> int:
        return int(url.rsplit(":", 1)[1].split("/")[0])

    @property
    def port(self) -> int:
        return self.port_of(self.url)

    def topic(self) -> str:
        """A topic of this test alone."""
        return f"t/{uuid.uuid4().hex[:12]}"

    def raw(self, version: int = wire.V5, **options: Any) -> wire.Raw:
        """A connection that sends packets written by hand."""
        return wire.Raw(self.port, version, **options)


class _Scripted(ScriptedServer, MqttService):
    """A broker with optional TLS and users, who may do what ``acl`` says. ``extra`` is appended to its
    configuration."""

    def __init__(
        self,
        *,
        tls: bool = False,
        users: bool = False,
        acl: str = FORBIDDEN,
        extra: str = "",
        **variables: str,
    ) -> None:
        self._acl = acl
        self.data = self.folder()
        self.certificates = Certificates() if tls else None
        own = {"PORT": str(free_port()), "WS_PORT": str(free_port())} | variables
        if self.certificates:
            own |= {"TLS_PORT": str(free_port()), "TLS": str(self.certificates.folder)}
        if users:
            lines = (f"{name}:{password}\n" for name, password in USERS.items())
            own["PASSWORDS"] = self._file("users", "".join(lines))
            own |= self._access()
        if extra:
            own["EXTRA_CONF"] = self._file("extra", extra)
        super().__init__(self.data, **own)

    def _access(self) -> dict[str, str]:
        """Variables that forbid the topics below ``forbidden/``."""
        return {}

    def _file(self, name: str, text: str) -> str:
        path = self.data / name
        path.write_text(text)
        path.chmod(0o600)
        return str(path)

    def started(self, facts: dict[str, str]) -> None:
        self.url, self.ws_url = facts["url"], facts["ws_url"]
        self.tls_url = facts.get("tls_url", "")
        self.pid = int(facts["pid"])

    def remove(self) -> None:
        super().remove()
        if self.certificates:
            self.certificates.remove()

    @property
    def log(self) -> str:
        return (self.data / f"{self.name}.log").read_text(errors="replace")


class Mosquitto(_Scripted):
    """Mosquitto, from PATH or from Debian's packages."""

    name = "mosquitto"

    def _access(self) -> dict[str, str]:
        return {"ACL": self._file("acl", self._acl)}

    @classmethod
    def program(cls, name: str) -> str:
        """The path of mosquitto_pub, mosquitto_sub or mosquitto_rr."""
        folder = facts_of(run_script(cls.script("start-mosquitto"), timeout=300))["path"]
        return f"{folder}/{name}" if folder else name


class HiveMq(_Scripted):
    """HiveMQ Community Edition: strict, and its persistence is on disk."""

    name = "hivemq"
    on_disk = True


def hashed(name: str, password: str) -> str:
    """A line as mosquitto_passwd writes it."""
    salt = os.urandom(12)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 101)
    return f"{name}:$7$101${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}\n"


class EmbeddedMqtt(EmbeddedListener, MqttService):
    """``forebay.Broker`` with an MQTT listener, in a process of its own."""

    port_options = ("mqtt_port", "mqtt_ws_port")

    def __init__(
        self, *, users: bool = False, tls: bool = False, acl: str = FORBIDDEN, **options: Any
    ) -> None:
        self._with_users, self._acl = users, acl
        self.certificates = Certificates() if tls else None
        super().__init__(**options)

    def prepare(self, options: dict[str, Any]) -> dict[str, Any]:
        if self._with_users:
            passwords = self.folder / "users"
            passwords.write_text("".join(hashed(name, password) for name, password in USERS.items()))
            passwords.chmod(0o600)
            options["mqtt_password_file"] = str(passwords)
            rules = self.folder / "acl"
            rules.write_text(self._acl)
            options["acl_file"] = str(rules)
        if self.certificates:
            options["tls_cert"] = str(self.certificates.server_crt)
            options["tls_key"] = str(self.certificates.server_key)
        return options

    def started(self) -> None:
        self.url, self.ws_url = self.call("mqtt_url"), self.call("mqtt_ws_url")

    def stop(self) -> None:
        super().stop()
        if self.certificates:
            self.certificates.remove()


def as_json(value: Any) -> Any:
    """Bytes as hex, pairs as lists."""
    return json.loads(json.dumps(value, default=lambda data: bytes(data).hex()))


async def take(consumer: Any, count: int, timeout: float = PATIENCE) -> list[Any]:
    """Exactly ``count`` messages, each acknowledged on arrival: some brokers wait for one acknowledgement
    before they send the next message."""
    messages: list[Any] = []
    for _ in range(count):
        message = await consumer.receive(timeout=timeout)
        await consumer.ack(message)
        messages.append(message)
    return messages
