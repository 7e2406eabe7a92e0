"""A web service: the client is opened before the first request and closed after the last one.

The lifespan has the form that FastAPI and Starlette expect: `FastAPI(lifespan=lifespan)`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import forebay


@asynccontextmanager
async def lifespan(app: Any) -> AsyncIterator[None]:
    async with forebay.connect("embedded:") as client:  # forebay.connect() reads FOREBAY_URL
        async with client.producer("orders") as app.state.orders:
            app.state.client = client
            yield


async def create_order(app: Any, body: bytes) -> dict[str, str]:
    """The handler of POST /orders: it answers when the order is stored."""
    return {"id": str(await app.state.orders.send(body))}


async def main() -> None:
    app = SimpleNamespace(state=SimpleNamespace())  # stands for FastAPI()
    async with lifespan(app):
        answers = await asyncio.gather(*(create_order(app, b"order %d" % number) for number in range(3)))
        print("answers:", answers)
        async with app.state.client.reader("orders", position="earliest") as reader:
            print("stored:", [(await reader.receive(timeout=10)).data for _ in answers])


asyncio.run(main())
