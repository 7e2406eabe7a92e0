"""The examples run as they are, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SMALL = sorted(path for path in EXAMPLES.glob("*.py") if path.name != "demo.py")
EXPECTED = {
    "blocking_script": ["3 lines stored", ": two"],
    "dataframe": ["4 rows stored", "UA: 2816 miles"],
    "lifespan": ["answers: [{'id':", "stored: [b'order 0', b'order 1', b'order 2']"],
    "mqtt_device": ["lamp-7 is online\nlamp-7 is on\nlamp-7 is offline"],
    "pubsub": ["1000 orders stored", "acknowledged: {'ann': "],
    "tubemq_group": ["member 0: partitions [", "member 1: partitions ["],
}


def test_there_are_six() -> None:
    assert sorted(path.stem for path in SMALL) == sorted(EXPECTED)


@pytest.mark.parametrize("example", SMALL, ids=lambda path: path.stem)
def test_example(example: Path, tmp_path: Path) -> None:
    assert len(example.read_text().splitlines()) <= 40, "an example has at most 40 lines"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error::ResourceWarning:forebay", example],
        cwd=tmp_path,
        input="one\ntwo\nthree\n",
        check=False,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    for text in EXPECTED[example.stem]:
        assert text in done.stdout
