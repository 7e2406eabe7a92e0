"""The statement index: each normative statement of MQTT 3.1.1 and 5.0, and the tests that cover it."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[2]
ROOT = TESTS.parent

# The statements listed in the appendix of each standard: section, first and last number.
LISTED = {
    "3.1.1": """
        1.5.3:1-3 2.2.2:1-2 2.3.1:1-7 3.1.0:1-2 3.1.2:1-24 3.1.3:1-11 3.1.4:1-5 3.2.0:1-1 3.2.2:1-6
        3.3.1:1-12 3.3.2:1-3 3.3.4:1-1 3.3.5:1-2 3.6.1:1-1 3.8.1:1-1 3.8.3:1-4 3.8.4:1-6 3.9.3:1-2
        3.10.1:1-1 3.10.3:1-2 3.10.4:1-6 3.12.4:1-1 3.14.1:1-1 3.14.4:1-3 4.1.0:1-2 4.3.1:1-1
        4.3.2:1-2 4.3.3:1-2 4.4.0:1-1 4.5.0:1-2 4.6.0:1-6 4.7.1:1-3 4.7.2:1-1 4.7.3:1-4 4.8.0:1-2
        6.0.0:1-4 7.0.0:1-2 7.1.1:1-1 7.1.2:1-1
    """,
    "5.0": """
        1.5.4:1-3 1.5.5:1-1 1.5.7:1-1 2.1.3:1-1 2.2.1:2-6 2.2.2:1-1 3.1.0:1-2 3.1.2:1-30 3.1.3:1-12
        3.1.4:1-6 3.2.0:1-2 3.2.2:1-22 3.3.1:1-13 3.3.2:1-20 3.3.4:1-10 3.4.2:1-3 3.5.2:1-3
        3.6.1:1-1 3.6.2:1-3 3.7.2:1-3 3.8.1:1-1 3.8.3:1-5 3.8.4:1-8 3.9.2:1-2 3.9.3:1-2 3.10.1:1-1
        3.10.3:1-2 3.10.4:1-6 3.11.2:1-2 3.11.3:1-2 3.12.4:1-1 3.14.0:1-1 3.14.1:1-1 3.14.2:1-4
        3.14.4:1-3 3.15.1:1-1 3.15.2:1-3 4.1.0:1-2 4.2:1-1 4.3.1:1-1 4.3.2:1-5 4.3.3:1-13 4.4.0:1-2
        4.5.0:1-2 4.6.0:1-6 4.7.0:1-1 4.7.1:1-2 4.7.2:1-1 4.7.3:1-4 4.8.2:1-6 4.9.0:1-3 4.12.0:1-7
        4.12.1:1-2 4.13.1:1-1 4.13.2:1-1 6.0.0:1-4
    """,
}
STANDARDS = pytest.mark.parametrize("standard", LISTED)


@cache
def index(standard: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((TESTS / "statements" / f"mqtt-{standard}.toml").read_text())


def listed(standard: str) -> list[str]:
    found = []
    for part in LISTED[standard].split():
        section, first, last = re.split("[:-]", part)
        found += [f"MQTT-{section}-{number}" for number in range(int(first), int(last) + 1)]
    return found


@cache
def source(path: str) -> str:
    return (ROOT / path).read_text()


@STANDARDS
def test_every_statement_is_there_in_order(standard: str) -> None:
    assert list(index(standard)) == listed(standard)


@STANDARDS
def test_every_statement_has_its_tests_or_says_why_not(standard: str) -> None:
    for name, statement in index(standard).items():
        assert statement.keys() <= {"side", "says", "tests", "not_covered"}, name
        assert statement["side"] in {"client", "server", "both"}, name
        assert len(statement["says"]) > 10, name
        assert statement.get("tests") or len(statement.get("not_covered", "")) > 15, name


@STANDARDS
def test_every_named_test_exists(standard: str) -> None:
    for name, statement in index(standard).items():
        for test in statement.get("tests", []):
            path, _, function = test.partition("::")
            keyword = "fn" if path.endswith(".rs") else "def"
            assert re.search(rf"\b{keyword} {function}\b", source(path)), f"{name}: no {test}"


@STANDARDS
def test_most_statements_are_covered(standard: str) -> None:
    statements = index(standard).values()
    covered = sum(1 for statement in statements if statement.get("tests"))
    assert covered / len(statements) > 0.8, f"{covered} of {len(statements)}"
