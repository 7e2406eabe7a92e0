"""The migration guide lists every option of pulsar-client, with its place in the drop-in and in the native
interface."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from forebay._core import protocols
from forebay.compat.pulsar import _options
from forebay.compat.pulsar._options import Row
from forebay.pulsar._renamed import RENAMED

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "from-pulsar-client.md"
TABLES = {
    "Client": ("client", _options.CLIENT),
    "create_producer": ("producer", _options.PRODUCER),
    "subscribe": ("consumer", _options.CONSUMER),
    "create_reader": ("consumer", _options.READER),
}


def rows(scope: str, table: Mapping[str, Row]) -> list[str]:
    """The lines of a table."""
    native = protocols.table(f"pulsar.{scope}")
    return [
        f"| `{name}` | {row.note or 'as there'} | "
        + (f"`{name}=` |" if name in native else f"{RENAMED[scope][name]} |")
        for name, row in table.items()
    ]


@pytest.mark.parametrize("verb", TABLES)
def test_the_options_of_a_verb_are_listed(verb: str) -> None:
    _, _, section = PAGE.read_text(encoding="utf-8").partition(f"### Options of `{verb}`\n")
    listed = [line for line in section.partition("\n### ")[0].splitlines() if line.startswith("| `")]
    wanted = rows(*TABLES[verb])
    assert listed == wanted, "put these lines there:\n" + "\n".join(wanted)
