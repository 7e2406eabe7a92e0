"""Penstock: messaging at full pressure. One Rust engine, one Python API.

>>> import asyncio, penstock
>>> async def main():
...     async with penstock.connect("embedded:") as client:
...         async with client.producer("orders", compression="zstd") as producer:
...             await producer.send(b"a book", key="42", properties={"source": "till"})
...             ids = await producer.send_many([b"a pen", b"an ink"])
...             return len(ids)
>>> asyncio.run(main())
2

Everything is loaded when it is first used, so that ``import penstock`` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import blocking as blocking
    from . import errors as errors
    from . import mqtt as mqtt
    from . import spark as spark
    from . import tubemq as tubemq
    from ._engine import Message as Message
    from ._engine import MessageId as MessageId
    from ._engine import MessageIds as MessageIds
    from .broker import Broker as Broker
    from .client import Client as Client
    from .client import Consumer as Consumer
    from .client import Producer as Producer
    from .client import connect as connect
    from .errors import Error as Error
    from .errors import MemoryLimit as MemoryLimit
    from .errors import QueueFull as QueueFull
    from .errors import Timeout as Timeout

__version__ = "0.1.0"

_HOME = {
    "connect": "client",
    "Client": "client",
    "Producer": "client",
    "Consumer": "client",
    "Broker": "broker",
    "Message": "_native",
    "MessageId": "_native",
    "MessageIds": "_native",
    "Error": "errors",
    "MemoryLimit": "errors",
    "QueueFull": "errors",
    "Timeout": "errors",
}
_MODULES = ("blocking", "errors", "mqtt", "spark", "tubemq")

__all__ = [
    "Broker",
    "Client",
    "Consumer",
    "Error",
    "MemoryLimit",
    "Message",
    "MessageId",
    "MessageIds",
    "Producer",
    "QueueFull",
    "Timeout",
    "blocking",
    "connect",
    "errors",
    "mqtt",
    "spark",
    "tubemq",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
