"""The one place that answers for verbs and fields that a protocol lacks.

Each protocol says in its ``_lacks.py`` which words of the other protocols it does not have and what to use
instead. The error is an ``AttributeError``, so that ``hasattr`` works, and
:class:`penstock.errors.Unsupported`, so that code for several protocols can catch it.

>>> from penstock import _missing
>>> error = _missing.missing("MqttProducer", "last_sequence_id")
>>> isinstance(error, AttributeError), error.code
(True, 'unsupported')
>>> print(error)
MQTT has no sequence ids
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from . import parse, protocols
from .errors import Unsupported


class MissingVerb(Unsupported, AttributeError):
    """A verb or field that the protocol lacks."""


def missing(owner: str | type[object], name: str) -> AttributeError:
    """The error for an attribute that does not exist. The native classes call it, too.

    Args:
        owner: the class, or a name that begins with the protocol: ``"MqttProducer"``, ``"mqtt.message"``.
        name: of the attribute.

    Returns:
        A :class:`MissingVerb` when another protocol has such an attribute; otherwise, for a private name or a
        mistyped one, a plain ``AttributeError``.
    """
    label = owner if isinstance(owner, str) else owner.__name__
    if not name.startswith("_"):
        for key, row in protocols.PROTOCOLS.items():
            if label.lower().startswith(key) and name in (words := row.words()):
                return MissingVerb(words[name])
    known = [] if isinstance(owner, str) else [verb for verb in dir(owner) if not verb.startswith("_")]
    return AttributeError(f"{label} has no attribute {name!r}{parse.did_you_mean(name, known)}")


def refuse(protocol: str, names: Iterable[str]) -> None:
    """Answers for keywords that a verb of ``protocol`` lacks.

    Raises:
        Unsupported: the first of ``names`` that the protocol lacks and another one has.
    """
    words = protocols.PROTOCOLS[protocol].words()
    for name in names:
        if name in words:
            raise Unsupported(words[name])


def refuse_all(protocol: str, given: Mapping[str, object]) -> None:
    """As :func:`refuse`, for keywords that a verb does not take. ``None`` means "not given".

    Raises:
        Unsupported: any of ``given`` is set.
    """
    names = [name for name, value in given.items() if value is not None]
    refuse(protocol, names)
    if names:
        raise Unsupported(f"{protocols.PROTOCOLS[protocol].title} has no {' and no '.join(names)} here")


def refuse_key(positional: tuple[object, ...]) -> None:
    """Answers for positional arguments behind the payload, in a protocol whose messages have no keys.

    Raises:
        Unsupported: a key.
        TypeError: more than a key.
    """
    if len(positional) > 1:
        raise TypeError(f"expected the payload and keywords, got {len(positional) + 1} positional arguments")
    refuse_all("mqtt", {"key": positional[0]})
