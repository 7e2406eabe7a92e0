"""Errors for verbs and fields that a protocol does not have.

Type checkers report them, and keywords of another protocol raise Python's ``TypeError``. Each protocol lists
in its ``_unsupported.py`` which verbs and fields of the others it does not have, and what to use instead. The
error is an ``AttributeError``, so that ``hasattr`` works, and :class:`forebay.errors.Unsupported`, so that
code for several protocols can catch it.

>>> from forebay._core import unsupported
>>> error = unsupported.missing("MqttProducer", "last_sequence_id")
>>> isinstance(error, AttributeError), error.code
(True, 'unsupported')
>>> print(error)
MQTT has no sequence ids
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from forebay.errors import Unsupported

from . import parse, protocols


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
    known: list[str] = []
    if not isinstance(owner, str):
        known = [verb for verb in dir(owner) if not (verb.startswith("_") or _is_missing(owner, verb))]
    return AttributeError(f"{label} has no attribute {name!r}{parse.did_you_mean(name, known)}")


class _Missing:
    """The place of a missing verb in a class: reading it raises the error.

    A ``__getattr__`` would do the same with less, but a class that has one loses the interpreter's fast way
    to all its attributes, which costs each call of each verb.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type[object]) -> NoReturn:
        raise missing(owner, self._name)


class Answers:
    """Base of the handles of both faces. A class of a protocol gets an answer for each verb and field of the
    others; they stay absent for ``hasattr``, ``dir`` and type checkers."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        for key, row in protocols.PROTOCOLS.items():
            if cls.__name__.lower().startswith(key):
                for name in row.words():
                    if _static(cls, name) is None:
                        setattr(cls, name, _Missing(name))

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not _is_missing(type(self), name)]


def _static(owner: type[object], name: str) -> object:
    """The attribute in the class or its bases, without reading it."""
    return next((vars(base)[name] for base in owner.__mro__ if name in vars(base)), None)


def _is_missing(owner: type[object], name: str) -> bool:
    return isinstance(_static(owner, name), _Missing)


def refuse(protocol: str, given: Mapping[str, object]) -> None:
    """Refuses columns that messages of ``protocol`` do not have. ``None`` means "not given".

    Raises:
        Unsupported: one of ``given`` is set, and the protocol lacks it.
    """
    words = protocols.PROTOCOLS[protocol].words()
    for name, value in given.items():
        if value is not None and name in words:
            raise Unsupported(words[name])
