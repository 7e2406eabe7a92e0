"""Apache Pulsar: clients, options, message ids.

>>> from forebay.pulsar import MessageId
>>> at = MessageId.parse("(1,2,-1,0)")
>>> at.ledger, at.entry
(1, 2)
"""

from typing import TYPE_CHECKING

from forebay._core import attach as _attach

if TYPE_CHECKING:
    from . import blocking as blocking
    from ._client import PulsarClient as PulsarClient
    from ._client import PulsarConsumer as PulsarConsumer
    from ._client import PulsarProducer as PulsarProducer
    from ._client import connect as connect
    from ._interceptors import ConsumerInterceptor as ConsumerInterceptor
    from ._interceptors import OutgoingMessage as OutgoingMessage
    from ._interceptors import ProducerInterceptor as ProducerInterceptor
    from ._oauth2 import OAuth2 as OAuth2
    from ._options import PulsarClientOptions as PulsarClientOptions
    from ._options import PulsarConsumerOptions as PulsarConsumerOptions
    from ._options import PulsarProducerOptions as PulsarProducerOptions
    from ._policies import Backoff as Backoff
    from ._policies import DeadLetterPolicy as DeadLetterPolicy
    from ._policies import KeySharedPolicy as KeySharedPolicy
    from ._positions import MessageId as MessageId
    from ._positions import MessageIds as MessageIds
    from ._positions import PulsarMessage as PulsarMessage
    from ._routing import Router as Router
    from ._schema import Avro as Avro
    from ._schema import KeyValue as KeyValue
    from ._schema import Schema as Schema
    from ._schema import StoredSchema as StoredSchema
    from ._table_view import PulsarTableView as PulsarTableView
else:
    __getattr__, __dir__ = _attach(
        __name__,
        {
            "blocking": "",
            **dict.fromkeys(("PulsarClient", "PulsarConsumer", "PulsarProducer", "connect"), "_client"),
            **dict.fromkeys(
                ("PulsarClientOptions", "PulsarConsumerOptions", "PulsarProducerOptions"), "_options"
            ),
            **dict.fromkeys(("Backoff", "DeadLetterPolicy", "KeySharedPolicy"), "_policies"),
            **dict.fromkeys(
                ("ConsumerInterceptor", "OutgoingMessage", "ProducerInterceptor"), "_interceptors"
            ),
            **dict.fromkeys(("Avro", "KeyValue", "Schema", "StoredSchema"), "_schema"),
            "PulsarTableView": "_table_view",
            "Router": "_routing",
            "OAuth2": "_oauth2",
            **dict.fromkeys(("MessageId", "MessageIds", "PulsarMessage"), "_positions"),
        },
    )

__all__ = [
    "Avro",
    "Backoff",
    "ConsumerInterceptor",
    "DeadLetterPolicy",
    "KeySharedPolicy",
    "KeyValue",
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
