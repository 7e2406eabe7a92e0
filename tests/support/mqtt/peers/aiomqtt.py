"""aiomqtt, which is paho-mqtt with an asyncio interface."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes

from support.mqtt.peers.base import Filter, LoopedPeer, PeerWill, Refused, Seen, Target
from support.mqtt.peers.paho import from_paho, paho_filters, paho_properties
from support.mqtt.wire import V5, V31, V311
from support.waiting import PATIENCE


class Aiomqtt(LoopedPeer):
    name = "aiomqtt"
    versions = (V31, V311, V5)

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
            options: dict[str, Any] = {"clean_start": clean} if version == V5 else {"clean_session": clean}
            self.client = aiomqtt.Client(
                "127.0.0.1",
                target.port,
                identifier=client_id,
                timeout=PATIENCE,
                protocol=aiomqtt.ProtocolVersion(version),
                keepalive=keep_alive,
                username=username,
                password=password,
                transport="websockets" if target.websocket else "tcp",
                websocket_path="/mqtt" if target.websocket else None,
                tls_context=target.context,
                will=will
                and aiomqtt.Will(
                    will.topic,
                    will.payload,
                    will.qos,
                    will.retain,
                    paho_properties(PacketTypes.WILLMESSAGE, will.properties),
                ),
                properties=paho_properties(PacketTypes.CONNECT, properties),
                **options,
            )
            # The client does not report whether the session was present; the paho client below it
            # does.
            present = False
            inner = self.client._client
            inner.connect_timeout = PATIENCE
            theirs = inner.on_connect

            def on_connect(one: Any, data: Any, flags: Any, reason: Any, props: Any) -> None:
                nonlocal present
                present = bool(flags.session_present)
                theirs(one, data, flags, reason, props)

            inner.on_connect = on_connect
            try:
                await self.client.__aenter__()
            except aiomqtt.MqttError as error:
                raise Refused(str(error)) from None
            self._reader = asyncio.ensure_future(self._read())
            return present

        return self._run(start())

    async def _read(self) -> None:
        with contextlib.suppress(aiomqtt.MqttError):
            async for message in self.client.messages:
                self.messages.put(
                    Seen(
                        message.topic.value,
                        bytes(message.payload),
                        message.qos,
                        bool(message.retain),
                        from_paho(message.properties),
                    )
                )

    def subscribe(self, *filters: Filter, properties: dict[str, Any] | None = None) -> list[int]:
        granted = self._run(
            self.client.subscribe(
                paho_filters(filters, self.version),
                properties=paho_properties(PacketTypes.SUBSCRIBE, properties),
            )
        )
        return [getattr(one, "value", one) for one in granted]

    def unsubscribe(self, *filters: str) -> None:
        self._run(self.client.unsubscribe(list(filters)))

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: dict[str, Any] | None = None,
    ) -> int:
        props = paho_properties(PacketTypes.PUBLISH, properties)
        try:
            self._run(self.client.publish(topic, payload, qos, retain, props))
        except aiomqtt.MqttError as error:
            raise Refused(str(error)) from None
        return 0

    def disconnect(self, **options: Any) -> None:
        self._run(self.client.__aexit__(None, None, None))

    def kill(self) -> None:
        async def abort() -> None:
            sock = self.client._client.socket()
            assert sock is not None
            sock.shutdown(2)
            with contextlib.suppress(aiomqtt.MqttError):
                await self.client._disconnected
            with contextlib.suppress(aiomqtt.MqttError):
                await self.client.__aexit__(None, None, None)

        self._run(abort())
