"""Message ids in arguments: as ``str`` gives them, or with colons, which no shell takes for its own."""

from __future__ import annotations

import re
from typing import Any

from forebay._core.native import MessageId
from forebay.commands._shared.options import moment
from forebay.errors import InvalidArgument

_COLONS = re.compile(r"(\d+):(\d+)(?::(-?\d+)(?::(-?\d+))?)?\Z")


def message_id(text: str) -> MessageId:
    """``LEDGER:ENTRY[:PARTITION[:INDEX]]`` or ``(LEDGER,ENTRY,PARTITION,INDEX)`` as an id.

    Raises:
        InvalidArgument: the text is neither.
    """
    if found := _COLONS.match(text):
        ledger, entry, partition, index = found.groups("-1")
        text = f"({ledger},{entry},{partition},{index})"
    try:
        return MessageId.parse(text)
    except InvalidArgument:
        raise InvalidArgument(
            f"{text!r} is not a message id, such as 12:34, 12:34:0:5 with partition and index in its batch,"
            " or '(12,34,0,5)'"
        ) from None


def with_colons(id: MessageId) -> str:
    """An id as :func:`message_id` takes it."""
    return f"{id.ledger}:{id.entry}:{id.partition}:{id.batch_index}"


def shown(ledger: str, entry: str, partition: int, index: int) -> str:
    """An id that is known in parts, as ``str`` of one shows it."""
    return f"({ledger},{entry},{partition},{index})"


def start(flag: str, text: str) -> Any:
    """The position of a reader: an end of the topic, a message id or several with commas, or a time.

    Raises:
        InvalidArgument: the text is something else.
    """
    word = {"beginning": "earliest", "end": "latest"}.get(text, text)
    if word in ("earliest", "latest"):
        return word
    if text.startswith("(") or _COLONS.match(text.partition(",")[0]):
        return message_ids(text)
    return moment(flag, text)


def message_ids(text: str) -> list[MessageId]:
    """Ids with commas between them."""
    return [message_id(one) for one in re.split(r",(?![^(]*\))", text)]
