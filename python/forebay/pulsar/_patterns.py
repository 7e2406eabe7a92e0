"""Patterns of topics, as the engine takes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from forebay.errors import InvalidArgument, InvalidTopic

OF_PATTERNS = ("pattern_update_interval", "pattern_max_topics", "topics_domain")
"""Options of consumers that need a pattern."""
_FLAGS = ((re.IGNORECASE, "i"), (re.MULTILINE, "m"), (re.DOTALL, "s"), (re.VERBOSE, "x"))


def pattern_parts(pattern: re.Pattern[str]) -> tuple[str, str]:
    """Text and flags of a pattern.

    Raises:
        InvalidArgument: a pattern of bytes, or flags that the engine does not have.
    """
    if not isinstance(pattern.pattern, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"{pattern.pattern!r} is a pattern of bytes: topics are texts, leave out the b")
    known = re.UNICODE
    for flag, _ in _FLAGS:
        known |= flag
    if other := re.RegexFlag(pattern.flags) & ~known:
        raise InvalidArgument(
            f"the pattern of topics {pattern.pattern!r} has flags without meaning: {other!r}"
        )
    return pattern.pattern, "".join(letter for flag, letter in _FLAGS if pattern.flags & flag)


def as_pattern(topic: str) -> str | None:
    """The expression that a name was probably meant as; ``None`` for a plain name. Brokers accept
    ``orders-*`` as the name of a topic."""
    if "*" not in topic and ".+" not in topic:
        return None
    return re.sub(r"(?<![.\])])\*", ".*", topic)


def refuse_patterns(topics: Sequence[str]) -> None:
    """Refuses names that were meant as patterns: a topic of that name would be created, and stay empty.

    Raises:
        InvalidTopic: a name has ``*`` or ``.+`` in it.
    """
    for topic in topics:
        if pattern := as_pattern(topic):
            raise InvalidTopic(
                f"{topic!r} looks like a pattern and was given as a name: to consume all topics that match,"
                f" pass re.compile({pattern!r}) to consumer()"
            )


def refuse_without_effect(owner: str, options: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuses options of a call that would have no effect. Those of a URL or the environment may be for other
    consumers.

    Raises:
        InvalidArgument: one of ``names`` is given.
    """
    for name in names:
        if options.get(name) is not None:
            raise InvalidArgument(f"{name} has no effect for {owner}: leave it out")
