"""Apache Pulsar: clients, options, message ids.

>>> from penstock.pulsar import MessageId
>>> at = MessageId.parse("(1,2,-1,0)")
>>> at.ledger, at.entry
(1, 2)
"""

from typing import TYPE_CHECKING

from penstock import _lazy

if TYPE_CHECKING:
    from . import blocking as blocking
    from .client import PulsarClient as PulsarClient
    from .client import PulsarConsumer as PulsarConsumer
    from .client import PulsarProducer as PulsarProducer
    from .client import connect as connect
    from .options import PulsarClientOptions as PulsarClientOptions
    from .options import PulsarConsumerOptions as PulsarConsumerOptions
    from .options import PulsarProducerOptions as PulsarProducerOptions
    from .positions import MessageId as MessageId
    from .positions import MessageIds as MessageIds
    from .positions import PulsarMessage as PulsarMessage
else:
    __getattr__, __dir__ = _lazy.attach(
        __name__,
        {
            "blocking": "",
            **dict.fromkeys(("PulsarClient", "PulsarConsumer", "PulsarProducer", "connect"), "client"),
            **dict.fromkeys(
                ("PulsarClientOptions", "PulsarConsumerOptions", "PulsarProducerOptions"), "options"
            ),
            **dict.fromkeys(("MessageId", "MessageIds", "PulsarMessage"), "positions"),
        },
    )

__all__ = [
    "MessageId",
    "MessageIds",
    "PulsarClient",
    "PulsarClientOptions",
    "PulsarConsumer",
    "PulsarConsumerOptions",
    "PulsarMessage",
    "PulsarProducer",
    "PulsarProducerOptions",
    "blocking",
    "connect",
]
