"""The part of every ``connect`` of the blocking face."""
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock import options, protocols

if TYPE_CHECKING:
    from penstock.broker import Broker


def opening(url: str | None, given: Mapping[str, Any], only: str | None = None) -> Any:
    """A client, connected.

    Args:
        url, given, only: as :func:`penstock.protocols.for_connection`.

    Raises:
        InvalidArgument, Unsupported: as :func:`penstock.protocols.for_connection`.
    """
    base, values, defaults = protocols.for_connection(url, given, only)
    row = defaults.protocol
    broker: Broker | None = None
    data = protocols.embedded_data(base)
    if data is not None:
        from penstock.broker import Broker

        broker = Broker(data=data) if data else Broker()
    try:
        native = (
            row.native_client_class()
            .connect(broker.url if broker else base, options.to_engine(row.tables["client"], values), None)
            .wait()
        )
    except BaseException:
        if broker:
            broker.stop()
        raise
    return row.blocking_client_class()(native, base, defaults, broker)
