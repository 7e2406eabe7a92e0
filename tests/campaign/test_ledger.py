"""The ledger notices what the campaigns look for."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.campaign import ledger
from support.campaign.ledger import Column, Promise, account, by_key, payload, record_of


def write(folder: Path, name: str, column: str, *records: object) -> None:
    one = Column(folder, name, column)
    one.add(records)
    one.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five messages of a flow ``f``; the last has no acknowledgement."""
    write(tmp_path, "f", ledger.ATTEMPTED, 0, 1, 2, 3, 4)
    write(tmp_path, "f", ledger.ACKNOWLEDGED, 0, 1, 2, 3)
    return tmp_path


@pytest.mark.parametrize(
    ("received", "fault"),
    [
        ([0, 1, 2, 3], ""),
        ([0, 1, 2, 3, 4], ""),
        ([0, 1, 3], "1 acknowledged and lost: [2]"),
        ([0, 1, 2, 3, 9], "1 received and never sent: [9]"),
        ([0, 1, 2, 1, 3], "1 repeated: [1]"),
        ([0, 2, 1, 3], "1 out of order: [1]"),
    ],
)
def test_each_breach_is_told(folder: Path, received: list[int], fault: str) -> None:
    write(folder, "r", ledger.RECEIVED, "g:77", *(f"f:{number}" for number in received))
    faults = account(folder, "f", "r", Promise()).faults
    assert faults == ([f"f at r: {fault}"] if fault else [])


def test_what_is_not_promised_is_no_breach(folder: Path) -> None:
    write(folder, "r", ledger.RECEIVED, "f:0", "f:2", "f:1", "f:0", "f:3")
    assert account(folder, "f", "r", Promise(repeats=True, lane=by_key)).faults == []


def test_a_record_that_a_kill_cut_short_does_not_count(folder: Path) -> None:
    with (folder / "f.acknowledged").open("a") as file:
        file.write("4")
    assert ledger.numbers(folder, "f", ledger.ACKNOWLEDGED) == [0, 1, 2, 3]
    # The next process goes on behind it.
    write(folder, "f", ledger.ACKNOWLEDGED, 5)
    assert ledger.numbers(folder, "f", ledger.ACKNOWLEDGED) == [0, 1, 2, 3, 5]


def test_a_payload_names_its_flow_and_number() -> None:
    assert record_of(payload("mqtt-plain-1", 1234)) == "mqtt-plain-1:1234"
