"""The defects that ``make mutants`` puts back can be put back: the code that they change is there."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIST = tomllib.loads((ROOT / "tools" / "mutants.toml").read_text())


@pytest.mark.parametrize("mutant", LIST["mutant"], ids=lambda mutant: mutant["name"])
def test_the_code_that_a_mutant_changes_is_there_once(mutant: dict[str, Any]) -> None:
    for change in (mutant, *mutant.get("also", [])):
        file = change.get("file", mutant["file"])
        assert (ROOT / file).read_text().count(change["old"]) == 1, f"{file}: {change['old']}"
        assert change["new"] != change["old"]


def test_mutants_that_survive_are_of_files_that_exist() -> None:
    assert all((ROOT / survivor["file"]).is_file() for survivor in LIST["survivor"])
