"""The npm client MQTT.js, in a Node process driven over pipes."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from support.mqtt.peers.base import Filter, Peer, PeerWill, Refused, Seen, Target, snake_case
from support.mqtt.wire import V5, V31, V311
from support.scripts import BROKERS, run_script
from support.waiting import PATIENCE


def _lower_camel(name: str) -> str:
    camel = "".join(part.capitalize() for part in name.split("_"))
    return {"userProperty": "userProperties"}.get(result := camel[0].lower() + camel[1:], result)


def js_properties(given: dict[str, Any] | None) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in (given or {}).items():
        if name == "user_property":
            pairs: dict[str, Any] = {}
            for key, one in value:
                pairs.setdefault(key, []).append(one)
            made["userProperties"] = {key: ones[0] if len(ones) == 1 else ones for key, ones in pairs.items()}
        elif isinstance(value, bytes):
            made[_lower_camel(name)] = value.hex()
        elif name.startswith("request_") or name == "payload_format_indicator":
            made[_lower_camel(name)] = bool(value)
        else:
            made[_lower_camel(name)] = value
    return made


def _from_js(given: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in given.items():
        snake = snake_case(name)
        if snake == "user_properties":
            found["user_property"] = [
                (key, one)
                for key, many in value.items()
                for one in (many if isinstance(many, list) else [many])
            ]
        elif snake in {"correlation_data", "authentication_data"}:
            found[snake] = bytes.fromhex(value)
        elif snake == "subscription_identifier":
            found[snake] = value if isinstance(value, list) else [value]
        elif isinstance(value, bool):
            found[snake] = int(value)
        else:
            found[snake] = value
    return found


class MqttJs(Peer):
    name = "mqtt.js"
    versions = (V31, V311, V5)

    def __init__(self) -> None:
        folder = BROKERS / "mqtt-js"
        modules = run_script(str(folder / "ensure-mqtt-js"), timeout=300).strip()
        self._process = subprocess.Popen(
            ["node", str(folder / "peer.js")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={"NODE_PATH": modules, "PATH": os.environ["PATH"]},
        )

    def call(self, *words: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        line = self._process.stdout.readline()
        assert line, "the npm client ended"
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["ok"]

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
        challenge: str | None = None,
        **more: Any,
    ) -> bool:
        self.version = version
        options: dict[str, Any] = {
            "clientId": client_id,
            "protocolVersion": version,
            "clean": clean,
            "keepalive": keep_alive,
            "connectTimeout": int(PATIENCE * 1000),
            **more,
        }
        if version == V31:
            options["protocolId"] = "MQIsdp"
        if username is not None:
            options |= {"username": username, "password": password}
        if properties:
            options["properties"] = js_properties(properties)
        if will:
            options["will"] = {
                "topic": will.topic,
                "payload": will.payload.hex(),
                "qos": will.qos,
                "retain": will.retain,
            }
            if will.properties:
                options["will"]["properties"] = js_properties(will.properties)
        scheme = ("wss" if target.ca else "ws") if target.websocket else ("mqtts" if target.ca else "mqtt")
        if target.ca:
            options["ca"] = target.ca.read_text()
        path = "/mqtt" if target.websocket else ""
        self.connack = self.call("connect", f"{scheme}://127.0.0.1:{target.port}{path}", options, challenge)
        return bool(self.connack["session_present"])

    def subscribe(self, *filters: Filter, properties: dict[str, Any] | None = None) -> list[int]:
        wanted = {
            one.text: {"qos": one.qos}
            | (
                {"nl": one.no_local, "rap": one.retain_as_published, "rh": one.retain_handling}
                if self.version == V5
                else {}
            )
            for one in filters
        }
        options = {"properties": js_properties(properties)} if properties else {}
        return self.call("subscribe", wanted, options)

    def unsubscribe(self, *filters: str) -> None:
        self.call("unsubscribe", list(filters))

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: dict[str, Any] | None = None,
    ) -> int:
        options: dict[str, Any] = {"qos": qos, "retain": retain}
        if properties:
            options["properties"] = js_properties(properties)
        return self.call("publish", topic, payload.hex(), options)

    def _receive(self, count: int, timeout: float) -> list[Seen]:
        return [
            Seen(
                one["topic"],
                bytes.fromhex(one["payload"]),
                one["qos"],
                one["retain"],
                _from_js(one["properties"]),
            )
            for one in self.call("receive", count, int(timeout * 1000))
        ]

    def disconnect(self, **options: Any) -> None:
        if "properties" in options:
            options["properties"] = js_properties(options["properties"])
        if "reason" in options:
            options["reasonCode"] = options.pop("reason")
        self.call("end", options)

    def kill(self) -> None:
        self.call("kill")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
