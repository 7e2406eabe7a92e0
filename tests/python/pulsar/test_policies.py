"""Policies for messages that are not acknowledged."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from forebay import errors
from forebay._core.options import resolve
from forebay._core.protocols import table
from forebay.pulsar import Backoff, DeadLetterPolicy


def test_a_backoff_is_a_value() -> None:
    backoff = Backoff("1s", "1m")
    assert backoff == Backoff(1, 60.0, multiplier=2) and hash(backoff) == hash(Backoff(1, 60))
    assert repr(backoff) == "Backoff(min=1.0, max=60.0, multiplier=2.0)"
    assert pickle.loads(pickle.dumps(backoff)) == backoff


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((2, 1), "max must not be less"),
        ((-1, 1), "min: expected a duration between 0"),
        ((0, "soon"), "max: expected a duration"),
        ((0, 1, 0.5), "multiplier: expected a number from 1"),
        ((0, 1, float("nan")), "multiplier"),
        ((0, 1, float("inf")), "multiplier"),
        ((0, 1, True), "multiplier"),
        ((0, 1, "2"), "multiplier"),
    ],
    ids=str,
)
def test_a_backoff_that_cannot_be_is_refused(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=said):
        Backoff(*arguments)


def test_delays_are_durations_or_backoffs() -> None:
    consumer = table("pulsar.consumer")
    given = {"nack_delay": "250ms", "ack_timeout": Backoff(1, 2)}
    values = resolve(consumer, given)
    assert (values["nack_delay"], values["ack_timeout"]) == (0.25, Backoff(1, 2))
    assert resolve(consumer, {"ack_timeout": 0})["ack_timeout"] == 0
    assert "ack_timeout" not in resolve(consumer, {})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"max_redeliveries": 0}, "max_redeliveries: expected a whole number between 1"),
        ({"max_redeliveries": None}, "max_redeliveries"),
        ({"max_redeliveries": 1, "topic": ""}, "topic: expected text"),
        ({"max_redeliveries": 1, "subscription": b"s"}, "subscription: expected text"),
        ({"max_redeliveries": 1, "retry": "perhaps"}, "retry: expected true or false"),
        ({"max_redeliveries": 1, "retry": None}, "retry: expected true or false"),
        ({"max_redeliveries": 1, "retry_topic": "t"}, "set retry=True"),
    ],
    ids=str,
)
def test_a_dead_letter_policy_that_cannot_be_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=said):
        DeadLetterPolicy(**arguments)


def test_a_dead_letter_policy_is_a_value_and_nothing_else_is_one() -> None:
    policy = DeadLetterPolicy(3, retry=True)
    assert policy == DeadLetterPolicy(max_redeliveries=3, retry=True)
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert resolve(table("pulsar.consumer"), {"dead_letter": policy})["dead_letter"] is policy
    with pytest.raises(errors.InvalidArgument, match="DeadLetterPolicy, not 3"):
        resolve(table("pulsar.consumer"), {"dead_letter": 3})
