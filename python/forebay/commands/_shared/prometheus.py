"""Figures in the text format of Prometheus, as ``/metrics`` of a broker gives them."""

from __future__ import annotations

import re
from typing import TypeAlias

from forebay.errors import ProtocolError

from .web import Web

Samples: TypeAlias = "dict[str, list[tuple[dict[str, str], float]]]"
"""Labels and value of each sample, by the name of the metric."""
_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*\Z")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"\s*(?:,|\Z)\s*')
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}


def scraped(web: Web) -> Samples:
    """The figures of a broker.

    Raises:
        Error: as :meth:`Web.ask`.
        ProtocolError: the answer is something else.
    """
    # The real Pulsar redirects to the path with a slash.
    answer = web.ask("GET", ["metrics"])
    return parsed(answer.body, answer.url)


def parsed(text: bytes, url: str) -> Samples:
    """The samples of a text.

    Raises:
        ProtocolError: a line is malformed.
    """
    found: Samples = {}
    for line in text.decode(errors="replace").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        sample = _SAMPLE.match(line)
        try:
            if not sample:
                raise ValueError
            value = float(sample[3])
            labels = _labels(sample[2] or "")
        except ValueError:
            raise ProtocolError(
                f"the answer of {url} has the line {line[:100]!r}, which is no metric of Prometheus: is this"
                " the web service of a broker?"
            ) from None
        found.setdefault(sample[1], []).append((labels, value))
    return found


def _labels(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        label = _LABEL.match(text, at)
        if not label:
            raise ValueError
        found[label[1]] = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), label[2])
        at = label.end()
    return found
