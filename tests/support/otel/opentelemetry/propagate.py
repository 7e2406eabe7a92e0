"""W3C's trace context, with the number of a span as its id."""

from __future__ import annotations

from . import trace


def inject(carrier: dict[str, str], context: trace.Span | None = None) -> None:
    span = context or trace.CURRENT.get()
    if span is not None:
        carrier["traceparent"] = f"00-{1:032x}-{span.number + 1:016x}-01"
        if trace.STATE:
            carrier["tracestate"] = trace.STATE


def extract(carrier: dict[str, str]) -> trace.Span | None:
    parent = carrier.get("traceparent")
    return trace.SPANS[int(parent.split("-")[2], 16) - 1] if parent else None
