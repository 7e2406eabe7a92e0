"""The embedded broker as a service: the unit for systemd, and a start in a bare root folder."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import urllib.request
from pathlib import Path

import pytest

import penstock
from penstock import blocking

from support.scripts import free_port
from support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[3]
SERVICE = ROOT / "examples" / "service"
DEPLOYMENT = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["penstock.service", "Containerfile", "compose.yaml"])
def test_the_docs_show_the_files_as_they_are(name: str) -> None:
    assert (SERVICE / name).read_text() in DEPLOYMENT


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """It checks that the program is there, so the unit gets one that is."""
    unit = (SERVICE / "penstock.service").read_text()
    program = Path(sys.executable).with_name("penstock")
    path = tmp_path / "penstock.service"
    path.write_text(unit.replace("/opt/app/bin/penstock", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, timeout=PATIENCE
    )
    said = [line for line in done.stderr.splitlines() if str(path) in line or "penstock.service" in line]
    assert done.returncode == 0 and not said, done.stderr


def test_systemd_refuses_a_wrong_unit(tmp_path: Path) -> None:
    """The check above can fail."""
    path = tmp_path / "penstock.service"
    path.write_text("[Service]\nType=notifyy\nExecStart=/none\n")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert "notifyy" in done.stderr


def entry_point() -> list[str]:
    """What the Containerfile starts."""
    text = (SERVICE / "Containerfile").read_text()
    words = [re.search(rf"^{name} \[(.*)\]$", text, re.MULTILINE) for name in ("ENTRYPOINT", "CMD")]
    return [word for found in words if found for word in re.findall(r'"([^"]*)"', found[1])]


@pytest.fixture
def bare(tmp_path: Path) -> list[str]:
    """The command that runs another one in a root folder of its own, which is read-only but for the store.

    There is no home, no list of users, no /proc and no /tmp; as root, the process is the user 10001 without
    any rights.
    """
    root, config, data = (tmp_path / name for name in ("root", "config", "data"))
    interpreter = Path(sysconfig.get_config_var("prefix")).resolve()
    needed = sorted(
        {Path("/usr"), interpreter, Path(sys.prefix), Path(penstock.__file__).resolve().parents[1]}
    )
    for folder in (config, data):
        folder.mkdir()
    for inside in ("dev", "etc/penstock", "var/lib/penstock", *(str(path).lstrip("/") for path in needed)):
        (root / inside).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            (root / name).symlink_to(Path("/", name).readlink())
    for name in ("null", "urandom"):
        (root / "dev" / name).touch()
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(data, 10001, 10001)
    lines = [
        "set -euo pipefail",
        f"root={root}",
        'mount --bind "$root" "$root"',
        *(f'mount --rbind {path} "$root{path}"' for path in needed),
        *(f'mount --bind /dev/{name} "$root/dev/{name}"' for name in ("null", "urandom")),
        f'mount --bind {config} "$root/etc/penstock"',
        f'mount --bind {data} "$root/var/lib/penstock"',
        'mount -o remount,bind,ro "$root"',
        f'exec env -i PATH={Path(sys.executable).parent}:/usr/bin:/usr/sbin chroot "$root" "$@"',
    ]
    script = tmp_path / "bare.sh"
    script.write_text("\n".join(lines) + "\n")
    user = [
        "setpriv",
        "--reuid=10001",
        "--regid=10001",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set=-all",
    ]
    rights = [] if is_root else ["--user", "--map-root-user"]
    return ["unshare", *rights, "--mount", "bash", str(script), *(user if is_root else [])]


def test_it_starts_in_a_bare_root_folder(bare: list[str], tmp_path: Path) -> None:
    pulsar, http = free_port(), free_port()
    (tmp_path / "config" / "broker.toml").write_text(f"port = {pulsar}\nhttp_port = {http}\n")
    for sent in (b"one", b"two"):
        with subprocess.Popen(
            [*bare, *entry_point()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as broker:
            assert broker.stdout
            try:
                said = broker.stdout.readline()
                assert said.startswith("penstock broker at "), said + broker.stdout.read()
                with urllib.request.urlopen(f"http://127.0.0.1:{http}/readyz", timeout=PATIENCE) as answer:
                    assert json.load(answer) == {"ready": True, "store": "ok", "disk": "ok", "clock": "ok"}
                with (
                    blocking.connect(f"pulsar://127.0.0.1:{pulsar}") as client,
                    client.producer("t") as producer,
                ):
                    producer.send(sent)
            finally:
                broker.send_signal(signal.SIGTERM)
                ended = broker.stdout.read()
        assert broker.returncode == 0, ended
    with penstock.Broker(data=tmp_path / "data") as broker, blocking.connect(broker.url) as client:
        with client.reader("t", position="earliest") as reader:
            assert [reader.receive(timeout=PATIENCE).data for _ in range(2)] == [b"one", b"two"]


def test_nothing_else_can_be_written_to(bare: list[str]) -> None:
    """The root folder of the test is what it is said to be."""
    words = [*bare, "/usr/bin/bash", "-c", "id -u; echo x > /dev/null; ls /proc /tmp; touch /etc/x /usr/x"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode != 0
    assert done.stdout.split()[0] == ("10001" if os.geteuid() == 0 else "0")
    assert done.stderr.count("No such file") == 2
    assert done.stderr.count("cannot touch") == 2
