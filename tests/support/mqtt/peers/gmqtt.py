"""gmqtt, an asyncio client with a codec of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import gmqtt
from gmqtt.mqtt.constants import MQTTv50, MQTTv311

from support.mqtt.peers.base import Filter, LoopedPeer, PeerWill, Refused, Seen, Target
from support.mqtt.wire import V5
from support.waiting import PATIENCE


class Gmqtt(LoopedPeer):
    name = "gmqtt"

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
        self.version = version

        async def start() -> bool:
            self.client = gmqtt.Client(
                client_id,
                clean_session=clean,
                will_message=will
                and gmqtt.Message(will.topic, will.payload, will.qos, will.retain, **will.properties),
                **(properties or {}),
            )
            self.client.set_config({"reconnect_retries": 0})
            if username is not None:
                self.client.set_auth_credentials(username, password)
            present: asyncio.Future[bool] = self._loop.create_future()
            self._subscribed: dict[int, asyncio.Future[Any]] = {}
            self.client.on_connect = lambda _c, flags, _r, _p: (
                present.done() or present.set_result(bool(flags))
            )
            self.client.on_message = self._message
            self.client.on_subscribe = lambda _c, mid, qos, _p: self._answer(mid, qos)
            self.client.on_unsubscribe = lambda _c, mid, *_: self._answer(mid, None)
            self.client.on_disconnect = lambda _c, _packet, _exc=None: None
            try:
                await self.client.connect(
                    "127.0.0.1",
                    target.port,
                    ssl=target.context or False,
                    keepalive=keep_alive,
                    version=MQTTv50 if version == V5 else MQTTv311,
                )
            except gmqtt.mqtt.handler.MQTTConnectError as error:
                raise Refused(str(error)) from None
            return await asyncio.wait_for(present, PATIENCE)

        return self._run(start())

    def _answer(self, mid: int, value: Any) -> None:
        self._subscribed.setdefault(mid, self._loop.create_future()).set_result(value)

    async def _answered(self, mid: int) -> Any:
        future = self._subscribed.setdefault(mid, self._loop.create_future())
        return await asyncio.wait_for(future, PATIENCE)

    def _message(self, _client: Any, topic: str, payload: bytes, qos: int, properties: dict[str, Any]) -> int:
        retain = bool(properties.pop("retain", 0))
        properties.pop("dup", None)
        # gmqtt makes every value a list; only these properties are lists.
        properties = {
            name: value
            if name in {"user_property", "subscription_identifier"} or not isinstance(value, list)
            else value[0]
            for name, value in properties.items()
        }
        self.messages.put(Seen(topic, bytes(payload), qos, retain, properties))
        return 0

    def subscribe(self, *filters: Filter, properties: dict[str, Any] | None = None) -> list[int]:
        wanted = [
            gmqtt.Subscription(
                one.text,
                one.qos,
                no_local=one.no_local,
                retain_as_published=one.retain_as_published,
                retain_handling_options=one.retain_handling,
            )
            for one in filters
        ]

        async def go() -> Any:
            return await self._answered(self.client.subscribe(wanted, **(properties or {})))

        return list(self._run(go()))

    def unsubscribe(self, *filters: str) -> None:
        async def go() -> None:
            await self._answered(self.client.unsubscribe(list(filters)))

        self._run(go())

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: dict[str, Any] | None = None,
    ) -> int:
        async def go() -> None:
            self.client.publish(topic, payload, qos, retain, **(properties or {}))
            if qos:
                await asyncio.wait_for(self.client._persistent_storage.wait_empty(), PATIENCE)

        self._run(go())
        return 0

    def disconnect(self, **options: Any) -> None:
        self._run(self.client.disconnect(**options))

    def kill(self) -> None:
        async def abort() -> None:
            self.client._is_active = False
            self.client._connection._transport.abort()
            await asyncio.sleep(0)

        self._run(abort())
