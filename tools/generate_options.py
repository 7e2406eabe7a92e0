#!/usr/bin/env python3
"""Generates the Python tables of options, and the parameters of the functions that take options.

    tools/generate_options.py           writes the files of FILES, and the parameters in those of SIGNATURES
    tools/generate_options.py --check   changes nothing; status 1 when a file is stale

Both come from the declarations in Rust, which the engine knows: run ``make build`` first. An option is
declared in ``src/client/*/options.rs`` or ``src/broker/**/options.rs``. Its kind chooses the type and the
parser here: a kind of its own has a row in ``FORMS``, or in the forms of its protocol.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).resolve().parents[1] / "python" / "forebay"
WIDTH = 84
"""Columns of a text, behind its indentation."""

FORMS = {
    "flag": ("bool", "parse.boolean"),
    "duration": ("Duration", "parse.duration"),
    "size": ("Size", "parse.size"),
    "whole": ("int", "parse.whole({})"),
    "text": ("str", "parse.text"),
    "any_text": ("str", "str"),
    "words": ("Literal[{}]", "parse.one_of({})"),
    "pairs": ("Mapping[str, str]", "parse.mapping"),
    "flag_or_duration": ("bool | Duration", "parse.boolean_or_duration"),
    "secret": ("Secret", "parse.secret"),
    "binary_secret": ("Secret", "parse.binary_secret"),
    "token": ("Secret", "parse.token"),
    "key": ("Secret | bytes", "parse.key_bytes"),
    "pem": ("Pem", "parse.pem"),
    "path": ("str | os.PathLike[str]", "parse.path"),
    "mode": ("str", "parse.mode"),
    "packet_size": ("Size", "parse.packet_size"),
    "fingerprints": ('"str | Sequence[str]"', "parse.fingerprints"),
    "port": ('int | Literal["off"]', "broker_endpoints.port"),
    "listeners": ("Sequence[ListenerOptions]", "broker_endpoints.listeners"),
}
"""Kind -> type and parser."""
PULSAR = {
    "chunk_size": ("Size", "forms.chunk_size"),
    "callable": ('"Router"', "parse.callable_"),
    "producer_interceptors": (
        '"ProducerInterceptor | Sequence[ProducerInterceptor]"',
        "forms.producer_interceptors",
    ),
    "consumer_interceptors": (
        '"ConsumerInterceptor | Sequence[ConsumerInterceptor]"',
        "forms.consumer_interceptors",
    ),
    "schema": ("SchemaOption", "forms.schema"),
    "position": ('"Start"', "forms.position"),
    "delay": ('"Duration | Backoff"', "forms.delay"),
    "ack_timeout": ('"Duration | Backoff"', "forms.ack_timeout"),
    "dead_letter": ('"DeadLetterPolicy"', "forms.dead_letter"),
    "key_shared": ('"KeySharedPolicy"', "forms.key_shared"),
}
MQTT = {
    "will": ('"Will"', "forms.will"),
    "birth": ('"Birth"', "forms.birth"),
    "callable": ("Callable[[bytes | None], bytes | None]", "parse.callable_"),
    "user_properties": ("Mapping[str, str] | Sequence[tuple[str, str]]", "parse.pairs"),
}
TUBEMQ = {
    "position": ('"Position | Sequence[Position] | str"', "forms.position"),
    "filters": ("Sequence[str] | Mapping[str, Sequence[str]]", "forms.filters"),
}
TYPES = {
    ("mqtt.client", "version"): 'Literal["5", "3.1.1", "3.1", "auto", 5]',
    ("mqtt.producer", "qos"): "Literal[0, 1, 2]",
    ("mqtt.consumer", "qos"): "Literal[0, 1, 2]",
}
"""Types that say more than the kind of their option."""
PARSERS = {
    ("broker", "keep_alive"): ("parse.at_least(1.0)", "At least 1 s."),
    ("broker", "mqtt_max_session_expiry"): ("parse.expiry", ""),
    ("mqtt.client", "session_expiry"): (
        "parse.session_expiry",
        '"never" for a session that does not expire. Fractions are rounded up.',
    ),
    ("mqtt.client", "ws_query"): ("parse.query", ""),
    ("mqtt.client", "keep_alive"): ("parse.whole_seconds(65535)", "At most 65535 s."),
    ("mqtt.client", "tls_alpn"): ("parse.alpn", "At most 255 bytes."),
}
"""Parsers that say more than the kind of their option, and the sentence about it that ends its text."""


class Class(NamedTuple):
    """A ``TypedDict`` of one table."""

    name: str
    table: str
    doc: str
    but: tuple[str, ...] = ()
    """Options that it leaves out."""
    base: str = "TypedDict"
    only: tuple[str, ...] = ()
    """The options that it adds to its base; all by default."""


class Module(NamedTuple):
    """A generated module."""

    doc: str
    source: str
    """Where its options are declared."""
    imports: str
    forms: dict[str, tuple[str, str]]
    classes: tuple[Class, ...]


def _protocol(title: str, key: str, prefix: str, imports: str, forms: dict[str, tuple[str, str]]) -> Module:
    client = f"forebay.{key}.{prefix}Client"
    url = "a Pulsar or ``embedded:``" if key == "pulsar" else "an MQTT" if key == "mqtt" else f"a {title}"
    classes = [
        Class(
            f"{prefix}ClientOptions", f"{key}.client", f"Options of :func:`forebay.connect` with {url} URL."
        )
    ]
    for scope in ("producer", "consumer"):
        name, doc = f"{prefix}{scope.capitalize()}Options", f"Options of :meth:`{client}.{scope}`."
        if key == "pulsar":
            base = f"{scope.capitalize()}OptionsButSchema"
            without = f":class:`{name}` without ``schema``, which the types of values depend on."
            classes.append(Class(base, f"{key}.{scope}", without, but=("schema",)))
            classes.append(Class(name, f"{key}.{scope}", doc, base=base, only=("schema",)))
        else:
            classes.append(Class(name, f"{key}.{scope}", doc))
    doc = f"Options of {title}'s clients, producers and consumers."
    return Module(doc, f"src/client/{key}/options.rs", imports, forms, tuple(classes))


COMMON = """
from forebay._core import parse
from forebay._core.options import Option, documented
from forebay._core.types import Duration, Pem, Secret, Size
"""
FILES = {
    "pulsar/_options.py": _protocol(
        "Pulsar",
        "pulsar",
        "Pulsar",
        f"""
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict
{COMMON}
from . import _option_forms as forms
from ._option_forms import SchemaOption

if TYPE_CHECKING:
    from ._interceptors import ConsumerInterceptor, ProducerInterceptor
    from ._option_forms import Start
    from ._policies import Backoff, DeadLetterPolicy, KeySharedPolicy
    from ._routing import Router
""",
        PULSAR,
    ),
    "mqtt/_options.py": _protocol(
        "MQTT",
        "mqtt",
        "Mqtt",
        f"""
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict
{COMMON}
from . import _option_forms as forms

if TYPE_CHECKING:
    from ._fields import Birth, Will
""",
        MQTT,
    ),
    "tubemq/_options.py": _protocol(
        "TubeMQ",
        "tubemq",
        "TubeMq",
        f"""
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict
{COMMON}
from . import _option_forms as forms

if TYPE_CHECKING:
    from forebay._engine import Position
""",
        TUBEMQ,
    ),
    "_core/broker_options.py": Module(
        "Options of the embedded broker; public as :class:`forebay.broker.BrokerOptions`.",
        "src/broker/**/options.rs",
        """
import os
from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from . import broker_endpoints, parse
from .listener_options import ListenerOptions
from .options import Option, documented
from .types import Duration, Pem, Secret, Size
""",
        {},
        (Class("BrokerOptions", "broker", "Options of :class:`forebay.Broker`."),),
    ),
    "_core/listener_options.py": Module(
        "Options of a listener of the embedded broker; public as :class:`forebay.broker.ListenerOptions`.",
        "src/broker/options.rs",
        """
import os
from typing import Annotated, Literal, TypedDict

from . import parse
from .options import Option, documented
from .types import Pem
""",
        {},
        (Class("ListenerOptions", "listener", "Options of a listener of :class:`forebay.Broker`."),),
    ),
}
"""Generated file, relative to the package -> what it holds."""


def specs() -> dict[str, list[dict[str, Any]]]:
    """The declarations of all options, by table. The package is not imported: its tables may be stale."""
    found = sorted(PACKAGE.glob("_engine*.so")) + sorted(PACKAGE.glob("_engine*.pyd"))
    if not found:
        sys.exit("python/forebay has no engine: run make build")
    spec = importlib.util.spec_from_file_location("_engine", found[0])
    if spec is None or spec.loader is None:
        sys.exit(f"{found[0]} cannot be loaded: run make build")
    engine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(engine)
    return engine.option_specs()


def form(module: Module, table: str, option: dict[str, Any]) -> tuple[str, str]:
    """The type and the parser of an option."""
    kind, parser = {**FORMS, **module.forms}[option["kind"]]
    arguments = list(option["arguments"])
    if option["kind"] == "whole" and arguments[1] == 2**31 - 1:
        del arguments[1]
    texts = ", ".join(f'"{one}"' if isinstance(one, str) else number(one) for one in arguments)
    own, _ = own_parser(table, option) or (parser.format(texts), "")
    return TYPES.get((table, option["name"]), kind.format(texts)), own


def own_parser(table: str, option: dict[str, Any]) -> tuple[str, str] | None:
    """A parser that says more than the kind of an option, and the sentence about it."""
    if least := option["least"]:
        return f"parse.at_least({least})", f"At least {least:g} s."
    return PARSERS.get((table, option["name"]))


def number(value: int) -> str:
    """A whole number as one reads it: ``1 << 20`` for a power of two."""
    shift = 10 * ((value & -value).bit_length() // 10) if value > 0 else 0
    if shift and value >> shift < 1024:
        return f"{value >> shift} << {shift}"
    return f"{value:_}" if value >= 10_000 else str(value)


def default(value: Any) -> str:
    """A default as source."""
    if isinstance(value, str):
        return f'"{value}"'
    return number(value) if type(value) is int else repr(value)


def text(value: str) -> str:
    """A text as a literal, in several lines if it is long."""
    parts = textwrap.wrap(value, WIDTH, drop_whitespace=False)
    return "\n".join(repr(part) for part in parts)


def table(module: Module, one: Class, options: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The lines of a ``TypedDict``."""
    yield f"class {one.name}({one.base}, total=False):"
    yield f'    """{one.doc}"""\n'
    for option in options:
        name = option["name"]
        if name in one.but or (one.only and name not in one.only):
            continue
        kind, parser = form(module, one.table, option)
        marks = [f"{mark}=True" for mark in ("common", "secret", "face") if option[mark]]
        if option["at_limit"]:
            marks.append(f"at_limit=({text(option['at_limit'])})")
        _, sentence = own_parser(one.table, option) or ("", "")
        words = text(f"{option['text']} {sentence}".strip())
        arguments = ", ".join([parser, default(option["default"]), words, *marks])
        yield f"    {name}: Annotated[{kind}, Option({arguments})]"
    yield "\n"


def generate(name: str, tables: dict[str, list[dict[str, Any]]]) -> str:
    """The content of a file."""
    module = FILES[name]
    lines = [
        f"# Generated from {module.source} by tools/generate_options.py; do not edit.",
        f'"""{module.doc}"""',
        module.imports,
    ]
    for one in module.classes:
        lines += table(module, one, tables[one.table])
    lines.append(f"documented({', '.join(one.name for one in module.classes)})")
    return formatted(PACKAGE / name, "\n".join(lines))


# ---------------------------------------------------------------------------- signatures

SIGNATURES = ("_aio/connect.py", "pulsar/_client.py", "mqtt/_client.py", "tubemq/_client.py", "broker.py")
"""Files with signatures: the parameters between ``# options: TABLE`` and ``# end of options`` are generated.
The blocking face follows by ``tools/generate_blocking.py``."""
CHANGED: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "but durable": (("durable",), {}),
    "of a table view": (
        (
            *("type", "position", "start_inclusive", "durable", "priority", "subscription_properties"),
            *("ack_receipt", "ack_group_time", "batch_index_ack", "nack_delay", "ack_timeout", "dead_letter"),
        ),
        {"unreadable": "fail", "read_compacted": True},
    ),
    "of a subscription": ((), {"auto_ack": True}),
}
"""What a function changes in its table: options that it does not have, and other defaults."""
_REGION = re.compile(r"^( *)# options: (.*)\n(?:.*\n)*?\1# end of options\n", re.MULTILINE)
_TABLE = re.compile(r"\w+(?:\.\w+)?")
_MODULE = {one.table: module for module in FILES.values() for one in module.classes}


def signatures(name: str, tables: dict[str, list[dict[str, Any]]]) -> str:
    """The content of a file with its parameters as they are declared."""

    def parameters(region: re.Match[str]) -> str:
        indent, words = region[1], region[2]
        change = next((change for change in CHANGED if words.endswith(f" {change}")), "")
        but, defaults = CHANGED.get(change, ((), {}))
        kinds: dict[str, str] = {}
        defaults_of: dict[str, list[str]] = {}
        common: set[str] = set()
        for key in _TABLE.findall(words.removesuffix(change)):
            for option in tables[key]:
                name = option["name"]
                if name in but:
                    continue
                kinds.setdefault(name, form(_MODULE[key], key, option)[0])
                shown = default(defaults.get(name, option["default"]))
                if shown not in defaults_of.setdefault(name, []):
                    defaults_of[name].append(shown)
                if option["common"]:
                    common.add(name)
        lines = [f"{indent}# options: {words}\n"]
        for name, kind in sorted(kinds.items(), key=lambda item: item[0] not in common):
            plain = kind.strip('"') if kind.count('"') == 2 and kind[0] == '"' else kind
            lines.append(f"{indent}{name}: {plain} = default({', '.join(defaults_of[name])}),\n")
        return "".join([*lines, f"{indent}# end of options\n"])

    file = PACKAGE / name
    return formatted(file, _REGION.sub(parameters, file.read_text()), "I")


def formatted(file: Path, source: str, rules: str = "F401,I") -> str:
    """Source as ruff writes it."""
    for arguments in (
        ["check", "--quiet", f"--select={rules}", "--fix", "--exit-zero"],
        ["format", "--quiet"],
    ):
        source = subprocess.run(
            [Path(sys.executable).parent / "ruff", *arguments, "--stdin-filename", str(file), "-"],
            input=source,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return source


def main() -> int:
    check = "--check" in sys.argv[1:]
    tables = specs()
    stale = 0
    written = [(name, generate) for name in FILES] + [(name, signatures) for name in SIGNATURES]
    for name, write in written:
        file, source = PACKAGE / name, write(name, tables)
        if not file.exists() or file.read_text() != source:
            stale += 1
            if check:
                print(f"{file} is stale: run tools/generate_options.py", file=sys.stderr)
            else:
                file.write_text(source)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
