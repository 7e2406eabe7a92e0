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

from ._core import attach as _attach

if TYPE_CHECKING:
    from . import blocking as blocking
    from . import errors as errors
    from . import frames as frames
    from . import mqtt as mqtt
    from . import pulsar as pulsar
    from . import spark as spark
    from . import tubemq as tubemq
    from ._aio.base import Client as Client
    from ._aio.base import Consumer as Consumer
    from ._aio.base import Producer as Producer
    from ._aio.callbacks import Listener as Listener
    from ._aio.connect import connect as connect
    from ._aio.event_stream import ConnectionEvents as ConnectionEvents
    from ._aio.event_stream import EventCallback as EventCallback
    from ._core.events import ConnectionEvent as ConnectionEvent
    from ._core.protocols import Message as Message
    from ._core.version import __version__ as __version__
    from .broker import Broker as Broker
    from .errors import Error as Error
    from .errors import MemoryLimit as MemoryLimit
    from .errors import QueueFull as QueueFull
    from .errors import Timeout as Timeout
else:
    __getattr__, __dir__ = _attach(
        __name__,
        {
            **dict.fromkeys(("blocking", "errors", "frames", "mqtt", "pulsar", "spark", "tubemq"), ""),
            "connect": "_aio.connect",
            **dict.fromkeys(("Client", "Consumer", "Producer"), "_aio.base"),
            "ConnectionEvent": "_core.events",
            "Listener": "_aio.callbacks",
            **dict.fromkeys(("ConnectionEvents", "EventCallback"), "_aio.event_stream"),
            "__version__": "_core.version",
            "Broker": "broker",
            "Message": "_core.protocols",
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
