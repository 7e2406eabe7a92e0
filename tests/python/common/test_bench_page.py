"""The page Performance, with and without results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benches import page

ORIGIN: dict[str, Any] = {
    "date": "2026-11-26T12:00:00Z",
    "commit": "abc1234",
    "modified": False,
    "opt_level": "3",
    "rounds": 3,
    "machine": {"cpu": "a processor", "cores": 2, "memory_gib": 8, "kernel": "6.1", "python": "3.12.1"},
}


def row(case: str, **figures: float) -> dict[str, Any]:
    return {"broker": "embedded", "size": 100, "case": case, **figures, "spread": dict.fromkeys(figures, 0.0)}


def keep(folder: Path, suite: str, rows: list[dict[str, Any]], targets: list[dict[str, Any]]) -> None:
    text = json.dumps({"suite": suite, **ORIGIN, "rows": rows, "targets": targets})
    (folder / f"{suite}.json").write_text(text)


def test_without_results_each_section_says_so(tmp_path: Path) -> None:
    text = page.page(tmp_path / "plots", tmp_path, tmp_path)
    sections = text.split("\n## ")[1:]
    assert len(sections) == len(page.SECTIONS) + 4
    assert all("no result is in the repository" in section.lower() for section in sections)


def test_tables_and_missed_targets(tmp_path: Path) -> None:
    targets = [
        {"target": "a", "wanted": ">= 1x", "measured": "2x", "verdict": "met"},
        {"target": "b", "wanted": ">= 1x", "measured": "0.8x", "verdict": "missed"},
        {"target": "c", "wanted": ">= 1x", "measured": None, "verdict": "-"},
    ]
    keep(tmp_path, "mqtt", [row("paho publish", rate=12345.0, cpu=7.0)], targets)
    text = page.page(tmp_path / "plots", tmp_path, tmp_path / "none")
    assert "| `paho publish` | 12,345 | 7 |" in text
    assert "| b | mqtt | >= 1x | 0.8x |" in text
    assert "| a | mqtt |" not in text
    assert "| a | >= 1x | 2x | met |" in text
    assert "Not measured in these runs: 1 targets" in text
    assert "a processor, 2 cores, 8 GiB" in text


def test_curves_are_drawn_and_skipped_points_named(tmp_path: Path) -> None:
    skipped = {"broker": "embedded", "size": 100, "case": "backlog: 10,000", "skipped": "1,000 took 70 s"}
    keep(tmp_path, "curves", [row("backlog: 1,000", x=1000, open_ms=3.0, rss=20.0), skipped], [])
    text = page.page(tmp_path / "plots", tmp_path, tmp_path / "none")
    assert "(plots/backlog.svg)" in text
    assert (tmp_path / "plots" / "backlog.svg").exists()
    assert "10,000 was skipped: 1,000 took 70 s." in text
