"""Links of the pages at the root, and paths in all pages. (`make docs` checks the links of the site.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"]
ALL = [*PAGES, *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")
NAMED = re.compile(r"`((?:src|python|tests|docs|tools|benches|examples|fuzz|proto)/[\w./{},-]+)`")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links(page: Path) -> None:
    gone = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert not gone


def expanded(path: str) -> list[str]:
    """`src/{pulsar,mqtt}/` as two paths."""
    braces = re.search(r"\{([^}]*)\}", path)
    if not braces:
        return [path]
    return [one for part in braces[1].split(",") for one in expanded(path.replace(braces[0], part, 1))]


@pytest.mark.parametrize("page", ALL, ids=named)
def test_paths(page: Path) -> None:
    paths = {one for path in NAMED.findall(page.read_text()) for one in expanded(path)}
    # The fourth protocol of CONTRIBUTING is an exercise on paper.
    gone = sorted(path for path in paths if "amqp" not in path and not (ROOT / path).exists())
    assert not gone
