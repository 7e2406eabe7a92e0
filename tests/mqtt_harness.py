"""Brokers that speak MQTT, and a proxy that records what passes and cuts where it is told to."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import socket
import ssl
import tempfile
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from cryptography.x509.oid import ExtendedKeyUsageOID

import mqtt_wire
from certificates import Authority
from harness import HERE, EmbeddedBroker, Service, facts_of, free_port, run_script

USERS = {"ann": "secret", "bob": "hunter2"}
PASSWORDS = "".join(f"{name}:{word}\n" for name, word in USERS.items())


class Certificates:
    """A folder with what a TLS listener and its clients need."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-tls-"))
        authority = Authority()
        self.ca = self._write("ca.crt", authority.pem)
        for name, usage in (
            ("server", ExtendedKeyUsageOID.SERVER_AUTH),
            ("client", ExtendedKeyUsageOID.CLIENT_AUTH),
        ):
            chain, key = authority.leaf(usage=usage)
            self._write(f"{name}.crt", chain)
            self._write(f"{name}.key", key)

    def _write(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        path.chmod(0o600)
        return path

    def __getattr__(self, name: str) -> Path:
        """``server_crt`` is the path of server.crt."""
        path = self.folder / name.replace("_", ".")
        if not path.exists():
            raise AttributeError(name)
        return path

    def context(self, *, client_certificate: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if client_certificate:
            context.load_cert_chain(self.client_crt, self.client_key)
        return context

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


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

    def topic(self, partitions: int = 0) -> str:
        """A topic that no other test uses."""
        assert not partitions, "MQTT has no partitions"
        return f"t/{uuid.uuid4().hex[:12]}"

    def raw(self, version: int = mqtt_wire.V5, **options: Any) -> mqtt_wire.Raw:
        return mqtt_wire.Raw(self.port, version, **options)

    def stop(self) -> None:
        raise NotImplementedError


class _Scripted(MqttService):
    """A broker that a start script starts and a stop script ends."""

    #: What the script's variables begin with.
    prefix: str

    def __init__(
        self,
        *,
        tls: bool = False,
        users: bool = False,
        extra: str = "",
        **variables: str,
    ) -> None:
        self.data = Path(tempfile.mkdtemp(prefix=f"penstock-{self.name}-"))
        self.certificates = Certificates() if tls else None
        own = {
            "PORT": str(free_port()),
            "WS_PORT": str(free_port()),
            "WATCH_PID": str(os.getpid()),
        } | variables
        if self.certificates:
            own |= {"TLS_PORT": str(free_port()), "TLS": str(self.certificates.folder)}
        if users:
            own["PASSWORDS"] = self._file(
                "users", "".join(f"{name}:{word}\n" for name, word in USERS.items())
            )
            own |= self._access()
        if extra:
            own["EXTRA_CONF"] = self._file("extra", extra)
        self._environment = os.environ | {f"{self.prefix}_{name}": value for name, value in own.items()}
        self.start()

    def _access(self) -> dict[str, str]:
        """What forbids the topics below ``forbidden/``."""
        return {}

    def _file(self, name: str, text: str) -> str:
        path = self.data / name
        path.write_text(text)
        path.chmod(0o600)
        return str(path)

    def _script(self, verb: str) -> str:
        return str(HERE / "brokers" / self.name / f"{verb}-{self.name}")

    def start(self) -> None:
        """Starts it; the same ports and data when it was stopped."""
        try:
            words = (self._script("start"), str(self.data))
            facts = facts_of(run_script(*words, environment=self._environment, timeout=600))
        except RuntimeError:
            self._remove()
            raise
        self.url, self.ws_url = facts["url"], facts["ws_url"]
        self.tls_url = facts.get("tls_url", "")
        self.pid = int(facts["pid"])

    def halt(self, *, kill: bool = False) -> None:
        """Ends the process and keeps the data."""
        environment = self._environment | ({f"{self.prefix}_STOP_TIMEOUT": "0"} if kill else {})
        run_script(self._script("stop"), str(self.data), environment=environment, timeout=60)

    def restart(self, *, kill: bool = False) -> None:
        self.halt(kill=kill)
        self.start()

    def _remove(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)
        if self.certificates:
            self.certificates.remove()

    def stop(self) -> None:
        self.halt(kill=True)
        self._remove()

    @property
    def log(self) -> str:
        return (self.data / f"{self.name}.log").read_text(errors="replace")


class Mosquitto(_Scripted):
    """Mosquitto, from PATH or from Debian's packages."""

    name = "mosquitto"
    prefix = "MOSQUITTO"

    def _access(self) -> dict[str, str]:
        return {"ACL": self._file("acl", "pattern deny forbidden/#\npattern readwrite #\n")}

    @staticmethod
    def program(name: str) -> str:
        """The path of mosquitto_pub, mosquitto_sub or mosquitto_rr."""
        said = run_script(str(HERE / "brokers" / "mosquitto" / "start-mosquitto"), timeout=300)
        folder = facts_of(said)["path"]
        return f"{folder}/{name}" if folder else name


class HiveMq(_Scripted):
    """HiveMQ Community Edition: strict, and its persistence is on disk."""

    name = "hivemq"
    prefix = "HIVEMQ"


def hashed(name: str, password: str) -> str:
    """A line as mosquitto_passwd writes it."""
    salt = os.urandom(12)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 101)
    return f"{name}:$7$101${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}\n"


class EmbeddedMqtt(MqttService):
    """``penstock.Broker`` with an MQTT listener, in a process of its own."""

    name = "embedded"

    def __init__(self, *, users: bool = False, tls: bool = False, **options: Any) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-embedded-"))
        self.certificates = Certificates() if tls else None
        if users:
            passwords = self.folder / "users"
            passwords.write_text("".join(hashed(name, word) for name, word in USERS.items()))
            passwords.chmod(0o600)
            options["mqtt_password_file"] = str(passwords)
        if self.certificates:
            options["tls_cert"] = str(self.certificates.server_crt)
            options["tls_key"] = str(self.certificates.server_key)
        defaults = {"durability": "memory", "mqtt_port": free_port(), "mqtt_ws_port": free_port()}
        self._options: dict[str, Any] = defaults | options
        if self._options.get("data") is True:
            self._options["data"] = str(self.folder / "data")
            self._options["durability"] = options.get("durability", "fsync")
        self.start()

    def start(self) -> None:
        self._process = EmbeddedBroker(**self._options)
        self.url = self._process.call("mqtt_url")
        self.ws_url = self._process.call("mqtt_ws_url")

    @property
    def pid(self) -> int:
        return self._process.process.pid

    def call(self, method: str, *arguments: Any) -> Any:
        return self._process.call(method, *arguments)

    def halt(self, *, kill: bool = False) -> None:
        if kill:
            self._process.process.kill()
            self._process.process.wait()
        self._process.stop()

    def restart(self, *, kill: bool = False) -> None:
        self.halt(kill=kill)
        self.start()

    def stop(self) -> None:
        self.halt()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.certificates:
            self.certificates.remove()


# ------------------------------------------------------------------------------ between client and broker


class Passage:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self._sockets = {"client": client, "broker": broker}
        #: Who said it, and the packet, in the order in which they were seen; all of them were forwarded but
        #: the one that the connection was cut before.
        self.packets: list[tuple[str, mqtt_wire.Packet]] = []
        #: "client", "broker" or "proxy".
        self.closed_by: str | None = None
        self.done = threading.Event()

    def cut(self, by: str = "proxy") -> None:
        if self.closed_by is None:
            self.closed_by = by
        for one in self._sockets.values():
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def pump(self, origin: str, verdict: Callable[[Passage, str, mqtt_wire.Packet], str]) -> None:
        source = self._sockets[origin]
        target = self._sockets["broker" if origin == "client" else "client"]
        buffer = bytearray()
        try:
            while data := source.recv(65536):
                buffer += data
                while (one := mqtt_wire.take(buffer)) is not None:
                    what = verdict(self, origin, one)
                    self.packets.append((origin, one))
                    if what != "cut before":
                        target.sendall(one.raw)
                    if what != "pass":
                        self.cut()
                        return
        except OSError:
            pass
        except mqtt_wire.Malformed:
            # No MQTT, so nobody counts it.
            with contextlib.suppress(OSError):
                target.sendall(buffer)
        finally:
            self.cut(origin)

    def close(self) -> None:
        for one in self._sockets.values():
            one.close()
        self.done.set()


class Proxy:
    """Forwards packet by packet. ``verdict(passage, origin, packet)`` says for each what becomes of it:
    "pass", "cut before" it is forwarded, or "cut after". It may be set anew at any time."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._lock = threading.Lock()
        self.verdict: Callable[[Passage, str, mqtt_wire.Packet], str] = lambda *_: "pass"
        self.passages: list[Passage] = []
        #: While it is set, connections are accepted and closed at once.
        self.refuses = False
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"mqtt://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            try:
                if self.refuses:
                    raise OSError
                broker = socket.create_connection(("127.0.0.1", self._target), 5)
            except OSError:
                client.close()
                continue
            for one in (client, broker):
                one.settimeout(None)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            passage = Passage(client, broker)
            self.passages.append(passage)
            threading.Thread(target=self._run, args=(passage,), daemon=True).start()

    def _run(self, passage: Passage) -> None:
        def verdict(*arguments: Any) -> str:
            # One at a time: the two directions of a connection share their count.
            with self._lock:
                return self.verdict(*arguments)

        other = threading.Thread(target=passage.pump, args=("broker", verdict), daemon=True)
        other.start()
        passage.pump("client", verdict)
        other.join()
        passage.close()

    def cut_at(self, number: int, *, before: bool) -> None:
        """Of the packets from now on, in both directions together, ends the connection at this one (from 0),
        once; after that everything passes."""
        seen = -1

        def verdict(passage: Passage, origin: str, one: mqtt_wire.Packet) -> str:
            nonlocal seen
            seen += 1
            if seen == number:
                return "cut before" if before else "cut after"
            return "pass"

        self.verdict = verdict

    def cut(self) -> None:
        """Ends the connections that are there."""
        for passage in self.passages:
            passage.cut()

    @property
    def packets(self) -> list[tuple[str, mqtt_wire.Packet]]:
        """Those of all connections."""
        return [seen for passage in self.passages for seen in passage.packets]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.cut()
        for passage in self.passages:
            passage.done.wait(5)


def as_json(value: Any) -> Any:
    """Bytes as hex, pairs as lists."""
    return json.loads(json.dumps(value, default=lambda data: bytes(data).hex()))


async def take(consumer: Any, count: int, timeout: float = 10.0) -> list[Any]:
    """Exactly that many messages, each acknowledged when it came: there are brokers that wait for one answer
    before they send the next."""
    messages: list[Any] = []
    for _ in range(count):
        message = await consumer.receive(timeout=timeout)
        await consumer.ack(message)
        messages.append(message)
    return messages
