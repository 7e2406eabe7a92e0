"""Permissions of the embedded broker for clients of Pulsar and TubeMQ, over HTTP, and for the command."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import forebay
from forebay import errors
from forebay.commands.pulsar import jwt

from support.waiting import PATIENCE

KEY = b"0123456789abcdef0123456789abcdef"
RULES = """\
topic readwrite tubemq:open
user ann
topic write persistent://public/default/orders
user bob
topic read persistent://public/default/orders
topic read $SYS/#
user root
superuser
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "acl"
    path.write_text(RULES)
    return path


def token(subject: str) -> str:
    """A token signed with `KEY`."""
    return jwt.sign(KEY, {"sub": subject})


def status(url: str, secret: str, method: str = "GET") -> int:
    request = urllib.request.Request(url, method=method, headers={"Authorization": f"Bearer {secret}"})
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


async def test_pulsar_and_its_administration(rules: Path) -> None:
    ann, bob, root = token("ann"), token("bob"), token("root")
    with forebay.Broker(token_key=KEY, http_port=0, acl_file=rules) as broker:
        assert broker.http_url
        for url in (broker.url, broker.http_url):
            async with forebay.connect(url, token=ann) as writes, forebay.connect(url, token=bob) as reads:
                with pytest.raises(errors.AuthorizationError, match="not authorized to"):
                    await writes.producer("others")
                with pytest.raises(errors.AuthorizationError, match="not authorized to produce"):
                    await reads.producer("orders")
                with pytest.raises(errors.AuthorizationError, match="not authorized to consume"):
                    await writes.consumer("orders", "s")
                async with reads.consumer("orders", "s") as consumer, writes.producer("orders") as producer:
                    await producer.send(b"a book")
                    message = await consumer.receive(timeout=PATIENCE)
                    assert message.data == b"a book"
                    await consumer.ack(message)
                assert await reads.topics("public/default") == ["persistent://public/default/orders"]
        assert broker.topics() == ["persistent://public/default/orders"]
        denied = broker.status()["pulsar"]["denied"]
        assert denied >= 6
        stats = f"{broker.http_url}/admin/v2/persistent/public/default/orders/stats"
        assert [status(stats, secret) for secret in (ann, bob, root)] == [403, 403, 200]
        metrics = f"{broker.http_url}/metrics"
        assert [status(metrics, secret) for secret in (ann, bob, root)] == [403, 200, 200]
        topic = f"{broker.http_url}/admin/v2/persistent/public/default/orders?force=true"
        assert [status(topic, secret, "DELETE") for secret in (ann, bob, root)] == [403, 403, 204]
        assert broker.status()["denied"] == denied + 4


async def test_tubemq(rules: Path) -> None:
    with forebay.Broker(tubemq_port=0, acl_file=rules) as broker:
        assert broker.tubemq_url
        async with forebay.connect(broker.tubemq_url) as client:
            async with client.producer("open") as producer:
                await producer.send(b"x")
            # The master names its topics to those who may send to them.
            with pytest.raises(errors.TopicNotFound, match="no broker accepts messages for the topic"):
                await client.producer("shut")
            with pytest.raises(errors.AuthorizationError, match="no permission to consume topic shut"):
                async with client.consumer("shut", "g") as consumer:
                    await consumer.receive(timeout=PATIENCE)
        assert broker.topics() == ["tubemq:open"]
        assert broker.status()["tubemq"]["denied"] >= 2


async def test_a_pulsar_subscription_belongs_to_the_user_that_made_it(tmp_path: Path) -> None:
    topic, data = "persistent://public/default/orders", tmp_path / "data"
    ann, bob = token("ann"), token("bob")
    refused = pytest.raises(errors.AuthorizationError, match="not authorized to use subscription s of topic")
    with forebay.Broker(data=data, token_key=KEY) as broker:
        broker.create_topic(topic, 2)
        async with forebay.connect(broker.url, token=ann) as client, client.producer(topic) as producer:
            async with client.consumer(topic, "s"):
                await producer.send(b"a book")
    for _ in range(2):
        with forebay.Broker(data=data, token_key=KEY) as broker:
            assert [one["owner"] for one in broker.topic_stats(topic)["subscriptions"]] == ["ann", "ann"]
            async with forebay.connect(broker.url, token=bob) as client:
                with refused:
                    await client.consumer(topic, "s")
                async with client.reader(topic, position="earliest") as reader:
                    assert (await reader.receive(timeout=PATIENCE)).data == b"a book"
            assert broker.status()["pulsar"]["denied"] >= 1
    with forebay.Broker(data=data, token_key=KEY, subscription_owners=False) as broker:
        async with forebay.connect(broker.url, token=bob) as client, client.consumer(topic, "s") as consumer:
            message = await consumer.receive(timeout=PATIENCE)
            assert message.data == b"a book"
            await consumer.ack(message)
            await consumer.unsubscribe()
            async with client.consumer(topic, "new"):
                owners = {one["name"]: one["owner"] for one in broker.topic_stats(topic)["subscriptions"]}
                assert owners == {"new": None}


async def test_rules_let_another_user_use_a_subscription(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    each = "topic readwrite persistent://public/default/orders\n"
    shared = f"user ann\n{each}user bob\n{each}subscription work*\nuser root\nsuperuser\n"
    rules.write_text(shared)
    secrets = {user: token(user) for user in ("ann", "bob", "root")}
    with forebay.Broker(token_key=KEY, http_port=0, acl_file=rules) as broker:
        async with (
            forebay.connect(broker.url, token=secrets["ann"]) as ann,
            forebay.connect(broker.url, token=secrets["bob"]) as bob,
            forebay.connect(broker.url, token=secrets["root"]) as root,
        ):
            async with ann.consumer("orders", "workers", type="shared"), ann.consumer("orders", "own"):
                async with root.consumer("orders", "workers", type="shared"):
                    pass
                with pytest.raises(errors.AuthorizationError, match="subscription own"):
                    await bob.consumer("orders", "own")
                async with bob.consumer("orders", "workers", type="shared") as consumer:
                    rules.write_text(shared.replace("subscription work*\n", ""))
                    assert broker.reload_permissions() == 3
                    with pytest.raises(errors.AuthorizationError, match="it belongs to another user"):
                        await consumer.receive(timeout=PATIENCE)
        stats = f"{broker.http_url}/admin/v2/persistent/public/default/orders/stats"
        request = urllib.request.Request(stats, headers={"Authorization": f"Bearer {secrets['root']}"})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            assert json.load(answer)["subscriptions"]["workers"]["owner"] == "ann"
        gone = f"{broker.http_url}/admin/v2/persistent/public/default/orders/subscription/own"
        assert [status(gone, secrets[user], "DELETE") for user in ("ann", "bob", "root")] == [403, 403, 204]


async def test_a_tubemq_group_belongs_to_the_user_of_its_first_member(tmp_path: Path) -> None:
    users, data = tmp_path / "users", tmp_path / "data"
    users.write_text("ann:secret\nbob:hunter2\n")
    users.chmod(0o600)
    ann, bob = {"username": "ann", "password": "secret"}, {"username": "bob", "password": "hunter2"}
    for restarted in (False, True):
        with forebay.Broker(data=data, tubemq_port=0, tubemq_user_file=users) as broker:
            assert broker.tubemq_url
            async with (
                forebay.connect(broker.tubemq_url, **ann) as owner,
                forebay.connect(broker.tubemq_url, **bob) as other,
            ):
                if not restarted:
                    async with owner.producer("orders") as producer:
                        await producer.send(b"a book")
                    async with owner.consumer("orders", "g", position="first") as consumer:
                        await consumer.ack(await consumer.receive(timeout=PATIENCE))
                listed = broker.topic_stats("tubemq:orders")["subscriptions"]
                assert {one["owner"] for one in listed} == {"ann"}
                with pytest.raises(errors.AuthorizationError, match="group g: it belongs to another user"):
                    async with other.consumer("orders", "g") as consumer:
                        await consumer.receive(timeout=PATIENCE)
                assert broker.status()["tubemq"]["denied"] >= 1
                if restarted:
                    users.write_text("bob:hunter2\n")
                    broker.reload_users()
                    async with other.consumer("orders", "g") as consumer:
                        assert await consumer.receive_many(1, timeout=0.1) == []


def test_the_command_reads_the_file_again(rules: Path) -> None:
    command = [sys.executable, "-m", "forebay", "broker", "--port", "0", "--json", "--acl-file", str(rules)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        assert "users" in process.stderr.readline()
        assert process.stderr.readline().endswith("SIGHUP: permissions read again: 5 rules\n")
        rules.write_text("topic\n")
        process.send_signal(signal.SIGHUP)
        assert "users" in process.stderr.readline()
        said = process.stderr.readline()
        assert "acl_file, line 1: the topic is missing: the former permissions stay" in said
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "--acl-file, line 1: the topic is missing" in done.stderr
