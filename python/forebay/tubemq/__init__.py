"""Apache InLong TubeMQ: clients, options, positions, and partitions that can be paused.

>>> from forebay.tubemq import Position
>>> at = Position.parse("1:10002:560")
>>> at.broker_id, at.partition, at.offset
(1, 10002, 560)
"""

from typing import TYPE_CHECKING

from forebay import _lazy

if TYPE_CHECKING:
    from . import blocking as blocking
    from .client import TubeMqClient as TubeMqClient
    from .client import TubeMqConsumer as TubeMqConsumer
    from .client import TubeMqProducer as TubeMqProducer
    from .client import connect as connect
    from .options import TubeMqClientOptions as TubeMqClientOptions
    from .options import TubeMqConsumerOptions as TubeMqConsumerOptions
    from .options import TubeMqProducerOptions as TubeMqProducerOptions
    from .positions import PartitionState as PartitionState
    from .positions import Position as Position
    from .positions import TubeMqMessage as TubeMqMessage
else:
    __getattr__, __dir__ = _lazy.attach(
        __name__,
        {
            "blocking": "",
            **dict.fromkeys(("TubeMqClient", "TubeMqConsumer", "TubeMqProducer", "connect"), "client"),
            **dict.fromkeys(
                ("TubeMqClientOptions", "TubeMqConsumerOptions", "TubeMqProducerOptions"), "options"
            ),
            **dict.fromkeys(("PartitionState", "Position", "TubeMqMessage"), "positions"),
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
