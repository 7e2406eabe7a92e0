"""Apache Pulsar: clients, options, message ids.

>>> from forebay.pulsar import MessageId
>>> at = MessageId.parse("(1,2,-1,0)")
>>> at.ledger, at.entry
(1, 2)
"""

from typing import TYPE_CHECKING

from forebay import _lazy

if TYPE_CHECKING:
    from . import blocking as blocking
    from .client import PulsarClient as PulsarClient
    from .client import PulsarConsumer as PulsarConsumer
    from .client import PulsarProducer as PulsarProducer
    from .client import connect as connect
    from .interceptors import ConsumerInterceptor as ConsumerInterceptor
    from .interceptors import OutgoingMessage as OutgoingMessage
    from .interceptors import ProducerInterceptor as ProducerInterceptor
    from .oauth2 import OAuth2 as OAuth2
    from .options import PulsarClientOptions as PulsarClientOptions
    from .options import PulsarConsumerOptions as PulsarConsumerOptions
    from .options import PulsarProducerOptions as PulsarProducerOptions
    from .policies import Backoff as Backoff
    from .policies import DeadLetterPolicy as DeadLetterPolicy
    from .policies import KeySharedPolicy as KeySharedPolicy
    from .positions import MessageId as MessageId
    from .positions import MessageIds as MessageIds
    from .positions import PulsarMessage as PulsarMessage
    from .routing import Router as Router
    from .schema import Avro as Avro
    from .schema import KeyValue as KeyValue
    from .schema import Schema as Schema
    from .schema import StoredSchema as StoredSchema
    from .table_view import PulsarTableView as PulsarTableView
else:
    __getattr__, __dir__ = _lazy.attach(
        __name__,
        {
            "blocking": "",
            **dict.fromkeys(("PulsarClient", "PulsarConsumer", "PulsarProducer", "connect"), "client"),
            **dict.fromkeys(
                ("PulsarClientOptions", "PulsarConsumerOptions", "PulsarProducerOptions"), "options"
            ),
            **dict.fromkeys(("Backoff", "DeadLetterPolicy", "KeySharedPolicy"), "policies"),
            **dict.fromkeys(
                ("ConsumerInterceptor", "OutgoingMessage", "ProducerInterceptor"), "interceptors"
            ),
            **dict.fromkeys(("Avro", "KeyValue", "Schema", "StoredSchema"), "schema"),
            "PulsarTableView": "table_view",
            "Router": "routing",
            "OAuth2": "oauth2",
            **dict.fromkeys(("MessageId", "MessageIds", "PulsarMessage"), "positions"),
        },
    )

__all__ = [
    "Avro",
    "Backoff",
    "ConsumerInterceptor",
    "DeadLetterPolicy",
    "KeySharedPolicy",
    "MessageId",
    "MessageIds",
    "OAuth2",
    "OutgoingMessage",
    "ProducerInterceptor",
    "PulsarClient",
    "PulsarClientOptions",
    "PulsarConsumer",
    "PulsarConsumerOptions",
    "PulsarMessage",
    "PulsarProducer",
    "PulsarProducerOptions",
    "PulsarTableView",
    "Router",
    "Schema",
    "StoredSchema",
    "blocking",
    "connect",
]
