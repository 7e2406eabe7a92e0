"""Records, and the types of their fields."""

from __future__ import annotations

import copy
from abc import abstractmethod
from enum import Enum, EnumMeta
from typing import Any, ClassVar, cast


def _named(kind: Any) -> str:
    return kind.__name__ if hasattr(kind, "__name__") else str(kind)


class RecordMeta(type):
    """Collects the fields of a record's class."""

    def __new__(mcs, name: str, parents: tuple[type, ...], dct: dict[str, Any]) -> RecordMeta:
        if name != "Record":
            dct["_fields"] = mcs._get_fields(dct)
            dct["_required"] = False
        return super().__new__(mcs, name, parents, dct)

    @staticmethod
    def _get_fields(dct: dict[str, Any]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for name, value in dct.items():
            if isinstance(value, EnumMeta):
                fields[name] = CustomEnum(value)
            elif type(value) is RecordMeta:
                # A class stands for an instance of it.
                fields[name] = value()
            elif isinstance(value, Record | Field):
                fields[name] = value
        return fields


class Record(metaclass=RecordMeta):
    """Base of records: a subclass declares its fields as class attributes.

    Args:
        default: value of the field when the record is one of another record.
        required_default: whether the schema names the default.
        required: whether the field must not be ``None``.
        kwargs: values of the fields.

    >>> class Order(Record):
    ...     item = String()
    ...     count = Integer(required=True)
    >>> Order(item="a book", count=2).count
    2
    """

    _avro_namespace: str | None = None
    _sorted_fields = False
    _fields: ClassVar[dict[str, Any]] = {}
    _required = False

    def __init__(
        self,
        default: Any = None,
        required_default: bool = False,
        required: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self._required_default = required_default
        self._default = default
        self._required = required
        for name, field in self._fields.items():
            if name in kwargs:
                setattr(self, name, _built(field, kwargs[name]))
            elif isinstance(field, Record):
                setattr(self, name, field)
            else:
                # A default has been checked already.
                object.__setattr__(self, name, field.default())

    @classmethod
    def schema(cls) -> Any:
        """The schema in Avro's notation."""
        return cls.schema_info(set())

    @classmethod
    def schema_info(cls, defined_names: set[str]) -> Any:
        """The schema, or only its name if it is among ``defined_names``, to which it is added."""
        prefix = "" if cls._avro_namespace is None else f"{cls._avro_namespace}."
        full = prefix + cls.__name__
        if full in defined_names:
            return full
        defined_names.add(full)
        schema: dict[str, Any] = {"type": "record", "name": str(cls.__name__)}
        if cls._avro_namespace is not None:
            schema["namespace"] = cls._avro_namespace
        fields: list[dict[str, Any]] = []
        schema["fields"] = fields
        for name in sorted(cls._fields) if cls._sorted_fields else cls._fields:
            field = cls._fields[name]
            described: dict[str, Any] = {"name": name}
            if field.required_default():
                default = field.default()
                described["default"] = default.name if isinstance(default, Enum) else default
            kind = field.schema_info(defined_names)
            described["type"] = kind if field._required else ["null", kind]
            fields.append(described)
        return schema

    def __setattr__(self, key: str, value: Any) -> None:
        if key not in ("_default", "_required_default", "_required"):
            if key not in self._fields:
                raise AttributeError(f"Cannot set undeclared field {key} on record")
            value = self._fields[key].validate_type(key, value)
        object.__setattr__(self, key, value)

    def __eq__(self, other: object) -> bool:
        # As the official module does: the fields of this record decide, whatever the other one is.
        return all(getattr(self, name) == getattr(other, name, _MISSING) for name in self._fields)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return str(vars(self))

    def type(self) -> str:
        """Name of the class."""
        return type(self).__name__

    def python_type(self) -> Any:
        """The class."""
        return type(self)

    def validate_type(self, name: str, val: Any) -> Any:
        """The value, if the field ``name`` may have it.

        Raises:
            TypeError: a value of another type.
        """
        if val is None and not self._required:
            return self.default()
        if not isinstance(val, type(self)):
            raise TypeError(
                f"Invalid type '{type(val)}' for sub-record field '{name}'. Expected: {_named(type(self))}"
            )
        return val

    def default(self) -> Any:
        """The default."""
        return self._default

    def required_default(self) -> bool:
        """Whether the schema names the default."""
        return self._required_default


_MISSING = object()


def _made(pattern: Any, values: dict[str, Any]) -> Any:
    """A record like ``pattern`` with these values."""
    made = copy.copy(pattern)
    made.__init__(**values)
    return made


def _built(field: Any, value: Any) -> Any:
    """The value of a field, records made of dictionaries."""
    if isinstance(field, Record) and isinstance(value, dict):
        return _made(field, cast("dict[str, Any]", value))
    if isinstance(field, Array) and isinstance(field.array_type, Record) and isinstance(value, list):
        items = cast("list[Any]", value)
        if items and isinstance(items[0], dict):
            return [_made(field.array_type, item) for item in items]
    if isinstance(field, Map) and isinstance(field.value_type, Record) and isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        if entries and isinstance(next(iter(entries.values())), dict):
            return {key: _made(field.value_type, item) for key, item in entries.items()}
    return cast("Any", value)


class Field:
    """A field of a record.

    Args:
        default: its value when none is given.
        required: whether it must not be ``None``.
        required_default: whether the schema names the default.
    """

    def __init__(self, default: Any = None, required: bool = False, required_default: bool = False) -> None:
        if default is not None:
            default = self.validate_type("default", default)
        self._default = default
        self._required_default = required_default
        self._required = required

    @abstractmethod
    def type(self) -> str:
        """Name of the type in Avro."""
        ...

    @abstractmethod
    def python_type(self) -> Any:
        """Types of the values."""

    def validate_type(self, name: str, val: Any) -> Any:
        """The value, if the field ``name`` may have it.

        Raises:
            TypeError: a value of another type.
        """
        if val is None and not self._required:
            return self.default()
        if not isinstance(val, self.python_type()):
            raise TypeError(
                f"Invalid type '{type(val)}' for field '{name}'. Expected: {_named(self.python_type())}"
            )
        return val

    def schema(self) -> Any:
        """The schema in Avro's notation."""
        return self.type()

    def schema_info(self, defined_names: set[str]) -> Any:
        """The schema, or only its name if it is among ``defined_names``, to which it is added."""
        return self.type()

    def default(self) -> Any:
        """The default."""
        return self._default

    def required_default(self) -> bool:
        """Whether the schema names the default."""
        return self._required_default


class Null(Field):
    """Always ``None``."""

    def type(self) -> str:
        """Name of the type in Avro."""
        return "null"

    def python_type(self) -> Any:
        """Types of the values."""
        return type(None)

    def validate_type(self, name: str, val: Any) -> Any:
        """``None``.

        Raises:
            TypeError: any other value.
        """
        if val is not None:
            raise TypeError(f"Field {name} is set to be None")
        return val


class Boolean(Field):
    """True or false; false by default."""

    def type(self) -> str:
        """Name of the type in Avro."""
        return "boolean"

    def python_type(self) -> Any:
        """Types of the values."""
        return bool

    def default(self) -> Any:
        """The default."""
        return False if self._default is None else self._default


class Integer(Field):
    """A whole number of 32 bits."""

    def type(self) -> str:
        """Name of the type in Avro."""
        return "int"

    def python_type(self) -> Any:
        """Types of the values."""
        return int


class Long(Field):
    """A whole number of 64 bits."""

    def type(self) -> str:
        """Name of the type in Avro."""
        return "long"

    def python_type(self) -> Any:
        """Types of the values."""
        return int


class Float(Field):
    """A number of 32 bits."""

    def type(self) -> str:
        """Name of the type in Avro."""
        return "float"

    def python_type(self) -> Any:
        """Types of the values."""
        return float, int


class Double(Field):
    """A number of 64 bits."""

    def type(self) -> str:
        """Name of the type in Avro."""
        return "double"

    def python_type(self) -> Any:
        """Types of the values."""
        return float, int


class Bytes(Field):
    """Bytes; text becomes its UTF-8."""

    def type(self) -> str:
        """Name of the type in Avro."""
        return "bytes"

    def python_type(self) -> Any:
        """Types of the values."""
        return bytes, str

    def validate_type(self, name: str, val: Any) -> Any:
        """The value, text as UTF-8."""
        return val.encode() if isinstance(val, str) else val


class String(Field):
    """Text; bytes are read as UTF-8."""

    def type(self) -> str:
        """Name of the type in Avro."""
        return "string"

    def python_type(self) -> Any:
        """Types of the values."""
        return str, bytes

    def validate_type(self, name: str, val: Any) -> Any:
        """The value as text.

        Raises:
            TypeError: neither text nor bytes.
        """
        if val is None and not self._required:
            return self.default()
        if not isinstance(val, str | bytes):
            raise TypeError(f"Invalid type '{type(val)}' for field '{name}'. Expected a string")
        return val.decode() if isinstance(val, bytes) else val


class CustomEnum(Field):
    """A member of an enumeration, given as such, by name or by number.

    Args:
        enum_type: the enumeration.
        default, required, required_default: as of :class:`Field`.
    """

    def __init__(
        self, enum_type: Any, default: Any = None, required: bool = False, required_default: bool = False
    ) -> None:
        if not issubclass(enum_type, Enum):
            raise Exception(f"{_named(enum_type)} is not a valid Enum type")
        self.enum_type = enum_type
        self.values: dict[Any, Any] = {member.value: member for member in enum_type.__members__.values()}
        super().__init__(default, required, required_default)

    def type(self) -> str:
        """Name of the type in Avro."""
        return "enum"

    def python_type(self) -> Any:
        """Types of the values."""
        return self.enum_type

    def validate_type(self, name: str, val: Any) -> Any:
        """The member.

        Raises:
            TypeError: not one of the enumeration.
        """
        if val is None or isinstance(val, self.enum_type):
            return val
        if type(val) not in (str, int):
            raise TypeError(
                f"Invalid type '{type(val)}' for field '{name}'. Expected: {_named(self.enum_type)}"
            )
        known: Any = self.enum_type.__members__ if isinstance(val, str) else self.values
        if val not in known:
            raise TypeError(f"Invalid enum value '{val}' for field '{name}'. Expected: {known.keys()}")
        return known[val]

    def schema(self) -> Any:
        """The schema in Avro's notation."""
        return self.schema_info(set())

    def schema_info(self, defined_names: set[str]) -> Any:
        """The schema, or only its name if it is among ``defined_names``, to which it is added."""
        name = self.enum_type.__name__
        if name in defined_names:
            return name
        defined_names.add(name)
        return {"type": "enum", "name": name, "symbols": [member.name for member in self.enum_type]}


def _check_inner(inner: Any) -> None:
    if (type(inner) is type and not issubclass(inner, Record)) and not isinstance(inner, Field):
        raise Exception(f"Argument {_named(inner)} is not a Record or a Field")


def _inner_schema(inner: Any, defined_names: set[str]) -> Any:
    return inner.schema_info(defined_names) if isinstance(inner, Array | Map | Record) else inner.type()


class Array(Field):
    """A list.

    Args:
        array_type: a field or record like its items.
        default, required, required_default: as of :class:`Field`.
    """

    def __init__(
        self, array_type: Any, default: Any = None, required: bool = False, required_default: bool = False
    ) -> None:
        _check_inner(array_type)
        self.array_type = array_type
        super().__init__(default, required, required_default)

    def type(self) -> str:
        """Name of the type in Avro."""
        return "array"

    def python_type(self) -> Any:
        """Types of the values."""
        return list

    def validate_type(self, name: str, val: Any) -> Any:
        """The list.

        Raises:
            TypeError: not a list, or an item of another type.
        """
        if val is None:
            return None
        super().validate_type(name, val)
        if not all(isinstance(item, self.array_type.python_type()) for item in val):
            raise TypeError(
                f"Array field {name} items should all be of type {_named(self.array_type.type())}"
            )
        return val

    def schema(self) -> Any:
        """The schema in Avro's notation."""
        return self.schema_info(set())

    def schema_info(self, defined_names: set[str]) -> Any:
        """The schema, or only its name if it is among ``defined_names``, to which it is added."""
        return {"type": "array", "items": _inner_schema(self.array_type, defined_names)}


class Map(Field):
    """A dictionary with text as keys.

    Args:
        value_type: a field or record like its values.
        default, required, required_default: as of :class:`Field`.
    """

    def __init__(
        self, value_type: Any, default: Any = None, required: bool = False, required_default: bool = False
    ) -> None:
        _check_inner(value_type)
        self.value_type = value_type
        super().__init__(default, required, required_default)

    def type(self) -> str:
        """Name of the type in Avro."""
        return "map"

    def python_type(self) -> Any:
        """Types of the values."""
        return dict

    def validate_type(self, name: str, val: Any) -> Any:
        """The dictionary.

        Raises:
            TypeError: not a dictionary, a key that is no text, or a value of another type.
        """
        if val is None:
            return None
        super().validate_type(name, val)
        kind = self.value_type.python_type()
        for key, value in val.items():
            if not isinstance(key, str):
                raise TypeError(f"Map keys for field {name}  should all be strings")
            if not isinstance(value, kind):
                raise TypeError(f"Map values for field {name} should all be of type {_named(kind)}")
        return val

    def schema(self) -> Any:
        """The schema in Avro's notation."""
        return self.schema_info(set())

    def schema_info(self, defined_names: set[str]) -> Any:
        """The schema, or only its name if it is among ``defined_names``, to which it is added."""
        return {"type": "map", "values": _inner_schema(self.value_type, defined_names)}
