"""Consumer groups: assignment of partitions, with both kinds of balance."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from forebay import errors

from support.messages import numbered, payloads
from support.tubemq.harness import RealTubeMq, TubeMqService, group
from support.tubemq.load import BALANCES, connect, ready, take
from support.waiting import PATIENCE, until

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("balance", BALANCES)
async def test_two_members_share_and_the_one_left_takes_over(tube: TubeMqService, balance: str) -> None:
    topic, name = tube.topic(3), group()
    sharing = {"source_count": 2} if balance == "client" else {}
    async with (
        connect(tube) as client,
        connect(tube) as other,
        client.producer(topic) as producer,
    ):

        def member(of: Any, number: int) -> Any:
            own = sharing | ({"node_id": number} if sharing else {})
            return of.consumer(topic, name, position="first", balance=balance, **own)

        async with member(client, 0) as one:
            async with member(other, 1) as two:

                def shared() -> bool:
                    held = [
                        {part["partition"] for part in consumer.partitions() if part["state"] == "reading"}
                        for consumer in (one, two)
                    ]
                    return all(held) and len(held[0] | held[1]) == 3 and not held[0] & held[1]

                await until(shared, 60)
                await producer.send_many(numbered(300))
                got = await asyncio.gather(take(one, 100, 30), take(two, 100, 30))
                seen = payloads(got[0]) + payloads(got[1])
                assert len(seen) == len(set(seen)), "a message for each, not for both"
            if balance == "server":
                await ready(one, 3)
                await producer.send_many([b"later"] * 30)
                await take(one, 30, 30)


async def test_members_that_do_not_fit_are_told_so(tube: TubeMqService) -> None:
    topic, name = tube.topic(), group()
    async with connect(tube) as client, client.consumer(topic, name, balance="server"):
        for options in ({"balance": "client"}, {"balance": "server", "filters": ["x"]}):
            with pytest.raises(errors.ConsumerAssign):
                async with client.consumer(topic, name, **options):
                    pass


@pytest.mark.real_tubemq
@pytest.mark.parametrize("balance", BALANCES)
async def test_a_group_keeps_to_its_rules_of_flow_control(real_tubemq: RealTubeMq, balance: str) -> None:
    topic, name = real_tubemq.topic(), group()
    rules = [
        {"type": 1, "rule": [{"zeroCnt": 2, "freqInMs": 300}]},
        {"type": 3, "rule": [{"normFreqInMs": 400, "filterFreqInMs": 0, "minDataFilterFreqInMs": 0}]},
    ]

    def rule(method: str, **words: Any) -> None:
        real_tubemq.ask(method, groupName=name, createUser="tests", modifyUser="tests", **words)

    rule("admin_set_group_flow_control_rule", statusId=1, flowCtrlInfo=json.dumps(rules))
    async with connect(real_tubemq) as client, client.producer(topic) as producer:
        async with client.consumer(topic, name, position="first", balance=balance) as consumer:
            await ready(consumer, 1)

            async def five() -> float:
                """Seconds that five batches take, each of one message that is already there."""
                began = time.monotonic()
                for number in range(5):
                    await producer.send(b"%d" % number)
                    await take(consumer, 1)
                return time.monotonic() - began

            await five()
            assert await five() > 5 * 0.4 - 0.1
            # The next heartbeats report the change.
            rules[1]["rule"] = [{"normFreqInMs": 0}]
            rule("admin_upd_group_flow_control_rule", statusId=1, flowCtrlInfo=json.dumps(rules))
            deadline = time.monotonic() + PATIENCE
            while await five() > 4 * 0.4:
                assert time.monotonic() < deadline, "the new rules do not hold"
