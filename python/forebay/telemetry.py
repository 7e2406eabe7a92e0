"""OpenTelemetry: metrics of a client, spans of sends and of the work on messages, and trace context in the
properties of messages.

It needs ``opentelemetry-api`` (``pip install forebay[otel]``), which is imported when a function of this
module is called. Names are those of the semantic conventions for messaging.

>>> from forebay import telemetry
>>> telemetry.inject({"source": "till"})["source"]  # with a span: also traceparent
'till'
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from ._core.protocols import PROTOCOLS

if TYPE_CHECKING:
    from .pulsar import MessageId, OutgoingMessage
    from .pulsar import ProducerInterceptor as _Interceptor
else:
    # Its methods are all here, and Pulsar is not imported for other protocols.
    _Interceptor = object

__all__ = ["ProducerTracing", "extract", "inject", "instrument", "processing", "send"]

NAME = "forebay"
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
    "{key}.client.consumer.message.dlq": (
        "dead_letters",
        "{message}",
        "Messages sent to a dead letter topic.",
    ),
    "{key}.client.consumer.message.dlq.failed": (
        *("dead_letters_failed", "{message}"),
        "Attempts to send a dead letter that failed.",
    ),
    "{key}.client.consumer.message.retried": ("retried", "{message}", "Messages sent to a topic of retries."),
    "{key}.client.lookup.count": ("lookups", "{lookup}", "Lookups."),
    "{key}.client.lookup.failed": ("lookups_failed", "{lookup}", "Lookups that failed."),
    "{key}.client.lookup.time": ("lookup_latency_sum", "s", "Seconds of lookups that succeeded."),
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


def meter(meter_provider: Any = None) -> tuple[Any, Callable[..., Any]]:
    """The meter of this package, and the class of what its instruments observe.

    Args:
        meter_provider: the provider; the global one by default.

    Raises:
        ImportError: ``opentelemetry-api`` is not installed.
    """
    api = _api("metrics")
    provider = meter_provider or api.get_meter_provider()
    return provider.get_meter(NAME), api.Observation


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
    own, observation = meter(meter_provider)
    key = _system(client)
    attributes = {"messaging.system": key}

    def observe(name: str) -> Callable[[Any], Any]:
        def callback(_: Any) -> list[Any]:
            # A closed client reports no more.
            return [] if client.closed else [observation(client.stats()[name], attributes)]

        return callback

    known = client.stats()
    for name, (source, unit, text) in COUNTERS.items():
        # Some are of one protocol.
        if source in known:
            own.create_observable_counter(name.format(key=key), [observe(source)], unit, text)
    for name, (source, unit, text) in GAUGES.items():
        own.create_observable_gauge(name.format(key=key), [observe(source)], unit, text)


def _system(of: object) -> str:
    """The protocol of a message, a client or a producer."""
    return _system_of_class(of.__class__)


@functools.cache
def _system_of_class(kind: type[object]) -> str:
    of_message = (row.key for row in PROTOCOLS.values() if row.message.endswith(f":{kind.__name__}"))
    # The classes of both faces are in a package of their protocol.
    return next(of_message, None) or next(part for part in kind.__module__.split(".") if part in PROTOCOLS)


@overload
def inject(
    properties: Mapping[str, str] | None = None, producer: Any = None, *, context: Any = None
) -> dict[str, str]: ...
@overload
def inject(
    properties: Sequence[tuple[str, str]], producer: Any = None, *, context: Any = None
) -> list[tuple[str, str]]: ...
def inject(
    properties: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
    producer: Any = None,
    *,
    context: Any = None,
) -> dict[str, str] | list[tuple[str, str]]:
    """Properties for a message with the current trace context, as W3C's ``traceparent`` and ``tracestate``.
    Without ``opentelemetry-api``, or outside of a span, the properties alone.

    With MQTT they are user properties, which need MQTT 5.

    Args:
        properties: the other properties. For MQTT they may be pairs, in which a name may repeat; the result
            is then a list of pairs.
        producer: the producer that will send them. What its messages cannot carry is left out: all with
            versions of MQTT before 5, with TubeMQ what has a ``,`` or a ``=``.
        context: the OpenTelemetry ``Context``; the current one by default.
    """
    fields: dict[str, str] = {}
    if is_installed():
        _api("propagate").inject(fields, context=context)
        fields = fields if producer is None else producer._carried(fields)
    if properties is None or isinstance(properties, Mapping):
        return {**(properties or {}), **fields}
    return [*(pair for pair in properties if pair[0] not in fields), *fields.items()]


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
        attributes=_attributes(_system(message), message.topic, "process", message.data),
    ) as span:
        yield span


def send(
    producer: Any,
    payload: Any,
    *args: Any,
    properties: Mapping[str, str] | Sequence[tuple[str, str]] | None = None,
    tracer_provider: Any = None,
    **fields: Any,
) -> Any:
    """Sends a message with any protocol, as ``producer.send``, in a span ``send TOPIC`` that lasts until the
    broker's answer. Its context is in the properties of the message. An error is recorded in the span.

    Before MQTT 5 a message has no place for the context, and there is only the span. Without
    ``opentelemetry-api`` this is ``producer.send``.

    >>> telemetry.send(producer, b"a book", properties={"source": "till"})  # doctest: +SKIP
    >>> await telemetry.send(producer, b"a book")  # asyncio  # doctest: +SKIP

    Args:
        producer: a producer of either face, without :class:`ProducerTracing`.
        payload: as of ``producer.send``, as are ``args`` and ``fields``.
        properties: properties of the message; for MQTT also as pairs, in which a name may repeat.
        tracer_provider: the provider; the global one by default.

    Returns:
        The result of ``producer.send``.
    """
    if properties:
        fields["properties"] = dict(properties) if isinstance(properties, Mapping) else list(properties)
    if not is_installed():
        return producer.send(payload, *args, **fields)
    trace = _api("trace")
    topic = fields.get("topic") or producer.topic
    span = _begin(trace, trace.get_tracer(NAME, tracer_provider=tracer_provider), producer, topic, payload)
    try:
        if carried := inject(properties or {}, producer, context=trace.set_span_in_context(span)):
            fields["properties"] = carried
        pending = producer.send(payload, *args, **fields)
    except BaseException as error:
        _end(trace, span, None, error)
        raise
    if hasattr(pending, "add_done_callback"):
        pending.add_done_callback(functools.partial(_ended, trace, span))
    else:
        _end(trace, span, pending, None)
    return pending


def _ended(trace: Any, span: Any, future: Any) -> None:
    if future.cancelled():
        # Cancelling does not unsend: the outcome is unknown.
        span.end()
    else:
        # exception() would keep asyncio from reporting an error at which the program never looks.
        error = future._exception if hasattr(future, "_exception") else future.exception()
        _end(trace, span, None if error else future.result(), error)


def _begin(trace: Any, tracer: Any, producer: Any, topic: str, payload: Any, count: int | None = None) -> Any:
    attributes = _attributes(_system(producer), topic, "send", payload)
    if count is not None:
        attributes["messaging.batch.message_count"] = count
    return tracer.start_span(f"send {topic}", kind=trace.SpanKind.PRODUCER, attributes=attributes)


def _end(trace: Any, span: Any, result: Any, error: BaseException | None) -> None:
    if error is not None:
        span.set_attribute("error.type", getattr(error, "code", type(error).__name__))
        span.set_status(trace.StatusCode.ERROR)
    elif result is not None and not isinstance(result, int):
        # Reason codes are not ids.
        span.set_attribute("messaging.message.id", str(result))
    span.end()


def _attributes(system: str, topic: str, operation: str, payload: Any) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "messaging.system": system,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }
    # A value of a schema is encoded later.
    with contextlib.suppress(TypeError):
        attributes["messaging.message.body.size"] = memoryview(payload).nbytes
    return attributes


class ProducerTracing(_Interceptor):
    """An interceptor for producers of Pulsar: a span ``send TOPIC`` from the send to the receipt, whose
    context is in the properties of the message. A ``send_many`` or ``send_frame`` has one span with the
    number of its messages, whose context is in each of them.

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

    def before_send(self, producer: Any, message: OutgoingMessage) -> None:
        """Starts the span."""
        self._start(producer, [message], message.payload)

    def before_send_many(self, producer: Any, messages: Sequence[OutgoingMessage]) -> None:
        """Starts the span of all messages."""
        if messages:
            self._start(producer, messages, None, len(messages))

    def _start(
        self, producer: Any, messages: Sequence[OutgoingMessage], payload: Any, count: int | None = None
    ) -> None:
        span = _begin(self._trace, self._tracer, producer, producer.topic, payload, count)
        fields: dict[str, str] = {}
        self._propagate.inject(fields, context=self._trace.set_span_in_context(span))
        for message in messages:
            message.properties.update(fields)
        parent = fields.get("traceparent")
        if parent is None or not span.is_recording() or len(self._spans) >= MOST_SPANS:
            # Not sampled, or of a send without a result, which tells no end.
            span.end()
        else:
            self._spans[parent] = span

    def on_send_acknowledged(
        self,
        producer: Any,
        message: OutgoingMessage,
        message_id: MessageId | None,
        error: BaseException | None,
    ) -> None:
        """Ends the span."""
        span = self._spans.pop(message.properties.get("traceparent", ""), None)
        if span is not None:
            _end(self._trace, span, message_id, error)

    def on_send_many_acknowledged(
        self,
        producer: Any,
        messages: Sequence[OutgoingMessage],
        message_ids: Sequence[MessageId] | None,
        error: BaseException | None,
    ) -> None:
        """Ends the span of all messages."""
        if messages:
            self.on_send_acknowledged(producer, messages[0], None, error)

    def close(self) -> None:
        """Ends the spans of messages without an outcome."""
        spans, self._spans = list(self._spans.values()), {}
        for span in spans:
            span.end()


MOST_SPANS = 10_000
"""Open spans of one :class:`ProducerTracing`; ``send_nowait`` has no result that would end one."""
