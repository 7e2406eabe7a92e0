"""``forebay completion``: what the script makes a shell offer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import COMMANDS


def script(shell: str) -> str:
    words = [sys.executable, "-m", "forebay", "completion", shell]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=300).stdout


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "forebay.bash"
    path.write_text(script("bash"))
    return path


def offered(bash: Path, *words: str) -> set[str]:
    """What bash offers for the last of the words."""
    program = f"""
        source {bash}
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        $(complete -p forebay | sed 's/.*-F \\([^ ]*\\).*/\\1/')
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", program, "bash", "forebay", *words],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return set(done.stdout.split())


def test_bash_offers_commands_actions_and_choices(bash: Path) -> None:
    assert offered(bash, "") >= set(COMMANDS)
    assert offered(bash, "to") == {"token", "top", "topic"}
    assert offered(bash, "token", "") >= {"create-key", "create", "show"}
    assert offered(bash, "admin", "subscription", "re") == {"reset"}
    assert offered(bash, "comp") == {"compact", "completion"}
    assert offered(bash, "check", "--") >= {"--data", "--config", "--json"}
    assert "--compact" not in offered(bash, "broker", "--")
    assert offered(bash, "completion", "") == {"bash", "zsh", "fish"}


def test_bash_offers_the_flags_of_all_protocols(bash: Path) -> None:
    assert offered(bash, "sub", "--") >= {
        *("--position", "--type"),  # Pulsar's
        *("--host", "--retained-only", "--cafile", "--remove-retained"),  # MQTT's
        "--message-type",  # TubeMQ's
    }
    assert offered(bash, "pub", "--re") == {"--repeat", "--repeat-delay", "--retain"}
    assert offered(bash, "broker", "--mqtt") >= {"--mqtt-port", "--mqtt-ws-port", "--mqtt-password-file"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_name_every_command_and_are_well_formed(shell: str, tmp_path: Path) -> None:
    text = script(shell)
    for command in COMMANDS:
        assert command in text
    assert text.startswith({"bash": "#", "zsh": "#compdef forebay", "fish": "#"}[shell])
    if program := shutil.which(shell):
        (tmp_path / "script").write_text(text)
        subprocess.run([program, "-n", tmp_path / "script"], check=True, timeout=300)


def test_without_shtab_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "shtab.py").write_text("raise ImportError\n")
    words = [sys.executable, "-m", "forebay", "completion", "bash"]
    done = subprocess.run(
        words, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "pip install 'forebay[cli]'" in done.stderr


def test_an_unknown_shell_is_wrong_usage() -> None:
    words = [sys.executable, "-m", "forebay", "completion", "tcsh"]
    assert subprocess.run(words, capture_output=True, timeout=300).returncode == 2
