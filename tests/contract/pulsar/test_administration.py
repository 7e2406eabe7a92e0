"""The administration over HTTP: requests to the embedded broker and the real Pulsar, without a client."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

import forebay

from support.pulsar.harness import Answer, EmbeddedPulsar, PulsarService, RealPulsar
from support.waiting import PATIENCE

TOPIC = "persistent/public/default/{t}"
EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}


@dataclass(frozen=True)
class Ask:
    """A request, and what both brokers answer, or the embedded one with ``apart``: why it differs."""

    method: str
    path: str
    status: int
    body: object = None
    apart: str = ""


REQUESTS = [
    Ask("POST", "clusters", 405),
    Ask("GET", "persistent/public/none", 404),
    Ask("GET", "brokers/configuration/runtime", 200),
    Ask("GET", "nothing", 404),
    Ask("PATCH", TOPIC, 405),
    Ask("PUT", TOPIC, 204),
    Ask("PUT", f"{TOPIC}/subscription/s", 204),
    Ask("PUT", f"{TOPIC}/subscription/x", 400, {"x": 1}, "what is no message id is refused"),
    Ask("GET", f"{TOPIC}/subscription/s/position/x", 400, None, "the number is wrong, not the path"),
    Ask("POST", f"{TOPIC}/subscription/s/resetcursor", 204, EARLIEST),
    Ask("DELETE", "schemas/public/default/{t}-none/schema", 404, None, "there is no schema to delete"),
    Ask("POST", "schemas/public/default/{t}/schema", 422, {"type": "NEVER", "schema": ""}, "it fails inside"),
    Ask("GET", "schemas/public/default/{t}/schema/x", 400, None, "it fails inside"),
    Ask("DELETE", TOPIC, 204),
]
"""What `test_java_admin.py` does not ask."""


@pytest.mark.real_pulsar
def test_other_requests_are_answered_as_by_the_real_broker(
    embedded: EmbeddedPulsar, real_pulsar: RealPulsar
) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    for request in REQUESTS:
        path = f"admin/v2/{request.path.replace('{t}', topic)}"
        ours, real = (one.ask(request.method, path, request.body) for one in (embedded, real_pulsar))
        assert ours.status == request.status, (path, ours)
        assert (ours.status != real.status) is bool(request.apart), (path, real)
        if ours.status >= 400:
            assert ours.json()["reason"], path


def fields_of(answer: Answer) -> dict[str, str]:
    """Headers of a message that both brokers have, without those that are times."""
    names = ("PROPERTY", "event-time", "producer-name", "sequence-id", "partition-key", "uncompressed-size")
    found = {name: answer.headers[f"X-Pulsar-{name}"] for name in names}
    return found | {"batch": answer.headers["X-Pulsar-num-batch-message"]}


def test_messages_are_looked_at_and_skipped(service: PulsarService) -> None:
    topic = service.topic()
    path = f"admin/v2/{topic.replace('://', '/')}"
    assert service.ask("PUT", path).status == 204
    for name in ("a", "b"):
        assert service.ask("PUT", f"{path}/subscription/{name}").status == 204
    with forebay.blocking.connect(service.url) as client:
        options: dict[str, Any] = {"batching": False, "compression": "zlib", "name": "till"}
        with client.producer(topic, **options) as producer:
            for number in range(5):
                producer.send(
                    b"payload %d" % number,
                    key="k",
                    properties={"a b": 'c"', "ü": "😀"},
                    event_time=1_700_000_000_000,
                )

    def peek(subscription: str, at: int) -> Answer:
        return service.ask("GET", f"{path}/subscription/{subscription}/position/{at}")

    def backlog(subscription: str) -> int:
        return service.ask("GET", f"{path}/stats").json()["subscriptions"][subscription]["msgBacklog"]

    second = peek("a", 2)
    assert second.body == b"payload 1"
    fields = fields_of(second)
    if not service.is_real:
        # The real one writes them in Latin-1, which loses what is not in it.
        assert fields.pop("PROPERTY") == '{"a b":"c\\"","\\u00fc":"\\ud83d\\ude00"}'
    fields.pop("PROPERTY", None)
    assert fields == {
        "event-time": "2023-11-14T22:13:20Z",
        "producer-name": "till",
        "sequence-id": "1",
        "partition-key": "k",
        "uncompressed-size": "9",
        "batch": None,
    }
    ledger, entry = second.headers["X-Pulsar-Message-ID"].split(":")
    assert service.ask("GET", f"{path}/ledger/{ledger}/entry/{entry}").body == b"payload 1"
    assert peek("a", 6).status == 404

    assert service.ask("POST", f"{path}/subscription/a/skip/2").status == 204
    assert (backlog("a"), backlog("b"), peek("a", 1).body) == (3, 5, b"payload 2")
    at = {"ledgerId": int(ledger), "entryId": int(entry), "partitionIndex": -1, "excluded": False}
    assert service.ask("POST", f"{path}/subscription/a/resetcursor", at).status == 204
    assert (backlog("a"), peek("a", 1).body) == (4, b"payload 1")
    assert service.ask("POST", f"{path}/subscription/a/skip_all").status == 204
    assert (backlog("a"), peek("a", 1).status) == (0, 404)
    assert (
        service.ask("POST", f"{path}/subscription/a/resetcursor/{int(time.time() * 1000) - 60_000}").status
        == 204
    )
    assert (backlog("a"), peek("a", 1).body) == (5, b"payload 0")
    time.sleep(1.5)
    assert service.ask("POST", f"{path}/subscription/b/expireMessages/1").status == 204
    deadline = time.monotonic() + PATIENCE
    while backlog("b") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert (backlog("a"), backlog("b")) == (5, 0)
    last = service.ask("GET", f"{path}/lastMessageId").json()
    assert (last["entryId"], last["ledgerId"]) == (4, int(ledger))


def test_consumers_go_on_where_a_subscription_was_moved_to(service: PulsarService) -> None:
    topic = service.topic()
    path = f"admin/v2/{topic.replace('://', '/')}"
    with forebay.blocking.connect(service.url) as client:
        with (
            client.consumer(topic, "s", position="earliest") as consumer,
            client.producer(topic, batching=False) as producer,
        ):
            for number in range(10):
                producer.send(b"%d" % number)
            assert [consumer.receive(timeout=PATIENCE).data for _ in range(10)][-1] == b"9"
            # It is connected: neither it nor its topic goes without force.
            assert service.ask("DELETE", f"{path}/subscription/s").status == 412
            assert service.ask("DELETE", path).status == 412
            first = service.ask("GET", f"{path}/subscription/s/position/1").headers["X-Pulsar-Message-ID"]
            ledger, entry = first.split(":")
            at = {"ledgerId": int(ledger), "entryId": int(entry) + 5, "partitionIndex": -1}
            assert service.ask("POST", f"{path}/subscription/s/resetcursor", at).status == 204
            again = consumer.receive(timeout=PATIENCE)
            assert again.data == b"5"
            figures = service.ask("GET", f"{path}/stats").json()
            assert [one["producerName"] for one in figures["publishers"]]
            assert figures["subscriptions"]["s"]["type"] == "Exclusive"
            assert len(figures["subscriptions"]["s"]["consumers"]) == 1
            assert figures["msgInCounter"] == 10
        assert service.ask("DELETE", f"{path}?force=true").status == 204


def test_the_version_is_told(embedded: EmbeddedPulsar) -> None:
    answer = embedded.ask("GET", "admin/v2/brokers/version")
    assert answer.status == 200
    assert answer.body.decode() == f"Forebay {forebay.__version__}"
