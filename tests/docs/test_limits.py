"""The table of limits: all options of the broker that are limits, and constants of the engine as they are."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from forebay.broker import OPTIONS

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import docs_pages  # noqa: E402

LIMIT = re.compile(r"(^|_)(max|maximum|min|retention|timeout|keep_alive)(_|$)")


def test_every_option_that_is_a_limit_is_in_the_table() -> None:
    limits = {name for name, option in OPTIONS.items() if option.at_limit}
    assert {name for name in OPTIONS if LIMIT.search(name)} == limits
    page = docs_pages.limits_page()
    assert [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")] == [
        name for name in OPTIONS if name in limits
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("max_store", "10 GiB, in memory 1 GiB"),
        ("max_connections", "16,384"),
        ("mqtt_max_session_expiry", "unlimited"),
        ("tubemq_retention", "7 days"),
    ],
)
def test_defaults_are_those_of_the_options(name: str, shown: str) -> None:
    assert f"| `{name}` | {shown} | " in docs_pages.limits_page()


@pytest.mark.parametrize(
    ("file", "constant", "shown"),
    [
        ("logger.rs", "PER_SECOND", "10"),
        ("http/server.rs", "HEAD_BYTES", "32 KiB"),
        ("http/server.rs", "LIFE", "5 minutes"),
        ("mqtt/logins.rs", "PRICE_OF_ADDRESS", "200 ms"),
        ("mqtt/options.rs", "MAX_SUBSCRIPTIONS", "10,000"),
    ],
)
def test_constants_are_read_from_the_engine(file: str, constant: str, shown: str) -> None:
    assert docs_pages.constants(file)[constant] == shown


def test_a_constant_that_is_gone_ends_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = docs_pages.Fixed("a limit", "logger.rs", "{NONE_SUCH}", "Nothing.")
    monkeypatch.setattr(docs_pages, "FIXED", (gone,))
    with pytest.raises(SystemExit, match=r"src/broker/logger.rs has no constant 'NONE_SUCH'"):
        docs_pages.limits_page()
