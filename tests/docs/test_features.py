"""The tables of features: what is said to work has a test, and the test exists."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "protocols" / "pulsar-features.md"
HEAD = ["feature", "Forebay", "Java", "C++ and Python", "Go", "Rust", "test"]
FOLDERS = {
    "interop": "tests/interop/pulsar",
    "python": "tests/python/pulsar",
    "common": "tests/python/common",
    "src": "src",
    "tests": "tests",
    "typing": "tests/typing",
}
"""First part of a path on the page -> folder; other paths are in the folder of the contract tests."""
CONTRACT = "tests/contract/pulsar"
SHOWN = {"yes", "yes (e)", "declared", "declared (e)"}
NOT_SHOWN = {"no", "untested"}


class Row(NamedTuple):
    group: str
    feature: str
    forebay: str
    tests: str

    @property
    def names(self) -> list[str]:
        return re.findall(r"`([^`]*)`", self.tests)


def rows() -> list[Row]:
    found: list[Row] = []
    group, in_table = "", False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            group = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if not cells:
            in_table = False
        elif cells == HEAD:
            in_table = True
        elif in_table and not set(line) <= set("|- "):
            assert len(cells) == len(HEAD), f"{line!r} has {len(cells)} cells, not {len(HEAD)}"
            assert all(cells[:-1]), f"{line!r} has an empty cell"
            found.append(Row(group, cells[0], cells[1], cells[-1]))
    return found


ROWS = rows()
EACH_ROW = pytest.mark.parametrize("row", ROWS, ids=[f"{row.group}: {row.feature}" for row in ROWS])


def located(name: str) -> tuple[Path, str]:
    path, _, function = name.partition("::")
    first, _, rest = path.partition("/")
    return ROOT / (f"{FOLDERS[first]}/{rest}" if rest else f"{CONTRACT}/{path}"), function


class Found(NamedTuple):
    count: int
    """Number of functions of this name. With two the first is never run."""
    skipped: bool
    real_only: bool
    """Runs against a real Pulsar only."""


@cache
def functions(path: Path) -> dict[str, Found]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".rs":
        names = re.findall(r"#\[(?:tokio::)?test\b[^\]]*\]\s*(?:async )?fn (\w+)\(", text)
        return {name: Found(count, False, False) for name, count in Counter(names).items()}
    tree = ast.parse(text)
    marked = any(
        isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)
        and "real_pulsar" in ast.unparse(node.value)
        for node in tree.body
    )
    tests = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        # `make types` checks each function there.
        and (node.name.startswith("test_") or path.parent.name == "typing")
    ]
    counts = Counter(node.name for node in tests)
    return {node.name: found(node, counts[node.name], marked) for node in tests}


def found(node: ast.FunctionDef | ast.AsyncFunctionDef, count: int, marked: bool) -> Found:
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    fixtures = {argument.arg for argument in node.args.args}
    return Found(
        count,
        any(re.match(r"pytest\.mark\.(skip|skipif|xfail)\b", mark) for mark in marks),
        marked or any("real_pulsar" in text for text in (*marks, *fixtures)) or "own_pulsar" in fixtures,
    )


def test_there_are_rows_of_each_group() -> None:
    groups = Counter(row.group for row in ROWS)
    assert set(groups) == {
        "Consuming", "Readers and table views", "Producing", "Schemas", "Connecting", "Observing",
    }  # fmt: skip
    assert min(groups.values()) >= 10


@EACH_ROW
def test_a_feature_has_a_test_or_none_is_claimed(row: Row) -> None:
    assert row.forebay in SHOWN | NOT_SHOWN
    assert not re.sub(r"`[^`]*`|,| ", "", row.tests), "tests are names in backquotes, with commas"
    assert bool(row.names) == (row.forebay in SHOWN)


@EACH_ROW
def test_its_tests_exist(row: Row) -> None:
    only = []
    for name in row.names:
        path, function = located(name)
        assert path.is_file(), f"{name}: there is no {path.relative_to(ROOT)}"
        test = functions(path).get(function)
        assert test, f"{name}: {path.relative_to(ROOT)} has no such test"
        assert test.count == 1, f"{name} is defined {test.count} times: only the last is run"
        assert not test.skipped, f"{name} is not run, or may fail"
        only.append(test.real_only)
    if row.forebay.endswith("(e)"):
        assert not all(only), "no test of this row runs on the embedded broker"


def test_no_row_and_no_test_is_named_twice() -> None:
    features = Counter((row.group, row.feature) for row in ROWS)
    tests = Counter(name for row in ROWS for name in row.names)
    assert [what for what, count in (*features.items(), *tests.items()) if count > 1] == []
