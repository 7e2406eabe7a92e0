"""Two groups, two members of a group and two producers, opened and closed in every order while another client
sends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import forebay

from support.tubemq.harness import TubeMqService, group
from support.two import ORDERS, Side, loaded, played
from support.waiting import PATIENCE, until


def connect(tube: TubeMqService) -> Any:
    return forebay.connect(
        tube.url, connect_timeout=PATIENCE, request_timeout=PATIENCE, heartbeat_interval=0.5
    )


async def test_each_of_two_groups_gets_everything(tube: TubeMqService) -> None:
    """All orders at once: each pair has a topic of its own, and all are of one client."""
    async with connect(tube) as client, connect(tube) as other:

        async def one(order: str) -> list[Side]:
            topic = tube.topic()
            async with other.producer(topic) as producer, loaded(producer) as load:
                sides = {
                    name: Side(load, lambda: client.consumer(topic, group(), position="first"))
                    for name in "AB"
                }
                await played(order, load, sides)
                return list(sides.values())

        for sides in await asyncio.gather(*[one(order) for order in ORDERS]):
            for side in sides:
                side.check()
                assert side.got[0] == 0


@pytest.mark.parametrize("clients", [1, 2])
async def test_two_members_of_a_group_lose_nothing(tube: TubeMqService, clients: int) -> None:
    """Whichever closes first: the next one gets what it has not acknowledged."""
    async with connect(tube) as first, connect(tube) as other, connect(tube) as sender:

        async def one(order: str) -> None:
            topic, name = tube.topic(partitions=3), group()
            async with sender.producer(topic) as producer:
                async with loaded(producer) as load:
                    sides = {
                        side: Side(load, lambda client=client: client.consumer(topic, name, position="first"))
                        for side, client in zip("AB", (first, other if clients == 2 else first), strict=True)
                    }
                    await played(order, load, sides, all=False)
                last = Side(load, lambda: first.consumer(topic, name, position="first"))
                await last.open()
                every = [*sides.values(), last]
                wanted = set(range(load.stored))
                await until(lambda: wanted <= {number for side in every for number in side.got})
                await last.close(all=False)

        await asyncio.gather(*[one(order) for order in ORDERS])
