"""The text of Prometheus as commands read it."""

from __future__ import annotations

import pytest

from forebay import errors
from forebay.commands._shared.prometheus import parsed


def test_samples_and_labels() -> None:
    text = rb"""# HELP a Text.
# TYPE a gauge
a 1
a{b="c"} 2.5e3
a{b="c\"\\\n}",d="",} NaN 1700000000000
b_total{x="1", y="2"} +Inf

"""
    found = parsed(text, "url")
    assert found["a"][:2] == [({}, 1.0), ({"b": "c"}, 2500.0)]
    labels, value = found["a"][2]
    assert labels == {"b": 'c"\\\n}', "d": ""}
    assert value != value
    assert found["b_total"] == [({"x": "1", "y": "2"}, float("inf"))]


@pytest.mark.parametrize(
    "line", [b"<html>", b"a", b"a one", b'a{b="c} 1', b"a{b=c} 1", b'a{b="c"x} 1', b"\xff\0"]
)
def test_what_is_no_metric_is_an_error(line: bytes) -> None:
    with pytest.raises(errors.ProtocolError, match="no metric of Prometheus"):
        parsed(b"a 1\n" + line, "url")


def test_a_hostile_line_takes_no_time() -> None:
    line = b"a{" + b'b="' * 50_000 + b"} 1"
    with pytest.raises(errors.ProtocolError):
        parsed(line, "url")
