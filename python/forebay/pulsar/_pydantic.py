"""Models of pydantic as schemas. It is not imported: a model brings it along."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, cast

from forebay.errors import SchemaError

MISSING = object()
"""Stands for a default that a definition does not state."""


def is_model(of: Any) -> bool:
    """Whether it is a class of pydantic 2."""
    return isinstance(of, type) and hasattr(of, "model_fields") and hasattr(of, "model_validate")


def fields(of: Any) -> dict[str, Any]:
    """The fields of a model with their defaults.

    Raises:
        SchemaError: messages would not have all of its values.
    """
    if of.model_config.get("extra") == "allow":
        raise SchemaError(
            f'{of.__name__} has extra="allow", and a schema has no room for what its fields do not name:'
            ' use "ignore" or "forbid"'
        )
    found: dict[str, Any] = {}
    for name, field in of.model_fields.items():
        if field.exclude:
            if field.is_required():
                raise SchemaError(
                    f"{of.__name__}.{name} is excluded and has no default, so that messages could not be read"
                )
        elif field.default_factory is not None:
            found[name] = made_by(field.default_factory)
        else:
            found[name] = MISSING if field.is_required() else field.default
    return found


def made_by(factory: Callable[..., Any]) -> Any:
    """The default that a function makes, if it is an empty list or dictionary. Others may differ each time,
    and with them the definition."""
    try:
        made = factory()
    except Exception:
        # It may want the other fields.
        return MISSING
    return cast("Any", made) if isinstance(made, list | dict) and not made else MISSING


def hints(of: Any) -> dict[str, Any] | None:
    """The types of the fields of a model, those of its parameters included; ``None`` if pydantic has not been
    able to resolve them yet."""
    if not of.__pydantic_complete__:
        return None
    return {
        name: Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        for name, field in of.model_fields.items()
    }


class _ByName(type):
    """Makes instances of a model by the names of its fields, which it would take by their aliases only."""

    model: Any

    def __call__(cls, **values: Any) -> Any:
        return cls.model.model_validate(values, by_name=True, by_alias=False)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.model)


def maker(of: type) -> type:
    """The class, or what stands for it where instances are made from their fields.

    Raises:
        SchemaError: this version of pydantic cannot make them by the names of the fields.
    """
    if not is_model(of):
        return of
    model = cast("Any", of)
    config = model.model_config
    aliased = any(field.validation_alias is not None for field in model.model_fields.values())
    if not aliased or config.get("populate_by_name") or config.get("validate_by_name"):
        return of
    if "by_name" not in inspect.signature(model.model_validate).parameters:
        raise SchemaError(f"{of.__name__} has aliases: set populate_by_name=True in its model_config")
    return _ByName(of.__name__, (), {"model": of})
