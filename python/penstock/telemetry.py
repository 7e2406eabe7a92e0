"""OpenTelemetry: metrics of a client, and trace context in the properties of messages.

It needs ``opentelemetry-api`` (``pip install penstock[otel]``), which is imported when a function of this
module is called. Names are those of the semantic conventions for messaging.

>>> from penstock import telemetry
>>> telemetry.inject({"source": "till"})["source"]  # with a span: also traceparent
'till'
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
from collections.abc import Callable, Generator, Mapping
from typing import Any

__all__ = ["ProducerTracing", "extract", "inject", "instrument", "processing"]

NAME = "penstock"
"""The instrumentation scope."""

COUNTERS = {
    "messaging.client.sent.messages": ("messages_sent", "{message}", "Messages that the broker has."),
    "messaging.client.consumed.messages": ("messages_received", "{message}", "Messages that were received."),
    "{key}.client.producer.message.send.failed": ("messages_failed", "{message}", "Messages that failed."),
    "{key}.client.producer.message.send.size": ("bytes_sent", "By", "Bytes of messages that were sent."),
    "{key}.client.consumer.message.received.size": ("bytes_received", "By", "Bytes of received payloads."),
    "{key}.client.consumer.message.ack": ("messages_acknowledged", "{message}", "Acknowledgements."),
    "{key}.client.consumer.message.nack": ("messages_refused", "{message}", "Negative acknowledgements."),
    "{key}.client.consumer.message.redelivered": ("redelivered", "{message}", "Redelivered messages."),
    "{key}.client.connection.opened": ("connections_opened", "{connection}", "Accepted connections."),
    "{key}.client.connection.closed": ("connections_closed", "{connection}", "Connections that ended."),
    "{key}.client.connection.failed": ("connect_failures", "{attempt}", "Attempts that failed."),
    "{key}.client.connection.reconnected": ("reconnects", "{connection}", "Connections after a lost one."),
}
GAUGES = {
    "{key}.client.memory.used": ("memory_used_bytes", "By", "Bytes of messages without an answer."),
}


def _api(module: str) -> Any:
    return importlib.import_module(f"opentelemetry.{module}")


@functools.cache
def is_installed() -> bool:
    """Whether ``opentelemetry-api`` is there."""
    return importlib.util.find_spec("opentelemetry") is not None


def instrument(client: Any, meter_provider: Any = None) -> None:
    """Reports the counters of a client as OpenTelemetry metrics, whenever a reader collects them, until it is
    closed. They have the attribute ``messaging.system`` and none for topics, so that their number does not
    grow.

    Args:
        client: a client of either face.
        meter_provider: the provider; the global one by default.

    Raises:
        ImportError: ``opentelemetry-api`` is not installed.
    """
    api = _api("metrics")
    provider = meter_provider or api.get_meter_provider()
    meter = provider.get_meter(NAME)
    key = type(client).__module__.split(".")[1]
    attributes = {"messaging.system": key}

    def observe(name: str) -> Callable[[Any], Any]:
        def callback(_: Any) -> list[Any]:
            # A closed client reports no more.
            return [] if client.closed else [api.Observation(client.stats()[name], attributes)]

        return callback

    for name, (source, unit, text) in COUNTERS.items():
        meter.create_observable_counter(name.format(key=key), [observe(source)], unit, text)
    for name, (source, unit, text) in GAUGES.items():
        meter.create_observable_gauge(name.format(key=key), [observe(source)], unit, text)


def inject(properties: Mapping[str, str] | None = None) -> dict[str, str]:
    """Properties for a message with the current trace context, as W3C's ``traceparent`` and ``tracestate``.
    Without ``opentelemetry-api``, or outside of a span, the properties alone.

    With MQTT they are user properties, which need MQTT 5.
    """
    carrier = dict(properties or {})
    if is_installed():
        api = _api("propagate")
        api.inject(carrier)
    return carrier


def extract(message: Any) -> Any:
    """The trace context of a received message, an OpenTelemetry ``Context``; ``None`` without
    ``opentelemetry-api``."""
    if not is_installed():
        return None
    api = _api("propagate")
    return api.extract(dict(message.properties))


@contextlib.contextmanager
def processing(message: Any, tracer_provider: Any = None) -> Generator[Any, None, None]:
    """A span ``process TOPIC`` around the work on a received message, whose parent is the span that has sent
    it. An exception is recorded in it. Without ``opentelemetry-api`` this does nothing.

    Args:
        message: the message.
        tracer_provider: the provider; the global one by default.
    """
    if not is_installed():
        yield None
        return
    api = _api("trace")
    tracer = api.get_tracer(NAME, tracer_provider=tracer_provider)
    with tracer.start_as_current_span(
        f"process {message.topic}",
        context=extract(message),
        kind=api.SpanKind.CONSUMER,
        attributes=_attributes(message.topic, "process", len(message.data)),
    ) as span:
        yield span


def _attributes(topic: str, operation: str, size: int) -> dict[str, Any]:
    return {
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
        "messaging.message.body.size": size,
    }


class ProducerTracing:
    """An interceptor for producers of Pulsar: a span ``send TOPIC`` from the send to the receipt, whose
    context is in the properties of the message.

    ``client.producer("orders", interceptors=telemetry.ProducerTracing())``

    Args:
        tracer_provider: the provider; the global one by default.

    Raises:
        ImportError: ``opentelemetry-api`` is not installed.
    """

    def __init__(self, tracer_provider: Any = None) -> None:
        self._propagate = _api("propagate")
        self._trace = _api("trace")
        self._tracer: Any = self._trace.get_tracer(NAME, tracer_provider=tracer_provider)
        self._spans: dict[str, Any] = {}

    def before_send(self, producer: Any, message: Any) -> None:
        """Starts the span."""
        span = self._tracer.start_span(
            f"send {producer.topic}",
            kind=self._trace.SpanKind.PRODUCER,
            attributes={
                "messaging.system": "pulsar",
                **_attributes(producer.topic, "send", memoryview(message.payload).nbytes),
            },
        )
        self._propagate.inject(message.properties, context=self._trace.set_span_in_context(span))
        parent = message.properties.get("traceparent")
        if parent is None or not span.is_recording() or len(self._spans) >= MOST_SPANS:
            # Not sampled, or of a send without a result, which tells no end.
            span.end()
        else:
            self._spans[parent] = span

    def on_send_acknowledged(self, producer: Any, message: Any, message_id: Any, error: Any) -> None:
        """Ends the span."""
        span = self._spans.pop(message.properties.get("traceparent", ""), None)
        if span is None:
            return
        if error is not None:
            span.set_attribute("error.type", getattr(error, "code", type(error).__name__))
            span.set_status(self._trace.StatusCode.ERROR)
        else:
            span.set_attribute("messaging.message.id", str(message_id))
        span.end()

    def close(self) -> None:
        """Ends the spans of messages without an outcome."""
        spans, self._spans = list(self._spans.values()), {}
        for span in spans:
            span.end()


MOST_SPANS = 10_000
"""Open spans of one :class:`ProducerTracing`; ``send_nowait`` has no result that would end one."""
