"""The part of every ``connect`` of the blocking face."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forebay._core import options, protocols
from forebay._core.first_connect import Retries
from forebay._core.secrets import prepared
from forebay.errors import Error

if TYPE_CHECKING:
    from forebay.broker import Broker


def opening(url: str | None, given: Mapping[str, Any], only: str | None = None) -> Any:
    """A client, connected.

    Args:
        url, given, only: as :func:`forebay._core.protocols.for_connection`.

    Raises:
        InvalidArgument, Unsupported: as :func:`forebay._core.protocols.for_connection`.
    """
    base, values, defaults = protocols.for_connection(url, given, only)
    row = defaults.protocol
    retries = Retries(row.key, values)
    table = row.tables["client"]
    broker: Broker | None = None
    data = protocols.embedded_data(base)
    if data is not None:
        from forebay.broker import Broker

        broker = Broker(data=data) if data else Broker()
    try:
        address = broker.url if broker else base
        given_to_engine = options.to_engine(table, prepared(table, values, None))
        native = None
        while native is None:
            try:
                native = row.native_client_class().connect(address, given_to_engine, None).wait()
            except Error as error:
                time.sleep(retries.pause(error))
    except BaseException:
        if broker:
            broker.stop()
        raise
    client = row.blocking_client_class()(native, base, defaults, broker)
    client._feed.failed_before = retries.failed
    return client
