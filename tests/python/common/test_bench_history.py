"""Comparison of the results of ``make bench-quick``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benches import history, suite

CPU = "a processor"


def run(date: str, *rows: tuple[str, float, float], cpu: str = CPU) -> dict[str, Any]:
    return {
        "date": date,
        "commit": f"c{date}",
        "opt_level": "3",
        "machine": {"cpu": cpu, "cores": 2, "python": "3.12.1"},
        "rows": [{"case": name, "ratio": ratio, "spread": {"ratio": spread}} for name, ratio, spread in rows],
    }


@pytest.mark.parametrize(
    ("before", "now", "spreads", "slower"),
    [
        (1.0, 1.0, (0, 0), False),
        (1.0, 0.98, (0, 0), False),
        (1.0, 0.96, (0, 0), True),
        (1.0, 0.90, (0.04, 0.04), False),
        (1.0, 0.90, (0.04, 0.02), True),
        (0.1, 0.09, (0.002, 0.002), True),
        (1.0, 2.0, (0, 0), False),
    ],
)
def test_slower_by_more_than_the_spread_of_both(
    before: float, now: float, spreads: tuple[float, float], slower: bool
) -> None:
    old, new = run("1", ("row", before, spreads[0])), run("2", ("row", now, spreads[1]))
    assert [change.is_slower for change in history.changes(new, old)] == [slower]


def test_rows_that_only_one_result_has_are_left_out() -> None:
    old, new = run("1", ("a", 1, 0), ("gone", 1, 0)), run("2", ("new", 1, 0), ("a", 1, 0))
    assert [change.row for change in history.changes(new, old)] == ["a"]


def test_the_result_before_is_the_last_of_the_same_machine() -> None:
    runs = [run("1"), run("2"), run("3", cpu="another"), run("4")]
    assert history.former(runs) is runs[1]
    assert history.former(runs[:1]) is None
    assert history.former([*runs, run("5", cpu="a third")]) is None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.argv", ["history", "--chart", str(tmp_path / "chart.svg")])
    monkeypatch.setattr(history, "FOLDER", tmp_path)
    return tmp_path


def keep(folder: Path, *runs: dict[str, Any]) -> None:
    for one in runs:
        (folder / f"{one['commit']}.json").write_text(json.dumps(one))


def test_a_slower_row_is_named_and_fails(folder: Path) -> None:
    keep(folder, run("2", ("fine", 1, 0), ("bad", 0.5, 0.1)), run("1", ("fine", 1, 0), ("bad", 1, 0.1)))
    with pytest.raises(SystemExit, match=r"^slower than c1: bad$"):
        history.main()
    chart = (folder / "chart.svg").read_text()
    assert "fine" in chart
    assert "c2" in chart


def test_the_first_result_has_nothing_to_be_compared_with(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(folder, run("1", ("row", 1, 0)))
    history.main()
    assert "first result of this machine" in capsys.readouterr().out


def test_engines_that_were_optimised_differently_are_not_compared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(folder, run("1", ("row", 1, 0)), run("2", ("row", 0.5, 0)) | {"opt_level": "1"})
    history.main()
    assert "first result of this machine" in capsys.readouterr().out


def test_no_result(folder: Path) -> None:
    with pytest.raises(SystemExit, match="empty"):
        history.main()


def test_a_result_that_is_kept_is_not_replaced(tmp_path: Path) -> None:
    def groups(broker: str, plan: suite.Plan) -> Iterator[suite.Group]:
        yield suite.Group(100, lambda: iter([("row", {"rate": 2.0, "floor": 1.0, "ratio": 2.0})]))

    kept = suite.Suite("kept", ("embedded",), [], groups, "", keep=True)
    plan, name = suite.Plan(3, 1.0, lambda _: True), str(tmp_path / "{day}-{commit}.json")
    assert suite.run(kept, ["embedded"], plan, name) == 0
    [file] = tmp_path.iterdir()
    [row] = json.loads(file.read_text())["rows"]
    assert (row["ratio"], row["spread"]["ratio"]) == (2.0, 0.0)
    with pytest.raises(SystemExit, match="measured today"):
        suite.run(kept, ["embedded"], plan, name)
