"""``/webapi.htm`` of the embedded broker: who may call it, what it refuses, clients beside it, restarts."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import errors

from support.messages import numbered, payloads
from support.scripts import BROKERS
from support.tokens import KEY, token
from support.tubemq.harness import EmbeddedTubeMq, group
from support.tubemq.load import BALANCES, Flow, connect, ready, take
from support.waiting import until

ADD = {"method": "admin_add_new_topic_record", "brokerId": 1, "createUser": "ann"}


@pytest.fixture
def tube() -> Iterator[EmbeddedTubeMq]:
    """A broker of this test alone, that keeps its data."""
    service = EmbeddedTubeMq(auto_create=False, data=True, durability="os")
    yield service
    service.stop()


def ask(
    broker: forebay.Broker,
    words: dict[str, Any],
    headers: dict[str, str] | None = None,
    *,
    form: bool = True,
    method: str | None = None,
) -> tuple[int, dict[str, Any]]:
    """Status and answer to a form or a query."""
    text = urllib.parse.urlencode({"confModAuthToken": "abc"} | words)
    url = f"{broker.http_url}/webapi.htm"
    request = (
        urllib.request.Request(url, text.encode(), headers or {}, method=method)
        if form
        else urllib.request.Request(f"{url}?{text}", None, headers or {}, method=method)
    )
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"{}")


def changed(service: EmbeddedTubeMq, method: str, **words: Any) -> None:
    answer = service.administer(method, **words)
    assert answer["result"], answer
    assert [one["errCode"] for one in answer["data"]] == [200] * answer["count"], answer


def made(service: EmbeddedTubeMq, topic: str, **words: Any) -> None:
    changed(service, "admin_add_new_topic_record", topicName=topic, brokerId=1, createUser="ann", **words)


def modified(service: EmbeddedTubeMq, topic: str, **words: Any) -> None:
    changed(service, "admin_modify_topic_info", topicName=topic, brokerId=1, modifyUser="bob", **words)


# -- who may call it


def test_it_needs_http_and_tubemq() -> None:
    with forebay.Broker(http_port=0) as broker:
        assert ask(broker, {"method": "admin_query_topic_info"})[0] == 404
    with forebay.Broker(http_port=0, tubemq_port=0) as broker:
        assert ask(broker, {"method": "admin_query_topic_info"})[0] == 200
        assert ask(broker, ADD | {"topicName": "made"}, form=False)[0] == 405
        assert broker.topics() == []
        assert ask(broker, ADD | {"topicName": "made"})[1]["data"][0]["success"]
        assert broker.topics() == ["tubemq:made"]
        assert ask(broker, ADD, method="DELETE")[0] == 405


def test_with_tokens_and_permissions_it_is_for_superusers(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("user ann\ntopic readwrite tubemq:#\nuser root\nsuperuser\n")
    with forebay.Broker(token_key=KEY, http_port=0, tubemq_port=0) as broker:
        words = ADD | {"topicName": "made"}
        for headers in ({}, {"Authorization": "Bearer nonsense"}):
            assert ask(broker, words, headers)[0] == 401
            assert ask(broker, {"method": "admin_query_topic_info"}, headers)[0] == 401
        assert broker.topics() == []
        assert ask(broker, words, {"Authorization": f"Bearer {token('ann')}"})[0] == 200
        assert broker.topics() == ["tubemq:made"]
    with forebay.Broker(token_key=KEY, http_port=0, tubemq_port=0, acl_file=rules) as broker:
        ann = {"Authorization": f"Bearer {token('ann')}"}
        for words in (ADD | {"topicName": "made"}, {"method": "admin_query_topic_info"}, {}):
            status, answer = ask(broker, words, ann)
            assert (status, "superuser" in answer["reason"]) == (403, True)
        assert broker.status()["tubemq"]["denied"] == 3
        assert broker.topics() == []
        root = {"Authorization": f"Bearer {token('root')}"}
        assert ask(broker, ADD | {"topicName": "made"}, root, form=False)[0] == 200
        assert broker.topics() == ["tubemq:made"]


@pytest.mark.parametrize("form", [True, False], ids=["form", "query"])
def test_pages_of_other_sites_change_nothing(form: bool) -> None:
    with forebay.Broker(http_port=0, tubemq_port=0) as broker:
        words = ADD | {"topicName": "made"}
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            assert ask(broker, words, headers, form=form)[0] == 403
        assert ask(broker, words, {"Host": "evil.example"}, form=form)[0] == 421
        assert broker.topics() == []
        # A GET without these headers may come from a page, too, by an old browser.
        assert ask(broker, words, {"Sec-Fetch-Site": "none"}, form=form)[0] == (200 if form else 405)
        assert broker.topics() == (["tubemq:made"] if form else [])


# -- limits


def test_what_is_too_much_is_refused_and_nothing_is_lost() -> None:
    with forebay.Broker(http_port=0, tubemq_port=0, max_topics=10, durability="memory") as broker:
        broker.create_topic("tubemq:kept", 2)

        def code(**words: Any) -> int:
            answer = ask(broker, ADD | words)[1]
            return answer["data"][0]["errCode"] if answer["result"] else answer["errCode"]

        assert code(topicName="large", numPartitions=9) == 405
        assert code(topicName="large", numPartitions=2**31 - 1) == 407
        assert code(topicName="large", numPartitions=2**31) == 400
        assert code(topicName="large", numPartitions=0) == 400
        assert code(topicName="l" * 65) == 400
        assert code(topicName=",".join(f"t{number}" for number in range(101))) == 400
        assert code(topicName="a", brokerId=",".join(map(str, range(101)))) == 400
        items = [{"topicName": f"t{number}", "brokerId": 1} for number in range(1001)]
        batch = ADD | {"method": "admin_bath_add_new_topic_record", "topicJsonSet": json.dumps(items)}
        assert "(1000)" in ask(broker, batch)[1]["errMsg"]
        assert ask(broker, ADD | {"topicName": "x" * 9000}, form=False)[0] == 414
        assert broker.topics() == ["tubemq:kept"]
        items = [{"topicName": f"t{number}", "brokerId": 1, "numPartitions": 1} for number in range(9)]
        answer = ask(broker, batch | {"topicJsonSet": json.dumps(items)})[1]
        assert [one["errCode"] for one in answer["data"]] == [200] * 8 + [405]
        assert len(broker.topics()) == 9


# -- clients beside it


async def test_a_topic_that_grows_loses_nothing_of_what_is_sent_and_received(tube: EmbeddedTubeMq) -> None:
    made(tube, "grows", numPartitions=1)
    async with connect(tube) as client, client.producer("grows") as producer:
        async with client.consumer("grows", group(), position="first") as consumer:
            flow = Flow(producer)
            await flow.progress(100)
            for partitions in (2, 5):
                modified(tube, "grows", numPartitions=partitions)
                await ready(consumer, partitions)
                await flow.progress(100)
            await flow.stop()
            assert not flow.failed
            got: set[bytes] = set()
            sent = {b"%d" % number for number in flow.taken}
            while got < sent:
                got |= set(payloads(await take(consumer, 1)))
            assert got == sent
            positions = {part["partition"] for part in consumer.partitions()}
            assert positions == set(range(5))


@pytest.mark.parametrize("balance", BALANCES)
async def test_a_topic_is_closed_and_opened_again_under_its_clients(
    tube: EmbeddedTubeMq, balance: str
) -> None:
    made(tube, "door", numPartitions=2)
    async with connect(tube) as client, client.producer("door", send_timeout=2) as producer:
        async with client.consumer("door", group(), position="first", balance=balance) as consumer:
            await ready(consumer, 2)
            bodies = numbered(40)
            await producer.send_many(bodies[:20])
            seen = set(payloads(await take(consumer, 20)))
            modified(tube, "door", acceptSubscribe="false")
            await producer.send_many(bodies[20:])
            modified(tube, "door", acceptPublish="false")
            with pytest.raises(errors.Error):
                await producer.send(b"refused")
            modified(tube, "door", acceptPublish="true", acceptSubscribe="true")
            await ready(consumer, 2)
            # What was acknowledged with a partition that is taken away may come again.
            while seen < set(bodies):
                seen |= set(payloads(await take(consumer, 1)))
            assert seen == set(bodies)
            await producer.send(b"last")
            while b"last" not in seen:
                seen |= set(payloads(await take(consumer, 1)))


@pytest.mark.parametrize("balance", BALANCES)
async def test_a_restricted_topic_is_for_groups_that_are_named(tube: EmbeddedTubeMq, balance: str) -> None:
    made(tube, "desk")
    changed(tube, "admin_set_topic_authorize_control", topicName="desk", isEnable="true", createUser="ann")
    named = {"topicName": "desk", "groupName": "traders"}
    async with connect(tube) as client, client.producer("desk") as producer:
        await producer.send(b"secret")
        with pytest.raises(errors.AuthorizationError, match="not allowed group traders"):
            async with client.consumer("desk", "traders", balance=balance):
                pass
        changed(tube, "admin_add_authorized_consumergroup_info", createUser="ann", **named)
        async with client.consumer("desk", "traders", position="first", balance=balance) as consumer:
            assert payloads(await take(consumer, 1)) == [b"secret"]
            listed = tube.administer("admin_query_consume_group_detail", groupName="traders")
            assert [one["parCount"] for one in listed["data"]] == [3]
            assert listed["isBandConsume"] == ("client-rebalance" if balance == "client" else "unbound")
            changed(tube, "admin_delete_allowed_consumer_group_info", modifyUser="ann", **named)

            def held() -> int:
                found = tube.administer("admin_query_consume_group_detail", groupName="traders")
                return sum(one["parCount"] for one in found["data"])

            await until(lambda: held() == 0)
            await producer.send(b"later")
            assert await consumer.receive_many(10, timeout=2) == []
            changed(tube, "admin_add_authorized_consumergroup_info", createUser="ann", **named)
            while b"later" not in payloads(await take(consumer, 1)):
                pass


# -- restarts


@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill"])
async def test_everything_outlives_a_restart(tube: EmbeddedTubeMq, kill: bool) -> None:
    for name in ("first", "second"):
        made(tube, name, numPartitions=2)
    modified(tube, "first", numPartitions=4)
    async with connect(tube) as client, client.producer("first") as producer:
        await producer.send_many(numbered(40))
    modified(tube, "first", acceptPublish="false", acceptSubscribe="false")
    changed(tube, "admin_delete_topic_info", topicName="first", brokerId=1, modifyUser="eve")
    changed(tube, "admin_set_topic_authorize_control", topicName="second", isEnable="1", createUser="ann")
    changed(
        tube,
        "admin_add_authorized_consumergroup_info",
        topicName="second",
        groupName="one,two",
        createUser="ann",
    )
    queries = ("admin_query_topic_info", "admin_query_allowed_consumer_group_info")
    before = [tube.administer(query) for query in queries]
    assert [answer["count"] for answer in before] == [2, 2]
    tube.restart(kill=kill)
    assert [tube.administer(query) for query in queries] == before
    changed(tube, "admin_redo_deleted_topic_info", topicName="first", brokerId=1, modifyUser="eve")
    modified(tube, "first", acceptSubscribe="true")
    async with connect(tube) as client, client.consumer("first", "g", position="first") as consumer:
        assert sorted(payloads(await take(consumer, 40))) == sorted(numbered(40))
    modified(tube, "first", acceptSubscribe="false")
    for method in ("admin_delete_topic_info", "admin_remove_topic_info"):
        changed(tube, method, topicName="first", brokerId=1, modifyUser="eve")
    tube.restart(kill=kill)
    assert tube.call("topics") == ["tubemq:second"]


# -- scripts


@pytest.mark.skipif(shutil.which("curl") is None, reason="the script calls curl")
async def test_the_script_that_adds_topics_to_a_real_server_adds_them_here(
    tube: EmbeddedTubeMq, tmp_path: Path
) -> None:
    web = urllib.parse.urlsplit(tube.web).netloc
    (tmp_path / "facts").write_text(f"webs={web}\n")
    script = BROKERS / "tubemq" / "add-topic"
    subprocess.run([script, tmp_path, "orders:4", "trades"], check=True, timeout=120)
    async with connect(tube) as client:
        assert await client.partitions("orders") == 4
        assert await client.partitions("trades") == 1
    await until(lambda: len(tube.call("topics")) == 2)
