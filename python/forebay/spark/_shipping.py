"""Options and objects that are sent to Spark's workers. Secrets travel as references, and a worker whose
Python lacks the package says so."""
# pyspark is typed in part only.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import os
import pickle
from typing import Any

from forebay._core import protocols
from forebay.errors import InvalidArgument


class Shipped:
    """An object that is unpacked by a function that travels with it. Where the package is missing, the task
    fails with a sentence that says so, and names the Python."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        from pyspark import cloudpickle

        import pyspark_forebay

        travels_by_value(pyspark_forebay)
        payload = cloudpickle.dumps((type(self), self.__getstate__()))
        return pyspark_forebay.unpacked, (payload,)


def travels_by_value(module: Any) -> None:
    """Has Spark send what ``module`` defines, and not its name."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)


def inherited_for(url: str | None) -> tuple[str, dict[str, dict[str, Any]]]:
    """As :func:`forebay.protocols.inherited_for`, with references to the variables that hold secrets: their
    values would become part of the job's pickle."""
    base, inherited = protocols.inherited_for(url)
    protocol = protocols.of(base).key
    for scope, values in inherited.items():
        table = protocols.table(f"{protocol}.{scope}")
        for name, value in values.items():
            if not table[name].secret:
                continue
            for variable in (f"FOREBAY_{name.upper()}", f"FOREBAY_{scope.upper()}_{name.upper()}"):
                if os.environ.get(variable) == value and not _is_reference(value):
                    values[name] = f"env:{variable}"
    return base, inherited


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("env:", "file:"))


def travelling(scope: str, given: dict[str, Any]) -> dict[str, Any]:
    """Options in the form that is sent to workers: resolved here, so that a CA file need not exist on the
    workers, except secrets, which stay references. Those are looked up, to find a mistake early."""
    table = protocols.table(scope)
    resolved = protocols.resolve(scope, given)
    result: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        if not table[name].secret:
            result[name] = resolved[name]
        elif callable(value) or _is_reference(value):
            result[name] = value
        else:
            raise InvalidArgument(
                f"{name!r} as plain text would be part of the job's pickle: "
                f'give "env:NAME", "file:PATH" or a callable'
            )
    return result


def refuse_embedded(url: str) -> None:
    """
    Raises:
        InvalidArgument: an ``embedded:`` URL.
    """
    if url.startswith("embedded:"):
        raise InvalidArgument(
            "an embedded: URL does not work here, because Spark's workers are other processes: start a "
            "forebay.Broker (or `forebay broker`) and pass its url"
        )


def digest(url: str, client: dict[str, Any]) -> str:
    """The key of a connection in the pool."""
    try:
        content = pickle.dumps((url, sorted(client.items(), key=lambda item: item[0])))
    except (pickle.PicklingError, AttributeError, TypeError):
        # Functions such as lambdas have to be pickled by value.
        from pyspark import cloudpickle

        content: bytes = cloudpickle.dumps((url, sorted(client.items(), key=lambda item: item[0])))
    return hashlib.sha256(content).hexdigest()
