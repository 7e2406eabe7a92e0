#!/usr/bin/env python3
"""Checks comments, docs and texts for words that this project does not use.

    tools/check_words.py PATH...            lists each use with the reason; exit status 1 if there is one
    tools/check_words.py --report PATH...   counts per folder and per rule; exit status 0
    tools/check_words.py --rules            the rules as a table

Without PATH it checks `src python docs` and the pages at the root. A line that has to keep a word (a
quotation, say) carries `check-words: allow` in a comment, with the reason.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = ("src", "python", "docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
SUFFIXES = {".rs", ".py", ".pyi", ".md", ".toml"}
ALLOW = "check-words: allow"


class Rule(NamedTuple):
    """A pattern that must not occur, why, and what to write instead."""

    name: str
    pattern: re.Pattern[str]
    why: str
    instead: str


def _words(*words: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE)


_PERSON = "a passive person hides which part of the system acts"
RULES = (
    Rule("nobody", _words("nobody", "noone"), _PERSON, "name the component: 'no consumer', 'no subscriber'"),
    Rule("somebody", _words("somebody", "someone"), _PERSON, "name it: 'a client', 'the caller'"),
    Rule("whoever", _words("whoever", "whomever"), _PERSON, "name it: 'the caller that', 'any member that'"),
    Rule("lest", _words("lest"), "archaic", "'or', 'otherwise', 'so that ... does not'"),
    Rule("anew", _words("anew"), "archaic", "'again', or 'a new ...'"),
    Rule("afresh", _words("afresh"), "archaic", "'again', 'from an empty state'"),
    Rule("thereof", _words("thereof", "therein", "whence", "hither"), "archaic", "'of it', 'in it'"),
    Rule(
        "see the module",
        re.compile(r"\bsee the module(?:'s docs?)?\.", re.IGNORECASE),
        "it says nothing about the item itself",
        "one sentence about the item; then a link if it is still needed",
    ),
    Rule(
        "is none",
        re.compile(r"\b(?:is|are|than) none\b"),
        "it reads as a riddle, and as Python's `is None`",
        "'there is no ...', 'is not a ...'",
    ),
    Rule(
        "of 5.0",
        re.compile(r"\bof (?:MQTT )?(?:3\.1(?:\.1)?|3\.x|5\.0)\b(?!,? section)"),
        "a bare version number is not a protocol",
        "'MQTT 5.0', 'in MQTT 3.1.1', 'MQTT 5.0 only'",
    ),
    Rule(
        "has not",
        re.compile(r"\bhas not(?= and no |[.,;:)\"]|$)"),
        "'has not' without a verb is not English",
        "'does not have', 'is not supported by'",
    ),
    Rule("parking lot", _words("parking lots?"), "a metaphor with a plain name", "'overflow queue'"),
    Rule("by name", re.compile(r"\brefused by name\b"), "unclear", "'raises Unsupported'"),
    Rule(
        "TubeMQ",
        re.compile(r"\b(?:Tubemq|Tubemqs|TUBE)\b|\bTube(?:Client|Producer|Consumer|Options)\w*"),
        "one spelling",
        "TubeMQ in prose, TubeMq in names of types, tubemq in names of modules",
    ),
    Rule(
        "doc that begins with a question word",
        re.compile(r'^\s*(?:r?"""|//[/!] )(?:What|Who|Whose|Whom|Where|How)\b(?! (?:to|much|many)\b)'),
        "a doc comment begins with a noun phrase or a verb",
        "'Limits of a session', 'Returns the ...'",
    ),
)


class Finding(NamedTuple):
    """One use of a word."""

    path: Path
    line: int
    rule: Rule
    text: str


def _files(paths: list[str]) -> Iterator[Path]:
    for name in paths:
        path = Path(name) if Path(name).is_absolute() else ROOT / name
        if path.is_dir():
            yield from sorted(
                p for p in path.rglob("*") if p.suffix in SUFFIXES and "__pycache__" not in p.parts
            )
        elif path.is_file():
            yield path
        else:
            raise SystemExit(f"check_words: no such file or folder: {name}")


def check(path: Path) -> Iterator[Finding]:
    """The findings of one file. A doc comment counts as begun on the first of its lines only."""
    before = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if ALLOW not in line:
            for rule in RULES:
                if rule.name.startswith("doc that") and _continues(before, line, path.suffix):
                    continue
                if rule.pattern.search(line):
                    yield Finding(path, number, rule, line.strip())
        before = line


def _continues(before: str, line: str, suffix: str) -> bool:
    if suffix == ".md" or line.lstrip().startswith("#"):
        # Headings of pages may be questions; a Python comment is not a doc comment.
        return True
    return suffix == ".rs" and before.lstrip().startswith(("///", "//!"))


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _report(findings: list[Finding]) -> None:
    by_folder = Counter(str(Path(_shown(f.path)).parent) for f in findings)
    by_rule = Counter(f.rule.name for f in findings)
    for title, counts in (("folder", by_folder), ("rule", by_rule)):
        print(f"\nper {title}:")
        for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            print(f"  {count:5}  {name}")
    print(f"\n{len(findings)} in {len({f.path for f in findings})} files")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", default=list(DEFAULT))
    parser.add_argument("--report", action="store_true", help="counts per folder and rule")
    parser.add_argument("--rules", action="store_true", help="print the rules")
    given = parser.parse_args()
    if given.rules:
        for rule in RULES:
            print(f"{rule.name:38} {rule.why}; write {rule.instead}")
        return 0
    findings = [found for path in _files(given.paths) for found in check(path)]
    if given.report:
        _report(findings)
        return 0
    for found in findings:
        print(
            f"{_shown(found.path)}:{found.line}: {found.rule.name!r}: {found.rule.why};"
            f" write {found.rule.instead}\n    {found.text}"
        )
    if findings:
        print(f"check_words: {len(findings)} uses of words that this project avoids", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
