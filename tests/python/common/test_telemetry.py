"""OpenTelemetry, which is not in the environment of the tests: with a stand-in, and without it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay import telemetry

STAND_IN = Path(__file__).resolve().parents[2] / "support" / "otel"


def run(program: str, *arguments: str, stand_in: bool = True) -> str:
    paths = [str(Path(forebay.__file__).parents[1]), *([str(STAND_IN)] if stand_in else [])]
    ran = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", textwrap.dedent(program), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0 and not ran.stderr, ran
    return ran.stdout


def test_without_it_nothing_is_imported_and_messages_are_as_they_are(embedded: Any) -> None:
    program = """
        import sys, forebay
        from forebay import telemetry
        with forebay.blocking.connect(sys.argv[1]) as client:
            with client.consumer(sys.argv[2], "s") as consumer, client.producer(sys.argv[2]) as producer:
                telemetry.send(producer, b"x", properties=telemetry.inject({"a": "b"}))
                message = consumer.receive(timeout=60)
                assert message.properties == {"a": "b"} and telemetry.extract(message) is None
                with telemetry.processing(message) as span:
                    assert span is None
                for absent in (lambda: telemetry.instrument(client), telemetry.ProducerTracing):
                    try:
                        absent()
                    except ImportError as error:
                        assert "opentelemetry" in str(error)
                    else:
                        raise AssertionError("it is not installed")
        assert not [name for name in sys.modules if name.startswith("opentelemetry")]
        print("done")
    """
    assert run(program, embedded.url, embedded.topic(), stand_in=False) == "done\n"


@pytest.mark.parametrize("protocol", ["pulsar", "mqtt", "tubemq"])
def test_the_context_travels_in_the_properties(request: pytest.FixtureRequest, protocol: str) -> None:
    fixture = {"pulsar": "embedded", "mqtt": "embedded_mqtt", "tubemq": "embedded_tubemq"}[protocol]
    broker = request.getfixturevalue(fixture)
    program = """
        import sys, forebay
        from forebay import telemetry
        from opentelemetry import trace
        url, topic, protocol = sys.argv[1:]
        options = {} if protocol == "mqtt" else {"subscription": "s"}
        if protocol == "tubemq":
            options["position"] = "first"
        with forebay.blocking.connect(url) as client:
            with client.consumer(topic, **options) as consumer, client.producer(topic) as producer:
                tracer = trace.get_tracer("forebay")
                with tracer.start_as_current_span("order", None, trace.SpanKind.PRODUCER, {}) as order:
                    producer.send(b"abc", properties=telemetry.inject({"a": "b"}))
                producer.send(b"alone", properties=telemetry.inject())
                message = consumer.receive(timeout=60)
                assert message.properties["a"] == "b" and message.properties["traceparent"].startswith("00-")
                assert telemetry.extract(message) is order
                with telemetry.processing(message) as span:
                    assert trace.CURRENT.get() is span and span.parent is order
                assert span.ended and span.name == f"process {message.topic}"
                assert span.attributes["messaging.message.body.size"] == 3
                consumer.ack(message)
                later = consumer.receive(timeout=60)
                assert "traceparent" not in later.properties and telemetry.extract(later) is None
                consumer.ack(later)
        print("done")
    """
    assert run(program, broker.url, broker.topic(), protocol) == "done\n"


@pytest.mark.parametrize("stand_in", [True, False])
def test_user_properties_may_repeat_a_name(embedded_mqtt: Any, stand_in: bool) -> None:
    program = """
        import sys, forebay
        from forebay import telemetry
        url, topic, stand_in = sys.argv[1:]
        pairs = [("route", "a"), ("route", "b"), ("traceparent", "of before")]
        with forebay.blocking.connect(url) as client, client.consumer(topic) as consumer:
            producer = client.producer(topic)
            telemetry.send(producer, b"x", properties=pairs)
            message = consumer.receive(timeout=60)
            consumer.ack(message)
            assert message.user_properties[:2] == pairs[:2]
            assert [name for name, _ in message.user_properties].count("traceparent") == 1
            assert (message.user_properties == pairs) == (stand_in == "False")
            assert telemetry.inject(pairs, producer)[:2] == pairs[:2]
        print("done")
    """
    arguments = embedded_mqtt.url, embedded_mqtt.topic(), str(stand_in)
    assert run(program, *arguments, stand_in=stand_in) == "done\n"


def test_a_producer_of_pulsar_has_a_span_for_each_send(embedded: Any) -> None:
    program = """
        import sys, forebay
        from forebay import errors, telemetry
        from opentelemetry import trace
        url, topic = sys.argv[1:]
        with forebay.blocking.connect(url) as client:
            consumer = client.consumer(topic, "s")
            with client.producer(topic, interceptors=telemetry.ProducerTracing()) as producer:
                producer.send(b"abc", properties={"a": "b"})
                sent = trace.SPANS[-1]
                assert sent.ended and sent.status is None and sent.kind is trace.SpanKind.PRODUCER
                assert sent.name == f"send {producer.topic}"
                assert sent.attributes["messaging.system"] == "pulsar"
                assert sent.attributes["messaging.message.id"]
                message = consumer.receive(timeout=60)
                assert telemetry.extract(message) is sent and message.properties["a"] == "b"
                try:
                    producer.send(b"x" * (64 << 20))
                except errors.MessageTooLarge:
                    failed = trace.SPANS[-1]
                    assert failed.ended and failed.status is trace.StatusCode.ERROR
                    assert failed.attributes["error.type"] == "message_too_large"
                producer.send_nowait(b"no result")
                producer.flush()
                assert producer.interceptor_errors == 0
            assert all(span.ended for span in trace.SPANS), "also that without a result"
            consumer.close()
        print("done")
    """
    assert run(program, embedded.url, embedded.topic()) == "done\n"


@pytest.mark.parametrize("face", ["asyncio", "blocking"])
def test_many_messages_of_a_call_have_one_span(embedded: Any, face: str) -> None:
    program = """
        import asyncio, sys, forebay
        from forebay import errors, telemetry
        from opentelemetry import trace
        url, topic, face = sys.argv[1:]

        def check(producer, messages, count):
            sent = trace.SPANS[-1]
            assert sent.ended and sent.status is None and sent.kind is trace.SpanKind.PRODUCER
            assert sent.name == f"send {producer.topic}"
            assert sent.attributes["messaging.batch.message_count"] == count
            assert "messaging.message.id" not in sent.attributes
            assert len(messages) == count
            for message in messages:
                assert telemetry.extract(message) is sent

        def check_failed(error):
            failed = trace.SPANS[-1]
            assert failed.ended and failed.status is trace.StatusCode.ERROR
            assert failed.attributes["error.type"] == error.code

        import pyarrow
        rows = pyarrow.table({"v": ["a", "b"]})
        large = [b"x", b"x" * (64 << 20)]
        tracing = telemetry.ProducerTracing

        async def on_loop():
            async with forebay.connect(url) as client:
                consumer = await client.consumer(topic, "s")
                async with client.producer(topic, interceptors=tracing()) as producer:
                    await producer.send_many([b"x"] * 3)
                    check(producer, await consumer.receive_batch(3, timeout=60), 3)
                    await producer.send_frame(rows, value="v")
                    check(producer, await consumer.receive_batch(2, timeout=60), 2)
                    await producer.send_many([])
                    try:
                        await producer.send_many(large)
                    except errors.MessageTooLarge as error:
                        check_failed(error)
                    assert producer.interceptor_errors == 0

        def blocking():
            with forebay.blocking.connect(url) as client:
                consumer = client.consumer(topic, "s")
                with client.producer(topic, interceptors=tracing()) as producer:
                    producer.send_many([b"x"] * 3)
                    check(producer, consumer.receive_batch(3, timeout=60), 3)
                    producer.send_frame(rows, value="v")
                    check(producer, consumer.receive_batch(2, timeout=60), 2)
                    producer.send_many([])
                    try:
                        producer.send_many(large)
                    except errors.MessageTooLarge as error:
                        check_failed(error)
                    assert producer.interceptor_errors == 0

        asyncio.run(on_loop()) if face == "asyncio" else blocking()
        assert len(trace.SPANS) == 3
        print("done")
    """
    assert run(program, embedded.url, embedded.topic(), face) == "done\n"


@pytest.mark.parametrize("protocol", ["pulsar", "mqtt", "mqtt 3.1.1", "tubemq"])
@pytest.mark.parametrize("face", ["asyncio", "blocking"])
def test_a_send_has_a_span_with_every_protocol(
    request: pytest.FixtureRequest, protocol: str, face: str
) -> None:
    protocol, _, version = protocol.partition(" ")
    fixture = {"pulsar": "embedded", "mqtt": "embedded_mqtt", "tubemq": "embedded_tubemq"}[protocol]
    broker = request.getfixturevalue(fixture)
    program = """
        import asyncio, sys, forebay
        from forebay import errors, telemetry
        from opentelemetry import trace
        url, topic, protocol, face, version = sys.argv[1:]
        options = {} if protocol == "mqtt" else {"subscription": "s"}
        if protocol == "tubemq":
            options["position"] = "first"
        of_client = {"version": version} if version else {}
        carries = not version
        # What has a separator of TubeMQ's attributes.
        trace.STATE = "vendor=1,other=2"

        def check_sent():
            (sent,) = trace.SPANS
            assert sent.ended and sent.status is None and sent.kind is trace.SpanKind.PRODUCER
            assert sent.name == f"send {topic_of}" and sent.attributes["messaging.system"] == protocol
            assert sent.attributes["messaging.message.body.size"] == 3
            assert ("messaging.message.id" in sent.attributes) == (protocol != "mqtt")

        def check_received(message):
            sent = trace.SPANS[0]
            expected = {"a": "b"} if carries else {}
            if carries:
                expected["traceparent"] = f"00-{1:032x}-{sent.number + 1:016x}-01"
                if protocol != "tubemq":
                    expected["tracestate"] = trace.STATE
            assert {n: v for n, v in message.properties.items() if not n.startswith("$")} == expected
            with telemetry.processing(message) as span:
                assert span.parent is (sent if carries else None)
                assert span.attributes["messaging.system"] == protocol

        def check_failed(error):
            failed = trace.SPANS[-1]
            assert failed.ended and failed.status is trace.StatusCode.ERROR
            assert failed.attributes["error.type"] == error.code

        good = {"properties": {"a": "b"}} if carries else {}

        async def on_loop():
            global topic_of
            async with forebay.connect(url, **of_client) as client:
                consumer = await client.consumer(topic, **options)
                producer = await client.producer(topic)
                topic_of = producer.topic
                sent = telemetry.send(producer, b"abc", **good)
                assert not trace.SPANS[0].ended, "the broker has not answered"
                await sent
                check_sent()
                message = await consumer.receive(timeout=60)
                check_received(message)
                await consumer.ack(message)
                await producer.close()
                try:
                    await telemetry.send(producer, b"abc")
                except errors.Closed as error:
                    check_failed(error)
                await consumer.close()

        def blocking():
            global topic_of
            with forebay.blocking.connect(url, **of_client) as client:
                consumer = client.consumer(topic, **options)
                producer = client.producer(topic)
                topic_of = producer.topic
                telemetry.send(producer, b"abc", **good)
                check_sent()
                message = consumer.receive(timeout=60)
                check_received(message)
                consumer.ack(message)
                producer.close()
                try:
                    telemetry.send(producer, b"abc")
                except errors.Closed as error:
                    check_failed(error)
                consumer.close()

        asyncio.run(on_loop()) if face == "asyncio" else blocking()
        assert len(trace.SPANS) == 3
        print("done")
    """
    assert run(program, broker.url, broker.topic(), protocol, face, version) == "done\n"


def test_the_counters_are_metrics_until_the_client_is_closed(embedded: Any) -> None:
    program = """
        import sys, forebay
        from forebay import telemetry
        from opentelemetry.metrics import INSTRUMENTS
        url, topic = sys.argv[1:]
        with forebay.blocking.connect(url) as client:
            telemetry.instrument(client)
            with client.producer(topic) as producer:
                producer.send(b"abc")
            def read(name):
                return INSTRUMENTS[name][1](None)
            (sent,) = read("messaging.client.sent.messages")
            assert sent.value == 1 and sent.attributes == {"messaging.system": "pulsar"}
            assert read("pulsar.client.connection.opened")[0].value >= 1
            assert read("pulsar.client.producer.message.send.size")[0].value == 3
            assert INSTRUMENTS["pulsar.client.memory.used"][0] == "gauge"
            (lookups,) = read("pulsar.client.lookup.count")
            assert lookups.value >= 2, "partitions and broker"
            assert read("pulsar.client.lookup.time")[0].value > 0
            assert read("pulsar.client.consumer.message.dlq")[0].value == 0
            for name in INSTRUMENTS:
                (one,) = read(name)
                assert one.value >= 0
        assert read("messaging.client.sent.messages") == []
        print("done")
    """
    assert run(program, embedded.url, embedded.topic()) == "done\n"


@pytest.mark.parametrize("protocol", ["mqtt", "tubemq"])
def test_no_metric_is_of_another_protocol(request: pytest.FixtureRequest, protocol: str) -> None:
    broker = request.getfixturevalue(f"embedded_{protocol}")
    program = """
        import sys, forebay
        from forebay import telemetry
        from opentelemetry.metrics import INSTRUMENTS
        with forebay.blocking.connect(sys.argv[1]) as client:
            telemetry.instrument(client)
            assert "messaging.client.sent.messages" in INSTRUMENTS
            assert not [name for name in INSTRUMENTS if "lookup" in name or "dlq" in name]
            for name in INSTRUMENTS:
                assert len(INSTRUMENTS[name][1](None)) == 1
        print("done")
    """
    assert run(program, broker.url) == "done\n"


def test_the_properties_are_not_changed() -> None:
    properties = {"a": "b"}
    assert telemetry.inject(properties) == properties and telemetry.inject(properties) is not properties
