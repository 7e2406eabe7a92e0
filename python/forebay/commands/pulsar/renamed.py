"""Hints for ``-X`` with an option of ``pulsar-client``: what to write on the command line instead."""

from __future__ import annotations

import re
from collections.abc import Mapping

from forebay._core import protocols
from forebay._core.options import Option
from forebay.errors import InvalidArgument
from forebay.pulsar._renamed import RENAMED

_WORDS = {
    "service_url": "-u URL",
    "authentication": "-X token=file:PATH (also OAuth 2.0), -X username=NAME and -X password=env:NAME, or"
    " -X tls_cert=FILE and -X tls_key=FILE",
    "stats_interval_in_seconds": "`forebay top`, which shows the figures of a broker",
    "tls_allow_insecure_connection": "-X tls_ca=FILE with the authority of the broker's certificate",
    "block_if_queue_full": "nothing in its place: a command waits while the queue is full",
    "subscription_name": "-s NAME of `forebay sub`",
    "consumer_type": "-T of `forebay sub`: exclusive, shared, failover or key_shared",
    "start_message_id": "-o earliest, -o latest or -o with a message id",
    "initial_position": "-o earliest or -o latest",
    "start_message_id_inclusive": "-X start_inclusive=true",
    "is_pattern_topic": "--pattern REGEX of `forebay sub`",
    "subscription_role_prefix": "-s NAME of `forebay sub` and -X durable=false",
}
"""Those that flags stand for, or whose sentence for programs does not fit."""
_FOR_PROGRAMS = frozenset(
    {
        *("message_listener", "message_listener_threads", "reader_listener", "message_router"),
        *("batch_receive_policy", "key_shared_policy", "dead_letter_policy"),
    }
)
_MILLISECONDS = ("_ms", "_millis")
_SENTENCE = re.compile(r"(?P<name>[a-z_]+)=(?P<rest>.*)", re.DOTALL)


def refuse(given: Mapping[str, str]) -> None:
    """Refuses options of ``pulsar-client`` that have another name here, or none.

    Args:
        given: options by their names, as ``-X`` has them.

    Raises:
        InvalidArgument: there is one; the text has what to write instead.
    """
    tables = protocols.PROTOCOLS["pulsar"].tables
    for name, value in given.items():
        bare = name.rpartition(".")[2]
        if any(bare in table for table in tables.values()):
            continue
        for scope, names in RENAMED.items():
            if bare in names:
                raise InvalidArgument(f"unknown option {name!r}: {_instead(scope, bare, value)}")


def _instead(scope: str, name: str, value: str) -> str:
    if name in _FOR_PROGRAMS:
        return "it is for programs, and the command line has nothing in its place"
    if name in _WORDS:
        return f"use {_WORDS[name]}"
    sentence = RENAMED[scope][name]
    found = _SENTENCE.match(sentence)
    if not found:
        return f"use {sentence}"
    tables = protocols.PROTOCOLS["pulsar"].tables
    new = found["name"]
    owners = [owner for owner, table in tables.items() if new in table]
    spelled = new if len(owners) == 1 else f"{scope}.{new}"
    rest = found["rest"].replace('"', "")
    if name == "tls_validate_hostname":
        shown: str | None = str(value.lower() in ("0", "false", "no", "off")).lower()
    else:
        shown = _translated(name, value, tables[owners[0]][new])
    if shown is None:
        # The sentence may go on with the values.
        shown = "VALUE" if not rest or rest.startswith((",", " ")) else ""
    elif not rest.startswith((",", " ")):
        rest = ""
    return f"use -X {spelled}={shown}{rest}"


def _translated(name: str, value: str, option: Option) -> str | None:
    """The value as the option takes it; ``None`` if that is not known."""
    text = value.lower() if value.isalpha() else value
    if name.endswith(_MILLISECONDS):
        if not value.isdecimal():
            return None
        text = f"{int(value) / 1000:g}"
    try:
        option.parse(text)
    except ValueError:
        return None
    return text
