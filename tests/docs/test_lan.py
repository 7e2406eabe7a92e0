"""The commands of docs/guides/lan.md, run in their order by one shell, against a broker that they start."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.scripts import free_port

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

from run_page import blocks  # noqa: E402

PAGE = ROOT / "docs" / "guides" / "lan.md"
PORTS = ("6651", "8443", "8883")
SAID = [
    '"ready":true',
    "a book",
    "refused, as it should be",
    "invoices",
    "Exclusive",
    "forebay_broker_received_messages_total",
    "1 messages or batches are in the store in restored",
]
"""In this order, between the outputs of other commands."""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The commands of the page, with its files beside it."""
    page = PAGE.read_text(encoding="utf-8").replace("broker.lan", "localhost").replace("0.0.0.0", "127.0.0.1")
    # The broker may be slow to start.
    page = page.replace("--retry 20 ", "--retry 240 ")
    for port in PORTS:
        assert port in page
        page = re.sub(rf"\b{port}\b", str(free_port()), page)
    commands = ["set -euo pipefail"]
    for block in blocks(page):
        if block.not_run:
            continue
        if block.language == "sh":
            commands.append(block.text)
        elif block.title:
            (tmp_path / block.title).write_text(block.text)
    path = tmp_path / "page.sh"
    # The broker's, not that of the last command.
    path.write_text("\n".join([*commands, 'wait "$(cat broker.pid)"']))
    return path


@pytest.mark.timeout(600)
def test_the_page_for_a_lan(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.delenv("FOREBAY_URL", raising=False)
    with subprocess.Popen(
        ["bash", script], cwd=script.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as shell:  # fmt: skip
        try:
            output, _ = shell.communicate(timeout=580)
        except BaseException:
            # Everything that it has started.
            subprocess.run(["kill", "-KILL", "--", f"-{shell.pid}"], check=False)
            raise
    assert shell.returncode == 0, output
    at = 0
    for text in SAID:
        found = output.find(text, at)
        assert found >= 0, f"{text!r} is missing behind character {at} of:\n{output}"
        at = found
    for text in ("users read again: 2 of mqtt", "permissions read again: 4 rules"):
        assert text in output, output
