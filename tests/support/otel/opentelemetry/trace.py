"""Spans that are kept."""

from __future__ import annotations

import contextlib
import contextvars
import enum
from collections.abc import Iterator, Mapping
from typing import Any


class SpanKind(enum.Enum):
    PRODUCER = 3
    CONSUMER = 4


class StatusCode(enum.Enum):
    ERROR = 2


class Span:
    def __init__(self, name: str, kind: SpanKind, attributes: Mapping[str, Any], parent: Span | None) -> None:
        self.name, self.kind, self.attributes, self.parent = name, kind, dict(attributes), parent
        self.number = len(SPANS)
        self.ended = False
        self.status: StatusCode | None = None
        SPANS.append(self)

    def is_recording(self) -> bool:
        return not self.ended

    def set_attribute(self, name: str, value: Any) -> None:
        self.attributes[name] = value

    def set_status(self, status: StatusCode) -> None:
        self.status = status

    def end(self) -> None:
        assert not self.ended, "a span ends once"
        self.ended = True


SPANS: list[Span] = []
STATE = ""
"""The ``tracestate`` of all spans."""
CURRENT: contextvars.ContextVar[Span | None] = contextvars.ContextVar("CURRENT", default=None)


def set_span_in_context(span: Span) -> Span:
    """A context is its span."""
    return span


class Tracer:
    def start_span(
        self, name: str, context: Span | None = None, *, kind: SpanKind, attributes: Mapping[str, Any]
    ) -> Span:
        return Span(name, kind, attributes, context or CURRENT.get())

    @contextlib.contextmanager
    def start_as_current_span(self, name: str, context: Any, kind: Any, attributes: Any) -> Iterator[Span]:
        span = self.start_span(name, context, kind=kind, attributes=attributes)
        token = CURRENT.set(span)
        try:
            yield span
        finally:
            CURRENT.reset(token)
            span.end()


def get_tracer(name: str, tracer_provider: Any = None) -> Tracer:
    assert name == "forebay" and tracer_provider is None
    return Tracer()
