"""Forebay: messaging at full pressure. One Rust engine, one Python API.

>>> import asyncio, forebay
>>> async def main():
...     async with forebay.connect("embedded:") as client:
...         async with client.producer("orders", compression="zstd") as producer:
...             await producer.send(b"a book", key="42", properties={"source": "till"})
...             ids = await producer.send_many([b"a pen", b"an ink"])
...             return len(ids)
>>> asyncio.run(main())
2

Everything is loaded when it is first used, so that ``import forebay`` costs next to nothing.
"""

from typing import TYPE_CHECKING

from . import _lazy

if TYPE_CHECKING:
    from . import blocking as blocking
    from . import errors as errors
    from . import frames as frames
    from . import mqtt as mqtt
    from . import pulsar as pulsar
    from . import spark as spark
    from . import tubemq as tubemq
    from ._base import Client as Client
    from ._base import Consumer as Consumer
    from ._base import Producer as Producer
    from ._connect import connect as connect
    from ._events import ConnectionEvent as ConnectionEvent
    from ._listening import Listener as Listener
    from ._observing import ConnectionEvents as ConnectionEvents
    from ._observing import EventCallback as EventCallback
    from ._version import __version__ as __version__
    from .broker import Broker as Broker
    from .errors import Error as Error
    from .errors import MemoryLimit as MemoryLimit
    from .errors import QueueFull as QueueFull
    from .errors import Timeout as Timeout
    from .protocols import Message as Message
else:
    __getattr__, __dir__ = _lazy.attach(
        __name__,
        {
            **dict.fromkeys(("blocking", "errors", "frames", "mqtt", "pulsar", "spark", "tubemq"), ""),
            "connect": "_connect",
            **dict.fromkeys(("Client", "Consumer", "Producer"), "_base"),
            "ConnectionEvent": "_events",
            "Listener": "_listening",
            **dict.fromkeys(("ConnectionEvents", "EventCallback"), "_observing"),
            "__version__": "_version",
            "Broker": "broker",
            "Message": "protocols",
            **dict.fromkeys(("Error", "MemoryLimit", "QueueFull", "Timeout"), "errors"),
        },
    )

__all__ = [
    "Broker",
    "Client",
    "ConnectionEvent",
    "ConnectionEvents",
    "Consumer",
    "Error",
    "EventCallback",
    "Listener",
    "MemoryLimit",
    "Message",
    "Producer",
    "QueueFull",
    "Timeout",
    "blocking",
    "connect",
    "errors",
    "frames",
    "mqtt",
    "pulsar",
    "spark",
    "tubemq",
]
