"""Places in topics of TubeMQ, as arguments spell them."""

from __future__ import annotations

from forebay.errors import InvalidArgument
from forebay.tubemq import Position

_EDGES = {
    **dict.fromkeys(("earliest", "beginning", "first"), "earliest"),
    **dict.fromkeys(("latest", "end"), "latest"),
}


def edge(text: str) -> str | None:
    """``"earliest"`` or ``"latest"`` for a word that means it, and ``None`` for another text."""
    return _EDGES.get(text)


def offsets(text: str) -> dict[str, int] | None:
    """``BROKER:PARTITION:OFFSET[,...]`` as offsets by partition, whose names are ``BROKER:PARTITION``;
    ``None`` for another text."""
    try:
        places = [Position.parse(one) for one in text.split(",")]
    except (ValueError, InvalidArgument):
        return None
    return {partition(place): place.offset for place in places}


def partition(place: Position) -> str:
    """The name of a position's partition."""
    return f"{place.broker_id}:{place.partition}"
