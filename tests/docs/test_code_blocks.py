"""Every code block of the docs does what the page says. (tests/wheel runs those of README.md.)"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from run_page import Block, blocks  # noqa: E402

GENERATED = {"options.md", "errors.md", "command-line.md"}
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.name not in GENERATED),
]
RUNNER = Path(__file__).with_name("run_page.py")
TARGETS = set(" ".join(re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)).split())


def of(page: Path, *languages: str) -> list[Block]:
    return [block for block in blocks(page.read_text(encoding="utf-8")) if block.language in languages]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.timeout(420)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.spark if "pyspark" in page.read_text() else ())
        for page in PAGES
        # tests/wheel runs the README's, which start another Spark.
        if of(page, "python") and page.name != "README.md"
    ],
    ids=named,
)
def test_python(page: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error::ResourceWarning:forebay", RUNNER, page],
        cwd=tmp_path,
        env={**os.environ, "FOREBAY_URL": ""},
        check=False,
        capture_output=True,
        text=True,
        timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


SHELL = [
    pytest.param(line, id=f"{named(page)}:{block.line} {line[:40]}")
    for page in PAGES
    # test_lan.py runs those of this page.
    if page.name != "lan.md"
    for block in of(page, "sh")
    if not block.not_run
    for line in block.text.replace("\\\n", " ").splitlines()
    if line.strip()
]


@pytest.mark.parametrize("line", SHELL)
def test_shell(line: str) -> None:
    """Commands and flags exist; nothing is run."""
    words = shlex.split(line, comments=True)
    while words and (words[0].endswith("&&") or re.fullmatch(r"\w+=.*", words[0])):
        words.pop(0)
    for end in ("|", "&", ">", "2>", "&&"):
        if end in words:
            words = words[: words.index(end)]
    if not words:
        return
    if words[0] == "make":
        for target in words[1:]:
            assert "=" in target or target in TARGETS, f"make has no target {target}"
    elif words[0] == "forebay":
        from forebay import cli

        schemes = {"mqtt": r"(mqtts?|wss?|mqtt\+unix)://", "tubemq": r"tubemq(\+ssl)?://"}
        found = [name for name, scheme in schemes.items() if any(re.match(scheme, word) for word in words)]
        found += ["mqtt"] if {"-h", "-L"} & set(words) else []
        _, rest = cli.parser(*found[:1] if words[1] in ("pub", "sub") else ()).parse_known_args(words[1:])
        assert not [word for word in rest if word.startswith("-")], f"unknown arguments: {rest}"
    else:
        assert words[0] in {"pip", "python", "cargo", "pytest", ".venv/bin/python"}, (
            f"{words[0]}: add a check for it, or the line <!-- not run: REASON --> before the block"
        )


def test_markers_stand_before_a_block() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert sum(bool(block.not_run) for block in blocks(text)) == text.count("<!-- not run"), named(page)


@pytest.mark.parametrize("page", [page for page in PAGES if of(page, "sh")], ids=named)
def test_shell_is_well_formed(page: Path) -> None:
    for block in of(page, "sh"):
        done = subprocess.run(
            ["bash", "-n"], input=block.text, check=False, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, ""), f"{named(page)}:{block.line}: {done.stderr}"
