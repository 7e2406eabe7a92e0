"""The tests that the page of the kinds of fault names exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "faults.md"


def test_each_row_names_a_test_that_exists() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    rows = [row for row in rows if row != "|---|---|---|" and not row.startswith("| place |")]
    assert len(rows) > 40
    for row in rows:
        (named,) = re.findall(r"`([\w/.]+)::(\w+)` \|$", row)
        path, name = named
        assert re.search(rf"\b(?:def|fn) {name}\(", (ROOT / path).read_text()), row
