"""The part of every ``connect`` of the asyncio face. Written by hand, like its twin
``penstock/blocking/_opening.py``.
"""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _native, options, protocols
from ._handle import Opening

if TYPE_CHECKING:
    from ._base import Client
    from .broker import Broker


def opening(url: str | None, given: Mapping[str, Any], only: str | None = None) -> Opening[Any]:
    """A client that is about to connect.

    Args:
        url, given, only: as :func:`penstock.protocols.for_connection`.

    Raises:
        InvalidArgument, Unsupported: as :func:`penstock.protocols.for_connection`.
    """
    base, values, defaults = protocols.for_connection(url, given, only)
    row = defaults.protocol

    async def start() -> Client:
        broker: Broker | None = None
        data = protocols.embedded_data(base)
        if data is not None:
            from .broker import Broker

            broker = await asyncio.to_thread(lambda: Broker(data=data) if data else Broker())
        loop = asyncio.get_running_loop()
        bridge = _native.Loop(loop)
        try:
            native = await row.native_client_class().connect(
                broker.url if broker else base, options.to_engine(row.tables["client"], values), bridge
            )
        except BaseException:
            bridge.close()
            if broker:
                await asyncio.to_thread(broker.stop)
            raise
        return row.client_class()(native, loop, bridge, base, defaults, broker)

    return Opening(start)
