"""run_page.py PAGE: runs the Python code blocks of a page against an embedded broker, in their order and in
one namespace, as a reader would type them.

* `await` may stand at the top level, as in IPython.
* The addresses in `PLACEHOLDERS` are replaced by those of the broker, and short time limits by longer ones.
* A block that cannot run here has a comment in the line before it: `<!-- not run: needs a cluster -->`.
  Readers do not see it. Such a block is only compiled.
* A block whose title is a file name is written to that file; a `test_*.py` is then run by pytest.

Line numbers in tracebacks are those of the page.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w+)?(?P<rest>.*)$")
TITLE = re.compile(r'title="([^"]*)"')
NOT_RUN = re.compile(r"^ *<!-- not run: (.*) -->$")
PLACEHOLDERS = {
    "pulsar": re.compile(r"pulsar://(?:127\.0\.0\.1|localhost):6650"),
    "mqtt": re.compile(r"mqtt://(?:127\.0\.0\.1|localhost):1883"),
    "ws": re.compile(r"ws://(?:127\.0\.0\.1|localhost):8080/mqtt"),
    "tubemq": re.compile(r"tubemq://(?:127\.0\.0\.1|localhost):8715"),
}
SHORT = re.compile(r"timeout=(?:5|10|15)\)")
"""Limits that are enough for a reader, and not for a machine that does much else."""


class Block(NamedTuple):
    """A fenced block: its language, title, text without indentation, the number of its first line, and why it
    is not run; empty if it is."""

    language: str
    title: str
    text: str
    line: int
    not_run: str


def blocks(page: str) -> Iterator[Block]:
    lines = page.splitlines()
    at = 0
    while at < len(lines):
        opened = FENCE.match(lines[at])
        at += 1
        if not opened:
            continue
        first, close = at, f"{opened['indent']}```"
        marked = NOT_RUN.match(lines[at - 2]) if at > 1 else None
        while at < len(lines) and lines[at].rstrip() != close:
            at += 1
        title = TITLE.search(opened["rest"])
        text = textwrap.dedent("\n".join(lines[first:at])) + "\n"
        reason = marked[1] if marked else ""
        yield Block(opened["language"] or "", title[1] if title else "", text, first + 1, reason)
        at += 1


def compiled(block: Block, page: str) -> Any:
    return compile("\n" * (block.line - 1) + block.text, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@contextlib.contextmanager
def addresses() -> Iterator[dict[str, str]]:
    import forebay

    with forebay.Broker(mqtt_port=0, mqtt_ws_port=0, tubemq_port=0) as broker:
        yield {
            "pulsar": broker.url,
            "mqtt": broker.mqtt_url or "",
            "ws": broker.mqtt_ws_url or "",
            "tubemq": broker.tubemq_url or "",
        }


def run(page: Path) -> int:
    text = page.read_text(encoding="utf-8")
    found = [block for block in blocks(text) if block.language == "python"]
    if "pyspark" in text:
        from forebay.spark import java

        java.ensure(Path.cwd())
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    names: dict[str, Any] = {"__name__": "__main__"}
    tests = []
    with addresses() as broker, asyncio.Runner() as runner:
        for block in found:
            filled = block.text
            for scheme, pattern in PLACEHOLDERS.items():
                filled = pattern.sub(broker[scheme], filled)
            filled = SHORT.sub("timeout=60)", filled)
            code = compiled(block._replace(text=filled), str(page))
            if block.not_run:
                continue
            if block.title.endswith(".py"):
                Path(block.title).write_text(filled)
                tests += [block.title] if block.title.startswith("test_") else []
            elif code.co_flags & inspect.CO_COROUTINE:
                runner.run(eval(code, names))
            else:
                exec(code, names)
            print(f"{page.name}:{block.line}: ok", flush=True)
        if tests:
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", *tests]
            return subprocess.run(command, check=False).returncode
    return 0


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    sys.exit(run(Path(sys.argv[1]).resolve()))
