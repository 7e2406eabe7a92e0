"""The programs mosquitto_pub and mosquitto_sub."""

from __future__ import annotations

import queue
import subprocess
import threading
from typing import Any

from support.mqtt.harness import Mosquitto
from support.mqtt.peers.base import Filter, PeerWill, QueuedPeer, Refused, Seen, Target
from support.mqtt.wire import V5, V31, V311
from support.waiting import PATIENCE


class MosquittoPrograms(QueuedPeer):
    """``subscribe`` starts a mosquitto_sub, ``publish`` runs a mosquitto_pub."""

    name = "mosquitto"
    versions = (V31, V311, V5)
    # The output format: parts between unit separators, payload as hex.
    _PARTS = ("%t", "%q", "%r", "%x", "%C", "%D", "%E", "%F", "%R", "%S", "%P")
    _NAMES = (
        "content_type",
        "correlation_data",
        "message_expiry_interval",
        "payload_format_indicator",
        "response_topic",
        "subscription_identifier",
        "user_property",
    )

    def connect(
        self,
        target: Target,
        client_id: str,
        version: int = V5,
        *,
        clean: bool = True,
        keep_alive: int = 60,
        username: str | None = None,
        password: str | None = None,
        will: PeerWill | None = None,
        properties: dict[str, Any] | None = None,
    ) -> bool:
        self.version, self._client_id = version, client_id
        self._base = ["-p", str(target.port), "-h", "127.0.0.1", "-k", str(keep_alive)]
        self._base += ["-V", {V31: "mqttv31", V311: "mqttv311", V5: "mqttv5"}[version]]
        if target.ca:
            self._base += ["--cafile", str(target.ca)]
        if username is not None:
            self._base += ["-u", username, "-P", password or ""]
        self._sub = [] if clean else ["-c"]
        if will:
            self._sub += ["--will-topic", will.topic, "--will-payload", will.payload.decode()]
            self._sub += ["--will-qos", str(will.qos)] + ["--will-retain"] * will.retain
            self._sub += self._flags("will", will.properties)
        self._sub += self._flags("connect", properties or {})
        self._process: subprocess.Popen[str] | None = None
        return False

    def _flags(self, command: str, properties: dict[str, Any]) -> list[str]:
        flags: list[str] = []
        for name, value in properties.items():
            for one in value if name == "user_property" else [value]:
                words = list(one) if isinstance(one, tuple) else [one]
                flags += ["-D", command, name.replace("_", "-").replace("qos", "qo-s")]
                flags += [word.decode() if isinstance(word, bytes) else str(word) for word in words]
        return flags

    def subscribe(self, *filters: Filter, properties: dict[str, Any] | None = None) -> list[int]:
        assert self._process is None, "mosquitto_sub subscribes once"
        # The program has one QoS for all filters. stdbuf makes it write line by line into the pipe.
        words = [
            "stdbuf",
            "-oL",
            Mosquitto.program("mosquitto_sub"),
            *self._base,
            "-i",
            self._client_id,
            *self._sub,
            "-d",
        ]
        for one in filters:
            words += ["-t", one.text]
        words += ["-q", str(filters[0].qos), "-F", "\x1e" + "\x1f".join(self._PARTS)]
        words += self._flags("subscribe", properties or {})
        if filters[0].retain_as_published:
            words.append("--retain-as-published")
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        self._ready: queue.Queue[list[int] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        granted = self._ready.get(timeout=PATIENCE)
        if granted is None:
            raise Refused("mosquitto_sub ended")
        return granted

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("\x1e"):
                topic, qos, retain, payload, *rest = line[1:].rstrip("\n").split("\x1f")
                properties: dict[str, Any] = {
                    name: value for name, value in zip(self._NAMES, rest, strict=True) if value
                }
                self.messages.put(Seen(topic, bytes.fromhex(payload), int(qos), retain == "1", properties))
            elif line.startswith("Subscribed (mid:"):
                self._ready.put([int(word) for word in line.split("):")[1].split(",")])
        self._ready.put(None)

    def unsubscribe(self, *filters: str) -> None:
        raise AssertionError("mosquitto_sub unsubscribes only before it subscribes")

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: dict[str, Any] | None = None,
    ) -> int:
        words = [Mosquitto.program("mosquitto_pub"), *self._base, "-t", topic, "-q", str(qos)]
        words.append("-s" if payload else "-n")
        words += ["-r"] * retain + self._flags("publish", properties or {})
        done = subprocess.run(words, input=payload, capture_output=True, timeout=PATIENCE, check=False)
        if done.returncode != 0:
            raise Refused(done.stderr.decode().strip())
        return 0

    def disconnect(self, **options: Any) -> None:
        # mosquitto_sub sends DISCONNECT on SIGTERM too.
        self._end("terminate")

    def kill(self) -> None:
        self._end("kill")

    def _end(self, how: str) -> None:
        if self._process is not None:
            getattr(self._process, how)()
            self._process.wait(60)
            self._reader.join(10)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
