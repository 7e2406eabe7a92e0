"""A curve for each cost that grows, mostly in powers of ten; each point in processes of its own.

A point that takes longer than the limit is the last of its curve, and one that takes four times as long ends.
``--scale`` multiplies the largest step: 0.01 for a short run, 10 for a backlog of 100 million entries.
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benches.case import Failed, Skipped, TimedOut, run
from benches.mqtt.suite import preparation
from benches.suite import EMBEDDED, Group, Plan, Result, Suite
from benches.targets import Rows, Target

SIZE = 100


@dataclass(frozen=True)
class Curve:
    """The case ``case``, with one number after the other."""

    name: str
    case: str
    steps: tuple[int, ...]
    #: The process whose resident set is recorded.
    pays: str
    #: Figures of a point, with their labels in the plot.
    figures: dict[str, str]
    #: The largest ratio of the last point to the first that is allowed, for some of the figures.
    flat: dict[str, float] = field(default_factory=dict[str, float])
    #: Largest step at scale 1, if not the last.
    most: int = 0


def powers(last: int, first: int = 1) -> tuple[int, ...]:
    steps: list[int] = []
    while first <= last:
        steps.append(first)
        first *= 10
    return tuple(steps)


HELD = {
    "open_us": "open a producer, us for each",
    "subscribe_us": "open a consumer of all, us for each",
    "exchange_us": "send and receive a message, us",
    "close_us": "close the client, us for each",
    "idle": "CPU while idle, ms a second",
}
SIZED = {"rate": "messages a second", "megabytes": "MB a second", "cpu": "CPU of the client, us a message"}
SIZES = powers(10_000_000, 10)
FLAT = {"exchange_us": 1.5}
CURVES = [
    Curve("topics of a client", "topics", powers(10_000), "client", HELD, FLAT),
    Curve("partitions of a topic", "partitions", powers(10_000), "client", HELD, FLAT),
    Curve(
        "connections",
        "connections",
        powers(10_000),
        "broker",
        {"connect_us": "connect, us for each", "publish_us": "publish by another client, us"},
        {"publish_us": 1.5},
    ),
    Curve(
        "MQTT subscriptions",
        "filters",
        powers(1_000_000),
        "broker",
        {
            "subscribe_us": "subscribe, us for each",
            "publish_us": "publish to one of them, us",
            "unmatched_us": "publish to none, us",
            "rate": "publish in a window, messages a second",
            "bytes": "bytes for each",
        },
        {"publish_us": 1.5, "unmatched_us": 1.5},
    ),
    Curve(
        "retained messages",
        "retained",
        powers(1_000_000),
        "broker",
        {
            "publish_us": "publish, us for each",
            "exact_us": "subscribe to one, us",
            "wildcard_us": "subscribe to one by a wildcard, us",
            "bytes": "bytes for each of 100 B",
        },
        {"exact_us": 2},
    ),
    Curve(
        "backlog",
        "backlog",
        powers(100_000_000, 1_000),
        "broker",
        {
            "entry_us": "write, us an entry",
            "open_ms": "open the store, ms",
            "first_ms": "subscribe and first message, ms",
            "seek_ms": "seek to an id, ms",
            "seek_time_ms": "seek to a time, ms",
            "drop_ms": "delete the topic, ms",
        },
        {"open_ms": 2, "first_ms": 2, "seek_ms": 2, "seek_time_ms": 2},
        most=10_000_000,
    ),
    Curve(
        "consumers of a Shared subscription",
        "shared",
        powers(1_000),
        "client",
        {"rate": "messages a second", "cpu": "CPU of the client, us a message"},
    ),
    Curve("size of Pulsar messages", "size_pulsar", (*SIZES, 20 << 20), "client", SIZED),
    Curve("size of chunked messages", "size_chunked", (1_000_000, 10_000_000, 20 << 20), "client", SIZED),
    Curve("size of MQTT messages", "size_mqtt", (*SIZES, 20 << 20), "client", SIZED),
    # The limit of 20 MiB is that of a message with its attributes.
    Curve("size of TubeMQ messages", "size_tubemq", (*SIZES, 20_000_000), "client", SIZED),
    Curve(
        "engine threads",
        "threads",
        (1, 2),
        "client",
        {
            "send_rate": "send, messages a second",
            "send_cpu": "send, CPU of the client, us a message",
            "receive_rate": "receive, messages a second",
            "receive_cpu": "receive, CPU of the client, us a message",
        },
    ),
]


def named(curve: Curve, step: int) -> str:
    return f"{curve.name}: {step:,}"


def points(curve: Curve, plan: Plan, folder: str) -> Iterator[Result]:
    most = (curve.most or curve.steps[-1]) * plan.scale
    why = ""
    for step in curve.steps:
        name = named(curve, step)
        if not plan.wanted(name) or (step > most and step != curve.steps[0]):
            continue
        if why:
            yield name, Skipped(why)
            continue
        began = time.monotonic()
        try:
            report = run(
                "curves",
                curve.case,
                step,
                timeout=4 * plan.limit,
                environment={**os.environ, "TMPDIR": folder},
            )
        except TimedOut as late:
            why = f"{step:,}: {late}"
            yield name, Skipped(why)
            continue
        except Failed as failed:
            yield name, failed
            continue
        if (taken := time.monotonic() - began) > plan.limit:
            why = f"{step:,} took {taken:.0f} s, and the limit is {plan.limit:.0f} s"
        yield name, report | {"x": step}


def groups(label: str, plan: Plan) -> Iterator[Group]:
    # Stores of points that had no end are removed with it.
    with tempfile.TemporaryDirectory() as folder:
        for curve in CURVES:
            yield Group(SIZE, functools.partial(points, curve, plan, folder))


def flatness(curve: Curve, figure: str, most: float) -> Target:
    first, last = curve.steps[0], curve.most or curve.steps[-1]
    measure: Callable[[Rows], float] = lambda rows: rows.ratio(  # noqa: E731
        EMBEDDED, SIZE, named(curve, last), named(curve, first), figure
    )
    return Target(
        f"{named(curve, last)} / {first:,}, {curve.figures[figure]}", most, "x", measure, at_most=True
    )


TARGETS = [flatness(curve, figure, most) for curve in CURVES for figure, most in curve.flat.items()]

SUITE = Suite("curves", (EMBEDDED,), TARGETS, groups, "bench-curves.json", preparation, rounds=1)
