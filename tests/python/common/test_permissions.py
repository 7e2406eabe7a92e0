"""Permissions of the embedded broker for clients of Pulsar and TubeMQ, over HTTP, and for the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import penstock
from penstock import errors

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
    command = ["token", "create", "--key", "env:SIGNS", "--subject", subject]
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *command],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"SIGNS": KEY.decode()},
    )
    return done.stdout.strip()


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
    with penstock.Broker(token_key=KEY, http_port=0, acl_file=rules) as broker:
        assert broker.http_url
        for url in (broker.url, broker.http_url):
            async with penstock.connect(url, token=ann) as writes, penstock.connect(url, token=bob) as reads:
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


async def test_a_consumer_of_pulsar_that_may_not_be_there_any_more(rules: Path) -> None:
    bob = token("bob")
    with penstock.Broker(token_key=KEY, acl_file=rules) as broker:
        async with penstock.connect(broker.url, token=bob) as client:
            async with client.consumer("orders", "s") as consumer:
                rules.write_text(RULES.replace("user bob\n", "user ben\n"))
                assert broker.reload_permissions() == 5
                with pytest.raises(errors.AuthorizationError):
                    await consumer.receive(timeout=PATIENCE)


async def test_tubemq(rules: Path) -> None:
    with penstock.Broker(tubemq_port=0, acl_file=rules) as broker:
        assert broker.tubemq_url
        async with penstock.connect(broker.tubemq_url) as client:
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


def test_the_command_reads_the_file_again(rules: Path) -> None:
    command = [sys.executable, "-m", "penstock", "broker", "--port", "0", "--json", "--acl-file", str(rules)]
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
    assert done.returncode == 1
    assert "--acl-file, line 1: the topic is missing" in done.stderr
