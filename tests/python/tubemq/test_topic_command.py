"""``forebay topic tubemq:NAME -u http://...``: topics of TubeMQ over the web service of the master."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import cli

from support.tokens import KEY, token


@pytest.fixture
def broker() -> Iterator[forebay.Broker]:
    with forebay.Broker(http_port=0, tubemq_port=0) as started:
        yield started


@pytest.fixture
def topic(broker: forebay.Broker, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str, status: int = 0) -> str:
        assert cli.main(["topic", *words, "-u", str(broker.http_url)]) == status
        said = capsys.readouterr()
        return said.err if status else said.out

    return run


def test_topics_are_created_listed_grown_inspected_and_deleted(broker: forebay.Broker, topic: Any) -> None:
    assert json.loads(topic("create", "tubemq:sales", "-p", "2", "--json")) == {
        "created": "tubemq:sales",
        "partitions": 2,
    }
    topic("create", "tubemq:other")
    topic("create", "orders")
    assert broker.topics() == ["persistent://public/default/orders", "tubemq:other", "tubemq:sales"]
    assert topic("ls", "tubemq:") == "tubemq:other\ntubemq:sales\n"
    assert topic("ls") == "persistent://public/default/orders\n"
    topic("grow", "tubemq:sales", "-p", "4")
    assert json.loads(topic("stats", "tubemq:sales", "--json"))["totalCfgNumPart"] == 4
    topic("rm", "tubemq:sales")
    assert broker.topics() == ["persistent://public/default/orders", "tubemq:other"]


def test_a_deletion_that_was_interrupted_is_finished(broker: forebay.Broker, topic: Any) -> None:
    topic("create", "tubemq:sales")
    half_deleted(broker)
    topic("rm", "tubemq:sales")
    assert broker.topics() == []


def half_deleted(broker: forebay.Broker) -> None:
    """Does the first two of the three steps of a deletion."""
    common = {"topicName": "sales", "brokerId": 1, "modifyUser": "ann", "confModAuthToken": "abc"}
    for words in (
        {"method": "admin_modify_topic_info", "acceptPublish": "false", "acceptSubscribe": "false"},
        {"method": "admin_delete_topic_info"},
    ):
        form = urllib.parse.urlencode(common | words).encode()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{broker.http_url}/webapi.htm", form, timeout=60) as answer:
            assert json.loads(answer.read())["data"][0]["success"]


@pytest.mark.parametrize(
    ("words", "said", "status"),
    [
        (["terminate", "tubemq:sales"], "only topics of Pulsar can be terminated", 1),
        (["create", "tubemq:"], "names no topic of TubeMQ", 2),
        (["create", "tubemq:sales", "-p", "-1"], "-p is a number of partitions", 2),
        (["ls", "tubemq:sales"], "TubeMQ has no namespaces", 2),
        (["create", "tubemq:sales", "--change-token", "abc"], "file:PATH or env:NAME", 2),
        (["create", "tubemq:sales", "--change-token", "env:NO_SUCH"], "--change-token", 2),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    words: list[str], said: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    # Port 1 would refuse the connection.
    assert cli.main(["topic", *words, "-u", "http://127.0.0.1:1"]) == status
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["create", "tubemq:kept"], "not_allowed"),
        (["create", "tubemq:no-name"], "can only contain English letters"),
        (["grow", "tubemq:kept", "-p", "1"], "Partition number less than before"),
        (["grow", "tubemq:none", "-p", "4"], "topic_not_found"),
        (["rm", "tubemq:none"], "topic_not_found"),
        (["stats", "tubemq:none"], "topic_not_found"),
    ],
)
def test_the_words_of_the_master_are_shown(
    broker: forebay.Broker, topic: Any, words: list[str], said: str
) -> None:
    broker.create_topic("tubemq:kept", 2)
    assert said in topic(*words, status=1)
    assert broker.topics() == ["tubemq:kept"]


def test_another_web_service_makes_no_topic(capsys: pytest.CaptureFixture[str]) -> None:
    with forebay.Broker(http_port=0) as broker:
        for words in (["create", "tubemq:sales"], ["ls", "tubemq:"]):
            assert cli.main(["topic", *words, "-u", str(broker.http_url)]) == 1
            assert "neither the web service of a TubeMQ master" in capsys.readouterr().err
        assert broker.topics() == []


def test_the_token_of_the_user_and_that_of_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "change.token").write_text("secret\n")
    monkeypatch.setenv("ANNS_TOKEN", token("ann"))
    with forebay.Broker(token_key=KEY, http_port=0, tubemq_port=0) as broker:
        words = ["topic", "create", "tubemq:sales", "-u", str(broker.http_url)]
        assert cli.main(words) == 1
        assert "authentication" in capsys.readouterr().err
        given = ["-X", "token=env:ANNS_TOKEN", "--change-token", f"file:{tmp_path / 'change.token'}"]
        assert cli.main([*words, *given]) == 0
        assert broker.topics() == ["tubemq:sales"]


@pytest.mark.parametrize(
    "words",
    [["topic", "create"], ["topic", "rm"], ["topic", "stats"], ["subscription", "ls"], ["schema", "show"]],
)
def test_the_administration_of_pulsar_refuses_topics_of_tubemq(
    broker: forebay.Broker, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["admin", *words, "tubemq:sales", "-u", str(broker.http_url)]) == 1
    assert "use `forebay topic`" in capsys.readouterr().err
    assert broker.topics() == []


@pytest.mark.parametrize("position", ["middle", "1:2"])
def test_a_position_is_checked_before_connecting(position: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["sub", "tubemq://127.0.0.1:1", "t", "-s", "g", "-o", position])
    assert ended.value.code == 2
    assert "-o, the position" in capsys.readouterr().err
