"""The page of the kinds of fault: its tests exist, and each table asks every place."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "internals" / "faults.md").read_text()
WITHOUT = re.compile(r"^Places without a row: (.*?)[.:] ", re.MULTILINE)


def rows(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [line for line in lines if line != "|---|---|---|" and not line.startswith("| place |")]


def named(text: str) -> set[str]:
    """The places before the colon of a row."""
    return set(text.removeprefix("| ").partition(": ")[0].split(", "))


def test_each_row_names_a_test_that_exists() -> None:
    found = rows(PAGE)
    assert len(found) > 40
    for row in found:
        (name,) = re.findall(r"`([\w/.]+::\w+)` \|$", row)
        path, function = name.split("::")
        assert re.search(rf"\b(?:def|fn) {function}\(", (ROOT / path).read_text()), row


def test_each_table_asks_every_place() -> None:
    (line,) = re.findall(r"Each table asks all places: ([^.]*)\.", PAGE)
    places = set(re.split(r",\s", line))
    assert len(places) == 10
    _, *tables = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    assert len(tables) > 10
    for table in tables:
        asked = {place for row in rows(table) if named(row) <= places for place in named(row)}
        without = {place for found in WITHOUT.findall(table) for place in found.split(", ")}
        title = table.partition("\n")[0]
        assert asked | without == places, (title, places - asked - without)
        assert not asked & without, (title, asked & without)


def test_no_row_is_there_twice() -> None:
    assert len(set(rows(PAGE))) == len(rows(PAGE))
