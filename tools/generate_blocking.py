#!/usr/bin/env python3
"""Generates the blocking face of forebay from the asyncio one, comments and formatting kept.

    tools/generate_blocking.py           writes the files of FILES
    tools/generate_blocking.py --check   changes nothing; status 1 when a file is stale

The rules, of which each has a method in ``Blocking``:

* ``async def`` becomes ``def``. ``await x`` becomes ``x.wait()`` where x is an operation of the engine (its
  text contains ``self._native``), otherwise ``x``.
* A function that returns ``Awaitable[T]`` or ``asyncio.Future[T]`` returns ``T``: ``return x`` becomes
  ``return x.wait()``, and ``return self._done`` goes.
* ``Opening[T]`` becomes ``T``, and ``Opening(lambda: x)`` becomes ``x``.
* An ``if`` that asks for the thread of the loop goes.
* ``self._submit_...`` is private in asyncio, where a future is already what it returns, and public here; its
  ``Pending[T]`` is a ``Waiter[T]``.
* Modules are replaced by their twins, see ``MODULES``.

What these rules cannot express is written by hand for both faces: the other modules in ``forebay/_aio``, and
their twins in ``forebay/_sync``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import libcst as cst
from libcst import matchers as m

PACKAGE = Path(__file__).resolve().parents[1] / "python" / "forebay"
PROTOCOLS = sorted(file.parent.name for file in PACKAGE.glob("*/_client.py"))
FILES = {
    **{f"_aio/{name}.py": f"_sync/{name}.py" for name in ("base", "connect")},
    **{f"{key}/_client.py": f"_sync/{key}/client.py" for key in PROTOCOLS},
    **{f"pulsar/_{name}.py": f"_sync/pulsar/{name}.py" for name in ("intercepted", "producer", "table_view")},
}
"""Source -> generated file, both relative to the package."""


def dotted(file: str) -> str:
    """The name of a module within the package."""
    return file.removesuffix(".py").replace("/", ".")


MODULES = {
    **{f"_aio.{file.stem}": f"_sync.{file.stem}" for file in PACKAGE.glob("_aio/*.py")},
    **{dotted(source): dotted(twin) for source, twin in FILES.items()},
}
"""Module of the asyncio face -> its twin, both relative to the package."""
WORDS = (
    (" (when awaited)", ""),
    (" (when awaited or entered)", ""),
    (", at once.", "."),
    (" on asyncio:", ", blocking:"),
    (":func:`forebay.connect`", ":func:`forebay.blocking.connect`"),
    ("Cancelling the wait does not unsend.", "An exception during the wait does not unsend."),
    ("await earlier sends first", "flush first"),
)
"""Replacements in docstrings and comments."""
WAITS = m.Subscript(
    value=m.OneOf(m.Name("Awaitable"), m.Attribute(value=m.Name("asyncio"), attr=m.Name("Future")))
)
LOOP_THREAD = m.If(test=m.Comparison(left=m.Call(func=m.Name("get_ident"))))


def code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def argument(node: cst.BaseExpression) -> cst.BaseExpression:
    """``T`` of ``Generic[T]``."""
    index = cst.ensure_type(cst.ensure_type(node, cst.Subscript).slice[0].slice, cst.Index)
    return index.value


def wait(node: cst.BaseExpression) -> cst.Call:
    if not isinstance(node, cst.BooleanOperation):
        node = node.with_changes(lpar=[], rpar=[])
    return cst.Call(cst.Attribute(node, cst.Name("wait")))


class Blocking(cst.CSTTransformer):
    """Applies the rules of this file's docstring."""

    def __init__(self, module: str) -> None:
        self._folders = module.split("/")[:-1]
        self._waits: list[bool] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._waits.append(node.returns is not None and m.matches(node.returns.annotation, WAITS))

    def leave_FunctionDef(self, _: cst.FunctionDef, node: cst.FunctionDef) -> cst.FunctionDef:
        if self._waits.pop() and node.returns is not None:
            node = node.with_changes(
                returns=node.returns.with_changes(annotation=argument(node.returns.annotation))
            )
        return node.with_changes(asynchronous=None)

    def leave_Return(self, _: cst.Return, node: cst.Return) -> cst.Return | cst.RemovalSentinel:
        if not (self._waits and self._waits[-1]) or node.value is None:
            return node
        if m.matches(node.value, m.Attribute(value=m.Name("self"), attr=m.Name("_done"))):
            return cst.RemoveFromParent()
        return node.with_changes(value=wait(node.value))

    def leave_Await(self, _: cst.Await, node: cst.Await) -> cst.BaseExpression:
        return wait(node.expression) if "self._native" in code(node.expression) else node.expression

    def leave_Subscript(self, _: cst.Subscript, node: cst.Subscript) -> cst.BaseExpression:
        return argument(node) if m.matches(node.value, m.Name("Opening")) else node

    def leave_Call(self, _: cst.Call, node: cst.Call) -> cst.BaseExpression:
        if m.matches(node, m.Call(func=m.Name("Opening"), args=[m.Arg(m.Lambda())])):
            return cst.ensure_type(node.args[0].value, cst.Lambda).body
        return node

    def leave_If(self, _: cst.If, node: cst.If) -> cst.If | cst.RemovalSentinel:
        return cst.RemoveFromParent() if m.matches(node, LOOP_THREAD) else node

    def leave_Name(self, _: cst.Name, node: cst.Name) -> cst.Name:
        if node.value.startswith("_submit_"):
            return node.with_changes(value=node.value[1:])
        return node.with_changes(value="Waiter") if node.value == "Pending" else node

    def leave_Import(self, _: cst.Import, node: cst.Import) -> cst.Import | cst.RemovalSentinel:
        return cst.RemoveFromParent() if code(node) == "import asyncio" else node

    def leave_ImportFrom(
        self, _: cst.ImportFrom, node: cst.ImportFrom
    ) -> cst.ImportFrom | cst.RemovalSentinel:
        names = [] if isinstance(node.names, cst.ImportStar) else list(node.names)
        kept = [name for name in names if name.name.value not in ("Opening", "Awaitable")]
        if not kept:
            return cst.RemoveFromParent()
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        module = code(node.module) if node.module else ""
        if node.relative:
            module = ".".join(filter(None, ("forebay", *self._folders, module)))
        twin = MODULES.get(module.removeprefix("forebay."))
        return node.with_changes(
            module=cst.parse_expression(f"forebay.{twin}" if twin else module), relative=[], names=kept
        )

    def leave_SimpleString(self, _: cst.SimpleString, node: cst.SimpleString) -> cst.SimpleString:
        value = node.value
        for ours, theirs in WORDS:
            value = value.replace(ours, theirs)
        return node.with_changes(value=value)

    def leave_FormattedStringText(
        self, _: cst.FormattedStringText, node: cst.FormattedStringText
    ) -> cst.FormattedStringText:
        return node.with_changes(value=node.value.replace("<forebay.", "<forebay.blocking."))


def generate(source: str) -> str:
    """The blocking twin of a file."""
    tree = cst.parse_module((PACKAGE / source).read_text()).visit(Blocking(source))
    text = re.sub(r"(?m)^.* is generated from this file\.\n", "", tree.code)
    text = f"# Generated from forebay/{source} by tools/generate_blocking.py; do not edit.\n{text}"
    for arguments in (["check", "--quiet", "--select=F401,I", "--fix", "--exit-zero"], ["format", "--quiet"]):
        name = str(PACKAGE / FILES[source])
        text = subprocess.run(
            [Path(sys.executable).parent / "ruff", *arguments, "--stdin-filename", name, "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return text


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = 0
    for source, name in FILES.items():
        file, text = PACKAGE / name, generate(source)
        if not file.exists() or file.read_text() != text:
            stale += 1
            if check:
                print(f"{file} is stale: run tools/generate_blocking.py", file=sys.stderr)
            else:
                file.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
