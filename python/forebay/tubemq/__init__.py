"""Apache InLong TubeMQ: clients, options, positions, and partitions that can be paused.

>>> from forebay.tubemq import Position
>>> at = Position.parse("1:10002:560")
>>> at.broker_id, at.partition, at.offset
(1, 10002, 560)
"""

from typing import TYPE_CHECKING

from forebay._core import attach as _attach

if TYPE_CHECKING:
    from . import blocking as blocking
    from ._client import TubeMqClient as TubeMqClient
    from ._client import TubeMqConsumer as TubeMqConsumer
    from ._client import TubeMqProducer as TubeMqProducer
    from ._client import connect as connect
    from ._options import TubeMqClientOptions as TubeMqClientOptions
    from ._options import TubeMqConsumerOptions as TubeMqConsumerOptions
    from ._options import TubeMqProducerOptions as TubeMqProducerOptions
    from ._positions import PartitionState as PartitionState
    from ._positions import Position as Position
    from ._positions import TubeMqMessage as TubeMqMessage
else:
    __getattr__, __dir__ = _attach(
        __name__,
        {
            "blocking": "",
            **dict.fromkeys(("TubeMqClient", "TubeMqConsumer", "TubeMqProducer", "connect"), "_client"),
            **dict.fromkeys(
                ("TubeMqClientOptions", "TubeMqConsumerOptions", "TubeMqProducerOptions"), "_options"
            ),
            **dict.fromkeys(("PartitionState", "Position", "TubeMqMessage"), "_positions"),
        },
    )

__all__ = [
    "PartitionState",
    "Position",
    "TubeMqClient",
    "TubeMqClientOptions",
    "TubeMqConsumer",
    "TubeMqConsumerOptions",
    "TubeMqMessage",
    "TubeMqProducer",
    "TubeMqProducerOptions",
    "blocking",
    "connect",
]
