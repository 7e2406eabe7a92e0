"""The part of every ``connect`` of the asyncio face. Written by hand, like its twin
``forebay/_sync/open_handle.py``.
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forebay._core import options, protocols
from forebay._core.first_connect import Retries
from forebay._core.native import Loop
from forebay._core.secrets import prepared
from forebay.errors import Error

from .handle import Opening

if TYPE_CHECKING:
    from forebay.broker import Broker

    from .base import Client


def opening(url: str | None, given: Mapping[str, Any], only: str | None = None) -> Opening[Any]:
    """A client that is about to connect.

    Args:
        url, given, only: as :func:`forebay._core.protocols.for_connection`.

    Raises:
        InvalidArgument, Unsupported: as :func:`forebay._core.protocols.for_connection`.
    """
    base, values, defaults = protocols.for_connection(url, given, only)
    row = defaults.protocol
    table = row.tables["client"]

    async def start() -> Client:
        broker: Broker | None = None
        data = protocols.embedded_data(base)
        if data is not None:
            from forebay.broker import Broker

            broker = await asyncio.to_thread(lambda: Broker(data=data) if data else Broker())
        loop = asyncio.get_running_loop()
        retries = Retries(row.key, values)
        bridge = Loop(loop)
        try:
            address = broker.url if broker else base
            given_to_engine = options.to_engine(table, prepared(table, values, loop))
            native = None
            while native is None:
                try:
                    native = await row.native_client_class().connect(address, given_to_engine, bridge)
                except Error as error:
                    await asyncio.sleep(retries.pause(error))
        except BaseException:
            bridge.close()
            if broker:
                await asyncio.to_thread(broker.stop)
            raise
        client = row.client_class()(native, loop, bridge, base, defaults, broker)
        client._feed.failed_before = retries.failed
        return client

    return Opening(start)
