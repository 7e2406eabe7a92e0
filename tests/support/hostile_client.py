"""A client in a process of its own, whose broker is hostile: ``hostile_client.py '{"url": ...}'``.

Prints a line of JSON when it begins and, at the end of standard input, what it cost: the growth of its
resident memory at the highest, in bytes, its processor time in seconds, its descriptors, and the errors of
its calls.
"""

import asyncio
import json
import os
import re
import resource
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import forebay


def peak() -> int:
    """Resident memory at the highest, in bytes."""
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


def seconds() -> float:
    """Processor time so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def consume(client: Any, order: dict[str, Any]) -> None:
    """Receives nothing, so that what comes is kept or refused."""
    topic = re.compile("t.*") if order.get("by_pattern") else order["topic"]
    async with client.consumer(topic, **order["consumer"]):
        await asyncio.Event().wait()


async def produce(client: Any, order: dict[str, Any]) -> None:
    """Sends 100 KB at a time, as often as there is room."""
    async with client.producer(order["topic"]) as producer:
        while True:
            try:
                producer.send_nowait(bytes(100_000), **order["send"])
            except (forebay.errors.QueueFull, forebay.errors.MemoryLimit):
                await asyncio.sleep(0.05)
            await asyncio.sleep(0)


WORKS: dict[str, Callable[[Any, dict[str, Any]], Awaitable[None]]] = {"consume": consume, "produce": produce}


async def work(order: dict[str, Any], failed: list[str]) -> None:
    """Begins again whenever it has failed."""
    options = order["client"]
    if order.get("challenged"):
        options["token"] = lambda: "a" * 100
    if order.get("authenticated"):
        options["authentication_method"] = "m"
        options["authenticator"] = lambda data: b"a" * 100
    while True:
        try:
            async with forebay.connect(order["url"], **options) as client:
                await WORKS[order["work"]](client, order)
        except forebay.Error as error:
            failed.append(error.code)
            await asyncio.sleep(0.2)


async def main() -> None:
    order = json.loads(sys.argv[1])
    # What the first client needs does not count.
    async with forebay.connect("embedded:"):
        pass
    memory, time, failed = peak(), seconds(), list[str]()
    working = asyncio.create_task(work(order, failed))
    print(json.dumps({"began": True}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    descriptors = len(os.listdir("/proc/self/fd"))
    cost = {"memory": peak() - memory, "seconds": seconds() - time, "descriptors": descriptors}
    assert not working.done(), working.exception()
    print(json.dumps(cost | {"failed": sorted(set(failed)), "failures": len(failed)}), flush=True)
    # A broker that answers nothing must not hold the test up.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
