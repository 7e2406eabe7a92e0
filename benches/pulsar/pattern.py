"""A thousand topics by one pattern: what each costs the client while nothing arrives."""

from __future__ import annotations

import asyncio
import re
import resource
import time

import forebay

from benches.clock import PeakMemory

WATCHED = 10.0


def _wake_ups() -> int:
    """How often a thread of this process was put to work after it had waited."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


async def pattern_topics(url: str, topic: str, count: int, size: int) -> dict[str, float]:
    """Memory in KiB and wake-ups in a second, for each topic; and CPU microseconds in a second."""
    async with forebay.connect(url) as client:
        for first in range(0, count, 100):
            producers = [client.producer(f"{topic}-pattern-{number}") for number in range(first, first + 100)]
            for producer in await asyncio.gather(*producers):
                await producer.close()
    pattern = re.compile(f"{re.escape(topic)}-pattern-.*")
    async with forebay.connect(url) as client:
        with PeakMemory() as memory:
            async with client.consumer(pattern, "pattern") as consumer:
                assert len(await consumer.last_message_ids()) == count
                await asyncio.sleep(1)
                grown, wakes, cpu = memory.growth, _wake_ups(), time.process_time()
                await asyncio.sleep(WATCHED)
                wakes, cpu = _wake_ups() - wakes, time.process_time() - cpu
    return {
        "topics": count,
        "kib": grown / 1024 / count,
        "wakes": wakes / WATCHED / count,
        "cpu": cpu / WATCHED / count * 1e6,
    }
