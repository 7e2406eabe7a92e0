"""HTTP of the embedded broker as Python users see it: options, the command, TLS, tokens, metrics."""

from __future__ import annotations

import json
import re
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import forebay
from forebay import blocking, errors

from support.certificates import Authority
from support.tokens import KEY, token
from support.waiting import PATIENCE

LABEL = r"[a-z]+=\"(?:[^\"\\\n]|\\[\\\"n])*\""
SAMPLE = re.compile(rf"[a-z_]+(?:\{{(?:{LABEL},)*{LABEL}\}})? -?[0-9.e+]+\Z")


def get(url: str, secret: str | None = None, context: ssl.SSLContext | None = None) -> bytes:
    request = urllib.request.Request(url)
    if secret:
        request.add_header("Authorization", f"Bearer {secret}")
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if context:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    with urllib.request.build_opener(*handlers).open(request, timeout=60) as answer:
        return answer.read()


def test_it_is_off_unless_asked_for() -> None:
    with forebay.Broker() as broker:
        assert broker.http_url is None
        assert "http" not in broker.urls
    with forebay.Broker(http_port=0) as broker:
        assert str(broker.http_url).startswith("http://127.0.0.1:")
        assert broker.urls["http"] == broker.http_url
        assert get(f"{broker.http_url}/healthz") == b"ok\n"
    with pytest.raises(errors.InvalidArgument, match="http_port"):
        forebay.Broker(http_port=-1)


def test_a_port_that_is_taken_is_named() -> None:
    with forebay.Broker(http_port=0) as broker:
        port = int(str(broker.http_url).rpartition(":")[2])
        with pytest.raises(errors.IoError, match=str(port)):
            forebay.Broker(http_port=port)


def test_the_command_tells_its_url_and_is_ready(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "forebay", "broker", "--port", "0", "--http-port", "0", "--json"]
    process = subprocess.Popen([*command, "--data", str(tmp_path / "data")], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["http_url"]
        assert json.loads(get(f"{url}/readyz")) == {"ready": True, "store": "ok", "disk": "ok", "clock": "ok"}
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)
    assert process.returncode == 0


def test_metrics_follow_the_format_and_count_what_was_sent() -> None:
    with forebay.Broker(http_port=0, mqtt_port=0, tubemq_port=0) as broker:
        topic = 'persistent://public/default/a "quoted" \\ name'
        with blocking.connect(broker.url) as client:
            with client.consumer(topic, "s"), client.producer(topic) as producer:
                for _ in range(3):
                    producer.send(b"12345")
                text = get(f"{broker.http_url}/metrics").decode()
    described: set[str] = set()
    samples: dict[str, float] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in described
            described.add(name)
        elif line.startswith("# TYPE "):
            kind = "counter" if name.endswith("_total") else "gauge"
            summary = name == "forebay_broker_commit_seconds"
            assert line == f"# TYPE {name} {'summary' if summary else kind}"
        else:
            assert SAMPLE.match(line), line
            sample, _, value = line.rpartition(" ")
            found = re.split(r"[{ ]", sample)[0]
            assert found in (name, f"{name}_sum", f"{name}_count"), f"{line} is not with its name"
            assert sample not in samples
            samples[sample] = float(value)
    assert samples['forebay_broker_received_messages_total{protocol="pulsar"}'] == 3
    assert samples['forebay_broker_received_bytes_total{protocol="pulsar"}'] > 15
    assert samples['forebay_broker_connections{protocol="pulsar"}'] >= 1
    assert samples['forebay_broker_sessions{protocol="mqtt"}'] == 0
    assert samples['forebay_broker_connections{protocol="tubemq"}'] == 0
    labels = 'protocol="pulsar",topic="persistent://public/default/a \\"quoted\\" \\\\ name"'
    assert samples[f"forebay_topic_producers{{{labels}}}"] == 1
    assert samples[f'forebay_subscription_backlog_entries{{{labels},subscription="s"}}'] >= 1
    assert samples[f'forebay_subscription_consumers{{{labels},subscription="s"}}'] == 1


def test_with_tls_and_tokens_everything_but_health_needs_both() -> None:
    authority = Authority()
    chain, key = authority.leaf()
    options = {"tls_cert": chain.decode(), "tls_key": key.decode(), "token_key": KEY}
    context = ssl.create_default_context(cadata=authority.pem.decode())
    with forebay.Broker(http_port=0, **options) as broker:
        url = str(broker.http_url)
        assert url.startswith("https://127.0.0.1:")
        assert get(f"{url}/healthz", context=context) == b"ok\n"
        for secret in (None, "nonsense", token("till")[:-1] + "!"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                get(f"{url}/metrics", secret, context)
            with refused.value as error:
                assert error.code == 401
        assert b"forebay_broker_info" in get(f"{url}/metrics", token("till"), context)
        tls = {"tls_ca": authority.pem.decode(), "operation_timeout": 10}
        for secret in (None, "nonsense"):
            with pytest.raises(errors.AuthenticationError):
                blocking.connect(url, token=secret, **tls)
        with blocking.connect(url, token=token("till"), **tls) as client:
            with client.consumer("t", "s") as consumer, client.producer("t") as producer:
                producer.send(b"x")
                assert consumer.receive(timeout=PATIENCE).data == b"x"
