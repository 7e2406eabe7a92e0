"""The blocking face: the verbs of the asyncio face without an event loop.

For scripts, threads and Spark workers. It never imports asyncio; a call that waits lets other threads run.
Handles may be shared between threads. The classes of each protocol are in ``forebay.pulsar.blocking``,
``forebay.mqtt.blocking`` and ``forebay.tubemq.blocking``.

>>> import forebay
>>> with forebay.blocking.connect("embedded:") as client:
...     with client.consumer("orders", "billing") as consumer, client.producer("orders") as producer:
...         message_id = producer.send(b"a book", key="42")
...         message = consumer.receive(timeout=5)
...         consumer.ack(message)
...         message.data, message.id.ledger == message_id.ledger
(b'a book', True)
"""

from ._sync.base import Client, Consumer, Producer
from ._sync.callbacks import Listener
from ._sync.connect import connect
from ._sync.event_stream import ConnectionEvents, EventCallback

__all__ = [
    "Client",
    "ConnectionEvents",
    "Consumer",
    "EventCallback",
    "Listener",
    "Producer",
    "connect",
]
