"""The Python packages of the tests are locked, each with hashes, and the locks follow the requirements."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PIN = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)")


def pins(path: Path) -> dict[str, set[str]]:
    """Versions by name: a lock may have one for each Python version."""
    found: dict[str, set[str]] = {}
    for line in path.read_text().splitlines():
        if match := PIN.match(line):
            found.setdefault(re.sub(r"[-_.]+", "-", match[1]).lower(), set()).add(match[2])
    return found


@pytest.mark.parametrize("name", ["demo", "dev", "docs"])
def test_a_lock_has_what_the_requirements_ask_for(name: str) -> None:
    asked, locked = pins(ROOT / f"requirements-{name}.txt"), pins(ROOT / "tools" / "locks" / f"{name}.txt")
    assert asked
    for package, versions in asked.items():
        assert versions <= locked.get(package, set()), f"{package}: run tools/lock-requirements"


@pytest.mark.parametrize("name", ["demo", "dev", "docs"])
def test_every_locked_package_has_hashes_and_names_no_host(name: str) -> None:
    text = (ROOT / "tools" / "locks" / f"{name}.txt").read_text()
    # A package continues on the lines of its hashes.
    for package in text.replace("\\\n", " ").splitlines():
        assert PIN.match(package), package
        assert "--hash=sha256:" in package, package
    assert "://" not in text
